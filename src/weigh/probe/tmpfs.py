"""Read what a job holds in tmpfs and memfd files, mapped or not.

``Shmem`` of /proc/meminfo is the whole machine's: its rise since the job began shows
when to look for files. Whose they are, the processes' mappings and descriptors show.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from weigh.probe.pages import own_mounts, parse_maps
from weigh.regular_file import file_head
from weigh.units import KIB, Bytes

_MOST_FILES = 4000  # files in all mounts
_MOST_DESCRIPTORS = 500  # of one process
_MOST_PROCESSES = 100  # processes whose files one search lists
_BLOCK = 512  # what st_blocks counts
_MEMINFO_BYTES = 4096


def parse_shmem(meminfo: bytes) -> Bytes | None:
    """Read ``Shmem:`` of /proc/meminfo; None if it is missing."""
    words = meminfo[meminfo.find(b"\nShmem:") :].split(None, 2)
    if words[:1] != [b"Shmem:"] or not words[1:2] or not words[1].isdigit():
        return None
    return int(words[1]) * KIB


class MachineSharedMemory:
    """The machine's shared memory: ``level``, and how far it has risen."""

    def __init__(self, root: str = "/proc") -> None:
        self._path = f"{root}/meminfo"
        self.started = time.time()
        self.level = self._lowest = self._read()

    def rise(self) -> Bytes | None:
        """Return the bytes above the lowest level so far; None if that is unknown.

        What others gave back in the meantime hides nothing of what the job took later.
        """
        self.level = now = self._read()
        if now is None or self._lowest is None:
            return None
        self._lowest = min(now, self._lowest)
        return now - self._lowest

    def _read(self) -> Bytes | None:
        return parse_shmem(file_head(self._path, _MEMINFO_BYTES))


class JobFiles:
    """The tmpfs files that processes of a job were seen to map or to hold open.

    Files are (device, inode), and stay the job's when nobody has them any more.
    """

    def __init__(self) -> None:
        self.mapped: set[tuple[int, int]] = set()
        self.opened: set[tuple[int, int]] = set()
        self.pids: set[int] = set()


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


def find_files(
    folders: Sequence[str],
    since: float,
    known: JobFiles,
    mounts: Iterable[str] | None = None,
    sysvipc: str = "/proc/sysvipc/shm",
) -> TmpfsFiles:
    """Find the tmpfs files changed *since* then that are a job's, also its memfds.

    *folders* are its processes' folders in /proc; *known* is what earlier searches saw,
    and gets what this one sees; *mounts* are those of this process, if none are given.
    """
    user = os.geteuid()
    known.pids.update(_pids_of(folders))
    mounts = list(_own_tmpfs_mounts() if mounts is None else mounts)
    devices = {_device(mount) for mount in mounts} | {_memfd_device()}
    names = ("/memfd:", *(f"{mount}/" for mount in mounts))
    mapped = _mapped_files(folders, devices)
    known.mapped |= mapped
    sizes: dict[tuple[int, int], Bytes] = {}
    for info in _open_tmpfs_files(folders, names):
        if info.st_dev in devices and info.st_ctime >= since - 1:
            known.opened.add((info.st_dev, info.st_ino))
            sizes[info.st_dev, info.st_ino] = info.st_blocks * _BLOCK
    unseen: dict[tuple[int, int], Bytes] = {}
    for info in _files_below(mounts):
        file, size = (info.st_dev, info.st_ino), info.st_blocks * _BLOCK
        if info.st_ctime < since - 1:
            continue
        if file in known.mapped or file in known.opened:
            sizes[file] = size
        elif info.st_uid == user and size:
            unseen[file] = size
    # a file that was mapped need not have been written by a call
    opened = sum(size for file, size in sizes.items() if file not in known.mapped)
    # what calls have written and neither a disk nor an open file has
    written = sum(map(_bytes_written, folders[:_MOST_PROCESSES])) - opened
    if unseen and written > 0:
        # a file that another process has open is not taken for the job's
        for info in _open_tmpfs_files(_folders_of_others(known.pids, user), names):
            unseen.pop((info.st_dev, info.st_ino), None)
    return TmpfsFiles(
        own=_segments(sysvipc, user, since - 1, known.pids) + sum(sizes.values()),
        mapped=sum(size for file, size in sizes.items() if file in mapped),
        closed=min(sum(unseen.values()), max(0, written)),
    )


