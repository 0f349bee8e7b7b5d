"""Read what a job holds in tmpfs and memfd files, mapped or not.

``Shmem`` of /proc/meminfo is the whole machine's: it shows when to look for files.
Whose they are, the processes' mappings and descriptors show.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice

import msgspec

from weigh.probe.pages import own_mounts, parse_maps
from weigh.regular_file import file_head, whole_file
from weigh.units import KIB, Bytes

# limits of one search, which takes 3 ms on a usual machine
_MOST_FILES = 4000  # in all mounts
_MOST_DESCRIPTORS = 500  # of one process
_MOST_PROCESSES = 100
_BLOCK = 512  # what st_blocks counts


def parse_shmem(meminfo: bytes) -> Bytes | None:
    """Read ``Shmem:`` of /proc/meminfo; None if it is missing."""
    words = meminfo[meminfo.find(b"\nShmem:") :].split(None, 2)
    if words[:1] != [b"Shmem:"] or not words[1:2] or not words[1].isdigit():
        return None
    return int(words[1]) * KIB


def machine_shared_memory(root: str = "/proc") -> Bytes | None:
    """Read the machine's shared memory; None if it is unknown."""
    return parse_shmem(file_head(f"{root}/meminfo", 4096))


class TmpfsFiles(msgspec.Struct, frozen=True):
    """Bytes in files changed since the job began.

    ``own`` are in files that a process of the job has mapped or opened, and in the
    segments that one made; ``mapped`` is the part of ``own`` that one maps now.
    ``closed`` are in files of this user that the job may have written while nobody
    looked: nobody else has them open, and they are no larger than what the job wrote
    that went neither to a disk nor into ``own``.
    """

    own: Bytes
    mapped: Bytes = 0
    closed: Bytes = 0


class JobFiles:
    """The tmpfs files and memfds of a job, from its beginning on.

    A file, (device, inode), that a process of the job once mapped or held open stays
    the job's when nobody has it any more.
    """

    def __init__(
        self,
        since: float | None = None,
        mounts: Sequence[str] | None = None,
        sysvipc: str = "/proc/sysvipc/shm",
    ) -> None:
        """Start; *mounts* are those of this process, if none are given."""
        # the clock of file systems is some ms behind; times of segments are in seconds
        self._since = (time.time() if since is None else since) - 1
        self._mounts = mounts
        self._sysvipc = sysvipc
        self._mapped: set[tuple[int, int]] = set()
        self._opened: set[tuple[int, int]] = set()
        self._pids: set[int] = set()

    def search(self, folders: Sequence[str]) -> TmpfsFiles:
        """Search for files; *folders* are the job's processes' folders in /proc."""
        user = os.geteuid()
        self._pids.update(map(_pid_of_folder, folders))
        mounts = _own_tmpfs_mounts() if self._mounts is None else self._mounts
        devices = {*map(_device, mounts), _memfd_device()}
        names = ("/memfd:", *(f"{mount}/" for mount in mounts))
        mapped = _mapped_files(folders, devices)
        self._mapped |= mapped
        opened = [
            info
            for info in _open_files(folders, names)
            if info.st_dev in devices and info.st_ctime >= self._since
        ]
        self._opened.update((info.st_dev, info.st_ino) for info in opened)
        sizes: dict[tuple[int, int], Bytes] = {}
        unseen: dict[tuple[int, int], Bytes] = {}
        for info in (*opened, *_files_below(mounts)):
            file = info.st_dev, info.st_ino
            if info.st_ctime < self._since:
                continue
            if file in self._mapped or file in self._opened:
                sizes[file] = info.st_blocks * _BLOCK
            elif info.st_uid == user and info.st_blocks:
                unseen[file] = info.st_blocks * _BLOCK
        # what calls have written and neither a disk nor an open file has; a file that
        # was mapped need not have been written by a call
        written = sum(
            parse_written(file_head(f"{folder}/io"))
            for folder in folders[:_MOST_PROCESSES]
        )
        written -= sum(size for file, size in sizes.items() if file not in self._mapped)
        if unseen and written > 0:
            # a file that another process has open is not taken for the job's
            for info in _open_files(_folders_of_others(self._pids, user), names):
                unseen.pop((info.st_dev, info.st_ino), None)
        segments = parse_segments(
            whole_file(self._sysvipc), user, self._since, self._pids
        )
        return TmpfsFiles(
            own=sum(sizes.values()) + segments,
            mapped=sum(size for file, size in sizes.items() if file in mapped),
            closed=min(sum(unseen.values()), max(0, written)),
        )


