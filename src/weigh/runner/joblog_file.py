"""A joblog on disk with one writer: opened, repaired, appended to, restored."""

import os
import stat
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from weigh.errors import FormatError, StoreError
from weigh.joblog import HEADER, JoblogEntry, format_entry, read_task_ends
from weigh.lazy_modules import lazy_module
from weigh.model.mask import HIDDEN, MASK, SIGNS, Hide, SecretMask
from weigh.regular_file import only_regular
from weigh.runner.append_file import AppendFile
from weigh.runner.task_source import TaskSource
from weigh.store.location import file_mode

if TYPE_CHECKING:
    import hmac
    import re
else:  # each is imported when it is first used
    hmac = lazy_module("hmac")
    re = lazy_module("re")

WAITING, DONE, FAILED = 0, 1, 2  # 0 first: a new bytearray is all waiting
_TRIES, _PAUSE = 3, 0.05  # seconds


class SettledTasks(msgspec.Struct, frozen=True):
    """The tasks that earlier runs completed or failed.

    ``states`` has one of WAITING, DONE, FAILED for each task in order. ``known`` counts
    the joblog's lines about tasks of this file, ``strange`` those about others, and
    ``moved`` the tasks that were found under another number.
    """

    states: bytearray
    known: int = 0
    strange: int = 0
    moved: int = 0

    @property
    def done(self) -> int:
        """Count the tasks that succeeded."""
        return self.states.count(DONE)

    @property
    def failed(self) -> int:
        """Count the tasks that ended otherwise."""
        return self.states.count(FAILED)


def match_ends_to_tasks(
    task_keys: Sequence[int], task_ends: Iterable[tuple[int, bool, int]]
) -> SettledTasks:
    """Match *task_ends*, (seq, whether it succeeded, key of its text), to tasks.

    *task_keys* are those of the tasks' texts, in order. The last end of a task counts.
    Of several tasks with the same text as many are done as have succeeded, whatever
    their numbers were.
    """
    states = bytearray(len(task_keys))
    # key of a text: its ends by number, the last one of each
    strangers: dict[int, dict[int, bool]] = {}
    known = strange = 0
    for seq, succeeded, key in task_ends:
        if 0 < seq <= len(task_keys) and task_keys[seq - 1] == key:
            states[seq - 1] = DONE if succeeded else FAILED
            known += 1
        else:
            strangers.setdefault(key, {})[seq] = succeeded
            strange += 1
    moved = _adopt_renumbered_ends(states, task_keys, strangers) if strangers else 0
    return SettledTasks(states, known + moved, max(0, strange - moved), moved)


def _adopt_renumbered_ends(
    states: bytearray, task_keys: Sequence[int], strangers: dict[int, dict[int, bool]]
) -> int:
    """Assign ends under other numbers to tasks of the same text.

    A success goes first to a task that failed under its present number: it was that
    task's next attempt, under the number it had at that time.
    """
    good: dict[int, int] = {}
    bad: dict[int, int] = {}
    for key, ends in strangers.items():
        good[key] = sum(ends.values())
        bad[key] = len(ends) - good[key]
    moved = 0
    for wanted in (FAILED, WAITING):
        for at, key in enumerate(task_keys):
            if states[at] != wanted:
                continue
            if good.get(key):
                good[key] -= 1
                states[at] = DONE
                moved += 1
            # a task that failed under its own number needs no second failure
            elif wanted == WAITING and bad.get(key):
                bad[key] -= 1
                states[at] = FAILED
                moved += 1
    return moved


_HEADER_LINE = HEADER.encode() + b"\n"
_TAIL = 1 << 16  # bytes read at once in search of the last newline
_BLOCK = 1 << 18  # bytes in which a sign of a secret is looked for at once
_WATCHED = 128  # bytes at the end that reveal whether the file was overwritten
_SIGNS = tuple(map(str.encode, SIGNS))
_DIGEST = 10  # letters: 40 bits distinguish tasks
KEY_SUFFIX = ".key"  # of the private file that the digests are made with


def put_aside(path: str) -> None:
    """Rename the joblog at *path*, if there is one, for a run that starts over.

    Raises:
        StoreError: it cannot be renamed.
        FormatError: it is not a joblog.
    """
    try:
        # O_NONBLOCK: the open of a FIFO would wait for its writer
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _checked_joblog_size(fd, path)
        finally:
            os.close(fd)
        os.replace(path, path + ".old")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot rename {path}: {error.strerror}") from error


