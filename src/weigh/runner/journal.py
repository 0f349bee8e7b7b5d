"""The journal of a run: its lock, its joblog and its events, with one writer.

The joblog is the state: what it has an end of is done. If another program removes,
replaces or overwrites it or the events, no more tasks start.
"""

import errno
import os
import stat
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from weigh import waits
from weigh.errors import (
    FormatError,
    StoreError,
    UsageError,
    cannot_write,
    writing,
)
from weigh.joblog import HEADER, JoblogEntry, format_entry, read_task_ends
from weigh.lazy_modules import lazy_module
from weigh.model.mask import HIDDEN, MASK, SIGNS, Hide, SecretMask
from weigh.regular_file import only_regular
from weigh.runner import events
from weigh.runner.events import PastRuns
from weigh.runner.owned_file import (
    OTHER_JOBLOG,
    JoblogHolder,
    JoblogLock,
    OwnedFile,
)
from weigh.runner.task_source import TaskSource
from weigh.store.location import file_mode
from weigh.units import Seconds, count_with_noun

if TYPE_CHECKING:
    import hmac
    import re
else:  # each is imported when it is first used
    hmac = lazy_module("hmac")
    re = lazy_module("re")

WAITING, DONE, FAILED = 0, 1, 2  # 0 first: a new bytearray is all waiting
_FLUSHED: Seconds = 60.0  # after so long a crash of the machine loses no line
_HEADER_LINE = HEADER.encode() + b"\n"
_TAIL = 1 << 16  # bytes read at once in search of the last newline
_BLOCK = 1 << 18  # bytes in which a sign of a secret is looked for at once
_WATCHED = 128  # bytes at the end that reveal whether the file was overwritten
_SIGNS = tuple(map(str.encode, SIGNS))
_DIGEST = 10  # letters: 40 bits distinguish tasks
KEY_SUFFIX = ".key"  # of the private file that the digests are made with


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