def _pid_of_folder(folder: str) -> int:
    # a thread's folder stands for a process whose first thread has ended
    name = os.path.basename(folder.partition("/task/")[0])
    # /proc/self stands for this process
    return int(name) if name.isdecimal() else os.getpid()


def _folders_of_others(process_ids: AbstractSet[int], user: int) -> Iterator[str]:
    """Yield the folders of the user's processes but *process_ids*, the newest first."""
    numbers = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    for pid in sorted(numbers, reverse=True):
        try:
            if pid not in process_ids and os.stat(f"/proc/{pid}").st_uid == user:
                yield f"/proc/{pid}"
        except OSError:
            continue


def parse_written(text: bytes) -> Bytes:
    """Read the bytes written, but not to a disk, from /proc/PID/io.

    They include those of children that ended.
    """
    figures = dict(line.split(b": ", 1) for line in text.splitlines() if b": " in line)
    try:
        return int(figures[b"wchar"]) - int(figures[b"write_bytes"])
    except (KeyError, ValueError):
        return 0


def parse_segments(
    text: bytes, user: int, since: float, process_ids: AbstractSet[int]
) -> Bytes:
    """Add up the resident bytes of System V segments that nobody has attached.

    Those of *user*, made or changed *since*, that one of the processes *process_ids*
    made or attached last, in the text of /proc/sysvipc/shm.
    """
    heading, *lines = [line.split() for line in text.splitlines()] or [[]]
    total = 0
    for words in lines:
        try:
            segment = {
                name: int(word) for name, word in zip(heading, words, strict=True)
            }
            is_own = segment[b"uid"] == user and not process_ids.isdisjoint(
                (segment[b"cpid"], segment[b"lpid"])
            )
            # a segment is kept without a process until it is removed
            if is_own and not segment[b"nattch"] and segment[b"ctime"] >= since:
                total += segment[b"rss"]
        except (KeyError, ValueError):
            continue
    return total


def _mapped_files(folders: Sequence[str], devices: set[int]) -> set[tuple[int, int]]:
    """Return (device, inode) of the files on *devices* that the processes map."""
    mapped = set()
    for folder in folders[:_MOST_PROCESSES]:
        try:
            with open(f"{folder}/maps", "rb") as maps:
                layout = parse_maps(maps)
        except (OSError, ValueError):
            continue
        for file in {mapping.file for mapping in layout.mappings}:
            # maps writes the device in hex
            major, minor, inode = file.replace(b":", b" ").split()
            mapped.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return {file for file in mapped if file[0] in devices}


def _own_tmpfs_mounts() -> list[str]:
    points = [mount.point for mount in own_mounts() if mount.kind == "tmpfs"]
    return [point for point in points if os.access(point, os.W_OK)]


def _files_below(mounts: Iterable[str]) -> Iterator[os.stat_result]:
    left = _MOST_FILES
    for mount in mounts:
        folders, device = [mount], _device(mount)
        while folders and left > 0:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue
            left -= len(entries)
            for entry in entries:
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield info
                # another mount has its own turn
                elif entry.is_dir(follow_symlinks=False) and info.st_dev == device:
                    folders.append(entry.path)


def _open_files(
    folders: Iterable[str], beginnings: tuple[str, ...]
) -> Iterator[os.stat_result]:
    """Yield open files whose name begins so; a file on a dead server may block."""
    for folder in islice(folders, _MOST_PROCESSES):
        try:
            names = os.listdir(f"{folder}/fd")[:_MOST_DESCRIPTORS]
        except OSError:
            continue
        for name in names:
            try:
                if os.readlink(f"{folder}/fd/{name}").startswith(beginnings):
                    yield os.stat(f"{folder}/fd/{name}")
            except OSError:
                continue


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except OSError:
        return -1


def _memfd_device() -> int:
    """Return the device of the hidden mount that memfds are on."""
    with suppress(OSError, AttributeError):
        fd = os.memfd_create("weigh")
        with open(fd, "rb"):
            return os.fstat(fd).st_dev
    return -1