class JoblogFile:
    """The joblog of this run; ``unwritten`` are entries that could not be written yet.

    It is written again if another program removes or replaces it, because the open file
    still has its content. Of one that was truncated or overwritten nothing is left, so
    no more is written to it.
    """

    def __init__(self, path: str, secret_mask: SecretMask = MASK) -> None:
        """Open and lock the file; create it if missing, cut off an incomplete line.

        Commands are written without what *secret_mask* hides.

        Raises:
            StoreError: it cannot be opened or written.
            FormatError: it is not a joblog.
            UsageError: another process writes it.
        """
        self.unwritten: list[JoblogEntry] = []
        self._dirty = False  # written since the last fsync
        self._mask = secret_mask
        self._hide: Hide | None = None
        self._is_damaged = False
        try:
            self._file = AppendFile(path, follow=True)
            # up to here the file is this run's; the tail shows whether it still is
            self._size = _repair_joblog(self._file.fd, path)
            self._tail = self._read_tail(self._size)
        except OSError as error:
            raise StoreError(_joblog_error_text(path, error)) from error

    @property
    def path(self) -> str:
        """Return where the file is."""
        return self._file.path

    def append(self, entry: JoblogEntry) -> str | None:
        """Write one line; return what prevents it, or None."""
        return self._write([*self.unwritten, self._without_secrets(entry)])

    def try_again(self) -> str | None:
        """Write what could not be written before; return what prevents it, or None."""
        return self._write(self.unwritten) if self.unwritten else None

    def _put_back(self) -> str | None:
        for _ in range(_TRIES):
            try:
                return self._file.put_back()
            except FileNotFoundError:  # its directory is being removed
                time.sleep(_PAUSE)
        return self._file.put_back()

    def restore(self) -> str | None:
        """Write the file again if it was removed, replaced or moved.

        Return what happened to it; None if nothing did.

        Raises:
            StoreError: it cannot be written again, or was truncated or overwritten.
        """
        try:
            happened = self._put_back()
            self._is_damaged = self._read_tail(self._size) != self._tail
        except OSError as error:
            raise StoreError(
                f"{self.path} was removed and cannot be written again: "
                f"{error.strerror or error}"
            ) from error
        if self._is_damaged:
            raise StoreError(self._damage())
        return happened

    def _damage(self) -> str:
        return (
            f"{self.path} was truncated or overwritten by another program: no more "
            "tasks start (what ended is in its .events.jsonl, too)"
        )

    def sync(self) -> None:
        """Flush what was written since the last time to the disk."""
        if self._dirty:
            self._dirty = False
            os.fsync(self._file.fd)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _without_secrets(self, entry: JoblogEntry) -> JoblogEntry:
        if not self._mask.may_hold(entry.command):
            return entry
        if self._hide is None:
            self._hide = _secret_hider(_digest_key(self.path, make=True))
        command = self._mask.line(entry.command, self._hide)
        return msgspec.structs.replace(entry, command=command)

    def _write(self, entries: list[JoblogEntry]) -> str | None:
        text = b"".join(map(format_entry, entries))
        fd = self._file.fd
        try:
            before = os.fstat(fd).st_size
            if before != self._size:
                self._is_damaged = self._read_tail(self._size) != self._tail
            if self._is_damaged:
                self.unwritten = entries
                return self._damage()
            written = os.write(fd, text)
            if written == len(text):
                # else another program appended: only the part before that is ours
                if before == self._size:
                    self._size += written
                    self._tail = (self._tail + text)[-_WATCHED:]
                self._dirty = True
                self.unwritten = []
                return None
            trouble = "No space left on device"
            os.ftruncate(fd, before)  # an incomplete line would swallow the next
        except OSError as error:
            trouble = error.strerror or str(error)
        self.unwritten = entries
        return f"cannot write {self.path}: {trouble}"

    def _read_tail(self, file_size: int) -> bytes:
        length = min(file_size, _WATCHED)
        return os.pread(self._file.fd, length, file_size - length)


def settle_by(
    path: str, source: TaskSource, secret_mask: SecretMask = MASK
) -> SettledTasks:
    """Match the lines of the joblog at *path* to the tasks of *source*.

    Tasks with a secret are compared in their masked form, in which a digest replaces
    the secret; without the key of the digests the secrets are not compared.

    Raises:
        FormatError: it belongs to another task file.
    """
    with open(path, "rb", buffering=1 << 20, opener=only_regular) as file:
        # an editor of Windows ends all lines as it ends the header
        crlf = file.readline().endswith(b"\r\n")
        secret_mask = SecretMask(
            secret_mask.patterns
        )  # the joblog may be older than the setting
        key = _digest_key(path)
        keys = source.keys
        suspects = (
            range(1, len(source) + 1) if secret_mask.patterns else source.suspects
        )
        if suspects:
            keys = array("q", keys)
            for seq in suspects:
                keys[seq - 1] = _masked_key(source.text(seq), secret_mask, key)
        settled = match_ends_to_tasks(
            keys, _joblog_ends(file, secret_mask, key, crlf=crlf)
        )
    if settled.strange and not settled.known:
        raise FormatError(
            f"{path} is the joblog of another task file: none of its "
            f"{settled.strange} lines is about a task of {source.name} "
            "(choose another --joblog)"
        )
    return settled