class RunJournal:
    """The files of a run on one joblog, which ``holder`` has.

    ``unwritten`` are ends not written yet.
    """

    def __init__(
        self,
        path: str,
        holder: JoblogHolder,
        *,
        mask: SecretMask = MASK,
        resume: bool = True,
        notify: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Take the lock, then open joblog and events; create those that are missing.

        Commands are written without what *mask* hides. Without *resume* a joblog that
        exists is put aside, and what ended before does not count.

        Raises:
            StoreError: a file cannot be opened or written.
            FormatError: a file is not what its name says.
            UsageError: another process has the joblog.
        """
        self.path = path
        self.holder = holder
        self.events_path = path + events.SUFFIX
        self.is_afresh = not resume
        self.unwritten: list[JoblogEntry] = []
        self._events_trouble: OSError | None = None
        self._unwritten_events = b""
        self._mask = mask
        self._hide: Hide | None = None
        self._is_dirty = False  # written since the last fsync
        self._sign_due: Seconds = 0.0
        with ExitStack() as opened:
            is_new = not os.path.lexists(path)
            # first: where there are locks, another run on the joblog has locked it
            self._joblog = self._opened_file(path, follow=True)
            opened.callback(self._close_joblog)
            _checked_joblog_size(self._joblog.fd, path)
            # before the joblog is read: what another run adds until then is not missed
            self._lock = JoblogLock(path, holder, notify=notify)
            opened.callback(self._lock.release)
            if not resume and not is_new:
                os.replace(path, path + ".old")
                self._joblog.close()
                self._joblog = self._opened_file(path, follow=True)
            self._events = self._opened_file(self.events_path, follow=False)
            opened.callback(self._events.close)
            # a line that a killed run left incomplete must not swallow the next
            size = os.fstat(self._events.fd).st_size
            self._is_torn = size > 0 and os.pread(self._events.fd, 1, size - 1) != b"\n"
            self._adopt_joblog()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the files, and release the lock."""
        self._opened.close()

    def _opened_file(self, file_path: str, *, follow: bool) -> OwnedFile:
        with writing(file_path, OTHER_JOBLOG):
            return OwnedFile(file_path, self.path, follow=follow)

    def _close_joblog(self) -> None:
        self._joblog.close()

    def _adopt_joblog(self) -> None:
        with writing(self.path):
            # up to here the file is this run's; the tail shows whether it still is
            self._size = _repair_joblog(self._joblog.fd, self.path)
            self._tail = self._read_tail()

    def read_past(self, source: TaskSource) -> tuple[SettledTasks, PastRuns]:
        """Return what earlier runs settled, and their events of the other tasks.

        Raises:
            FormatError: the joblog belongs to another task file.
            UsageError: tasks have ended whose lines somebody removed.
        """
        settled = settle_by(self.path, source, self._mask)
        states = settled.states

        # attempts are counted only of tasks that may run, to save memory
        def is_left(task_number: int) -> bool:
            return not 0 < task_number <= len(states) or states[task_number - 1] != DONE

        past = events.past_runs_of_file(self.events_path, is_left)
        if past is None:  # somebody removed it, and what it knew is gone
            raise StoreError(f"cannot read {self.events_path}: run it again")
        # those that failed have a line, and most others have not ended
        lost = [
            end
            for seq, end in past.ended.items()
            if 0 < seq <= len(states) and states[seq - 1] == WAITING
        ]
        if lost and not self.is_afresh:
            known = events.ended_tasks(self.path)
            # a machine that crashed may have lost the lines of the last moments
            before = past.last_end - _FLUSHED if known else float("inf")
            lost = [end for end in lost if end.seq not in known and end.time < before]
            if lost:
                tasks = count_with_noun(len(lost), "task")
                raise UsageError(
                    f"{self.path} has no line of {tasks} that ended by "
                    f"{self.events_path}: put it back, or remove the events to run "
                    "them again"
                )
        return settled, past

    def append_end(self, entry: JoblogEntry) -> str | None:
        """Write the line of a task; return what prevents it, or None."""
        if self._mask.may_hold(entry.command):
            if self._hide is None:
                self._hide = _secret_hider(_digest_key(self.path, make=True))
            command = self._mask.line(entry.command, self._hide)
            entry = msgspec.structs.replace(entry, command=command)
        return self._write_ends([*self.unwritten, entry])

    def try_again(self) -> str | None:
        """Write what could not be written before; return what prevents it, or None."""
        return self._write_ends(self.unwritten) if self.unwritten else None

    def trouble(self) -> str | None:
        """Return why no more can be written to the files; None while they are ours."""
        if self._lock.trouble is not None:
            return self._lock.trouble
        if self._events_trouble is not None:
            return cannot_write(self.events_path, self._events_trouble)
        for file in (self._joblog, self._events):
            if not file.is_in_place():
                return self._damage(file.path)
        try:
            return None if self._read_tail() == self._tail else self._damage(self.path)
        except OSError as error:
            return f"cannot read {self.path}: {error.strerror or error}"

    def append_events(self, *new_events: msgspec.Struct) -> None:
        """Write events, and those that could not be written before."""
        text = b"".join([msgspec.json.encode(event) + b"\n" for event in new_events])
        self._unwritten_events += text
        if not self._unwritten_events:
            return
        text = b"\n" * self._is_torn + self._unwritten_events
        self._events_trouble = _append_whole(self._events.fd, text)
        if self._events_trouble is None:
            self._is_torn, self._unwritten_events = False, b""

    def sync(self) -> None:
        """Flush what was written to the joblog since the last time to the disk."""
        if self._is_dirty:
            self._is_dirty = False
            os.fsync(self._joblog.fd)

    def keep(self) -> None:
        """Keep the lock and the events, show a sign of life, and flush the joblog."""
        now = time.monotonic()
        is_due = now >= self._sign_due
        if is_due:
            self._sign_due = now + waits.times.sign_of_life
        self._lock.keep(is_alive_sign_due=is_due)
        self.append_events()  # what could not be written before
        self.sync()

    def _damage(self, file_path: str) -> str:
        return (
            f"{file_path} was removed or overwritten by another program (what ended "
            "is in the joblog and its .events.jsonl)"
        )

    def _write_ends(self, entries: list[JoblogEntry]) -> str | None:
        text = b"".join(map(format_entry, entries))
        fd = self._joblog.fd
        try:
            before = os.fstat(fd).st_size
            is_cut = before != self._size and self._read_tail() != self._tail
        except OSError as error:
            self.unwritten = entries
            return cannot_write(self.path, error)
        if is_cut or not self._joblog.is_in_place():
            self.unwritten = entries
            return self._damage(self.path)
        trouble = _append_whole(fd, text)
        if trouble is not None:
            self.unwritten = entries
            return cannot_write(self.path, trouble)
        # else another program appended: only the part before that is ours
        if before == self._size:
            self._size += len(text)
            self._tail = (self._tail + text)[-_WATCHED:]
        self._is_dirty = True
        self.unwritten = []
        return None

    def _read_tail(self) -> bytes:
        length = min(self._size, _WATCHED)
        return os.pread(self._joblog.fd, length, self._size - length)


def _append_whole(descriptor: int, text: bytes) -> OSError | None:
    """Append *text* in one write, or nothing of it; return what prevents that."""
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, text) == len(text):
            return None
        os.ftruncate(descriptor, before)  # an incomplete line would swallow the next
    except OSError as error:
        return error
    return OSError(errno.ENOSPC, "No space left on device")


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
        file.readline()  # the header
        # also if secrets are not hidden: the joblog may be older than the setting
        secret_mask = SecretMask(secret_mask.patterns)
        key = _digest_key(path)
        keys = source.keys
        suspects = (
            range(1, len(source) + 1) if secret_mask.patterns else source.suspects
        )
        if suspects:
            keys = array("q", keys)
            for seq in suspects:
                keys[seq - 1] = _masked_key(source.text(seq), secret_mask, key)
        settled = match_ends_to_tasks(keys, _joblog_ends(file, secret_mask, key))
    if settled.strange and not settled.known:
        raise FormatError(
            f"{path} is the joblog of another task file: none of its "
            f"{settled.strange} lines is about a task of {source.name} "
            f"({OTHER_JOBLOG})"
        )
    return settled


def _joblog_ends(
    file: BinaryIO, secret_mask: SecretMask, key: bytes | None
) -> Iterator[tuple[int, bool, int]]:
    """Yield (seq, whether it succeeded, key of its text) of each line."""
    while lines := file.readlines(_BLOCK):
        block = b"".join(lines).lower()
        is_masked = secret_mask.patterns or any(sign in block for sign in _SIGNS)
        for seq, good, text in read_task_ends(lines):
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
        trouble = _append_whole(descriptor, _HEADER_LINE)
        if trouble is not None:
            raise trouble
        end = len(_HEADER_LINE)
    return end


def _checked_joblog_size(descriptor: int, path: str) -> int:
    """Refuse a file that is not a joblog; return its size."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise FormatError(f"{path} is not a regular file ({OTHER_JOBLOG})")
    begin = os.pread(descriptor, len(_HEADER_LINE), 0)
    # empty, or a header that was cut off: a run was killed in its first moment
    if not _HEADER_LINE.startswith(begin):
        raise FormatError(f"{path} is not a joblog ({OTHER_JOBLOG})")
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