def _folders_of_others(process_ids: Collection[int], user: int) -> Iterator[str]:
    """Yield the folders of the user's processes but *process_ids*, the newest first."""
    numbers = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    for pid in sorted(numbers, reverse=True):
        try:
            if pid not in process_ids and os.stat(f"/proc/{pid}").st_uid == user:
                yield f"/proc/{pid}"
        except OSError:
            continue


def _pids_of(folders: Iterable[str]) -> Iterator[int]:
    for folder in folders:
        name = os.path.basename(folder)
        # /proc/self stands for this process
        yield int(name) if name.isdecimal() else os.getpid()


def parse_written(text: bytes) -> Bytes:
    """Read the bytes written, but not to a disk, from /proc/PID/io.

    They include those of children that ended.
    """
    figures = dict(line.split(b": ", 1) for line in text.splitlines() if b": " in line)
    try:
        return int(figures[b"wchar"]) - int(figures[b"write_bytes"])
    except (KeyError, ValueError):
        return 0


def _bytes_written(folder: str) -> Bytes:
    return parse_written(file_head(f"{folder}/io"))


def parse_segments(
    text: bytes, user: int, since: float, process_ids: Collection[int]
) -> Bytes:
    """Add up the resident bytes of System V segments that nobody has attached.

    Those of *user*, made or changed *since*, that one of the processes *process_ids*
    made or attached last, in the text of /proc/sysvipc/shm.
    """
    lines = [line.split() for line in text.splitlines()]
    names = (b"uid", b"nattch", b"ctime", b"rss", b"cpid", b"lpid")
    if not lines or not all(name in lines[0] for name in names):
        return 0
    at = [lines[0].index(name) for name in names]
    total = 0
    for words in lines[1:]:
        if len(words) < len(lines[0]) or not all(words[i].isdigit() for i in at):
            continue
        uid, attached, changed, resident, maker, last = (int(words[i]) for i in at)
        # a segment is kept without a process until it is removed
        is_own = uid == user and (maker in process_ids or last in process_ids)
        if is_own and not attached and changed >= since:
            total += resident
    return total


def _segments(
    path: str, user: int, since: float, process_ids: Collection[int]
) -> Bytes:
    try:
        with open(path, "rb") as file:
            return parse_segments(file.read(), user, since, process_ids)
    except OSError:
        return 0


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
            device, _, inode = file.partition(b" ")
            major, _, minor = device.partition(b":")
            # maps writes the device in hex
            number = os.makedev(int(major, 16), int(minor, 16))
            if number in devices:
                mapped.add((number, int(inode)))
    return mapped


def _own_tmpfs_mounts() -> list[str]:
    points = [mount.point for mount in own_mounts() if mount.kind == "tmpfs"]
    return [point for point in points if os.access(point, os.W_OK)]


def _files_below(mounts: Iterable[str]) -> Iterator[os.stat_result]:
    left = _MOST_FILES
    for mount in mounts:
        folders = [(mount, _device(mount))]
        while folders and left > 0:
            folder, device = folders.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue
            for entry in entries:
                left -= 1
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if info.st_dev == device:  # another mount has its own turn
                        folders.append((entry.path, device))
                elif entry.is_file(follow_symlinks=False):
                    yield info


def _open_tmpfs_files(
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
    try:
        fd = os.memfd_create("weigh", os.MFD_CLOEXEC)
    except (OSError, AttributeError):
        return -1
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