def _joblog_ends(
    file: BinaryIO, secret_mask: SecretMask, key: bytes | None, *, crlf: bool
) -> Iterator[tuple[int, bool, int]]:
    """Yield (seq, whether it succeeded, key of its text) of each line."""
    while lines := file.readlines(_BLOCK):
        block = b"".join(lines).lower()
        is_masked = secret_mask.patterns or any(sign in block for sign in _SIGNS)
        for seq, good, text in read_task_ends(lines, crlf=crlf):
            yield (
                seq,
                good,
                _masked_key(text, secret_mask, key) if is_masked else hash(text),
            )


def _masked_key(task_text: bytes, secret_mask: SecretMask, key: bytes | None) -> int:
    """Return the hash that identifies a task's text, without the secrets in it."""
    lower = task_text.lower()
    if not secret_mask.patterns and not any(sign in lower for sign in _SIGNS):
        return hash(task_text)
    line = task_text.decode("utf-8", "surrogateescape")
    masked = secret_mask.line(line, _secret_hider(key))
    # without the key an old digest cannot be compared
    if key is None:
        masked = _without_digests(masked)
    return hash(masked.encode("utf-8", "surrogateescape"))


def _secret_hider(key: bytes | None) -> Hide:
    """Return a function that replaces a secret by a keyed digest.

    The digest keeps apart two tasks that differ only in a secret.
    """
    if key is None:
        return lambda _: HIDDEN

    def hide(secret: str) -> str:
        digest = hmac.digest(key, secret.encode("utf-8", "surrogateescape"), "sha256")
        return f"{HIDDEN}-{digest.hex()[:_DIGEST]}"

    return hide


def _without_digests(task_text: str) -> str:
    return re.sub(rf"{re.escape(HIDDEN)}-[0-9a-f]{{{_DIGEST}}}", HIDDEN, task_text)


def _digest_key(path: str, *, make: bool = False) -> bytes | None:
    """Return the key of a joblog's digests, from its own private file.

    Return None if there is none and none can be made.
    """
    name = path + KEY_SUFFIX
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    if make:
        with suppress(OSError):
            fd = os.open(
                # O_EXCL: an earlier run's key has to stay, or its digests are worthless
                name,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags,
                file_mode(name),
            )
            with open(fd, "wb") as file:
                file.write(os.urandom(32))
    try:
        with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | flags), "rb") as file:
            return file.read(64) or None
    except OSError:
        return None


def _repair_joblog(descriptor: int, path: str) -> int:
    """Cut off an incomplete last line, add a missing header; return the new size."""
    size = _checked_joblog_size(descriptor, path)
    end = _end_of_last_line(descriptor, size)
    if end < size:
        os.ftruncate(descriptor, end)
    if end == 0:
        if os.write(descriptor, _HEADER_LINE) != len(_HEADER_LINE):
            os.ftruncate(descriptor, 0)
            raise OSError(28, "No space left on device")
        end = len(_HEADER_LINE)
    return end


def _checked_joblog_size(descriptor: int, path: str) -> int:
    """Refuse a file that is not a joblog; return its size."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise FormatError(f"{path} is not a regular file (choose another --joblog)")
    # 4 more: an editor may have added a byte order mark and a carriage return
    begin = os.pread(descriptor, len(_HEADER_LINE) + 4, 0)
    bare = begin.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    # the second: an empty file, or a header that was cut off
    if not bare.startswith(_HEADER_LINE) and not _HEADER_LINE.startswith(begin):
        raise FormatError(f"{path} is not a joblog (choose another --joblog)")
    return found.st_size


def _end_of_last_line(descriptor: int, file_size: int) -> int:
    at = file_size
    while at > 0:
        begin = max(0, at - _TAIL)
        found = os.pread(descriptor, at - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0


def _joblog_error_text(path: str, os_error: OSError) -> str:
    return (
        f"cannot write {path}: {os_error.strerror or os_error} "
        "(choose a --joblog in a folder that can be written to)"
    )
