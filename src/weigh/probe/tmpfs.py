"""Read what a job holds in tmpfs and memfd files, mapped or not.

``Shmem`` of /proc/meminfo is the whole machine's. Its rise since the job began bounds
what the job may have put there. Whose files they are, the tmpfs mounts and the
processes' descriptors show.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.probe.pages import parse_maps
from weigh.units import KIB, Bytes

_MOST_FILES = 4000
_MOST_DESCRIPTORS = 500  # of one process
_MOST_PROCESSES = 100
_BLOCK = 512  # what st_blocks counts
_MEMINFO_BYTES = 4096


def parse_shmem(meminfo: bytes) -> Bytes | None:
    """Read ``Shmem:`` of /proc/meminfo; None if it is missing."""
    words = meminfo[meminfo.find(b"\nShmem:") :].split(None, 2)
    if words[:1] != [b"Shmem:"] or not words[1:2] or not words[1].isdigit():
        return None
    return int(words[1]) * KIB


def parse_tmpfs_mounts(mountinfo: bytes) -> list[str]:
    """Find where tmpfs is mounted, in the text of /proc/PID/mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(b" - ")
        words = fields.split()
        if kind.startswith(b"tmpfs ") and len(words) > 4:  # noqa: PLR2004 - the path
            path = words[4].decode("unicode_escape").encode("latin-1")
            mounts.append(os.fsdecode(path))
    return mounts


class Shmem:
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
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return parse_shmem(os.read(fd, _MEMINFO_BYTES))
        except OSError:
            return None
        finally:
            os.close(fd)


class TmpfsFiles(msgspec.Struct, frozen=True):
    """Bytes in files changed since the job began: by this user, and by others.

    ``mapped`` is the part of ``own`` in files that a process of the job maps.
    """

    own: Bytes
    others: Bytes
    mapped: Bytes = 0


def find_files(
    folders: Sequence[str],
    since: float,
    mounts: Iterable[str] | None = None,
    sysvipc: str = "/proc/sysvipc/shm",
) -> TmpfsFiles:
    """Find the tmpfs files changed *since* then, and the memfds of some processes.

    *folders* are the processes' folders in /proc; *mounts* those of this process, if
    none are given. System V segments that nobody has attached count too.
    """
    user = os.geteuid()
    found: dict[tuple[int, int], tuple[bool, Bytes]] = {}
    mounts = list(_own_mounts() if mounts is None else mounts)
    devices = {_device(mount) for mount in mounts} | {_memfd_device()}
    for info in _files_below(mounts):
        if info.st_ctime >= since - 1:
            size = info.st_blocks * _BLOCK
            found[info.st_dev, info.st_ino] = info.st_uid == user, size
    for info in _open_files(folders, ("/memfd:", *(f"{mount}/" for mount in mounts))):
        if info.st_dev in devices and info.st_ctime >= since - 1:
            found[info.st_dev, info.st_ino] = True, info.st_blocks * _BLOCK
    mapped = _mapped_files(folders, devices)
    segments = _segments(sysvipc, user, since - 1)
    return TmpfsFiles(
        segments + sum(size for is_own, size in found.values() if is_own),
        sum(size for is_own, size in found.values() if not is_own),
        sum(size for key, (is_own, size) in found.items() if is_own and key in mapped),
    )


def parse_segments(text: bytes, user: int, since: float) -> Bytes:
    """Add up the resident bytes of System V segments that nobody has attached.

    Those of *user*, made or changed *since*, in the text of /proc/sysvipc/shm.
    """
    lines = [line.split() for line in text.splitlines()]
    names = (b"uid", b"nattch", b"ctime", b"rss")
    if not lines or not all(name in lines[0] for name in names):
        return 0
    at = [lines[0].index(name) for name in names]
    total = 0
    for words in lines[1:]:
        if len(words) < len(lines[0]) or not all(words[i].isdigit() for i in at):
            continue
        uid, attached, changed, resident = (int(words[i]) for i in at)
        if uid == user and not attached and changed >= since:
            total += resident
    return total


def _segments(path: str, user: int, since: float) -> Bytes:
    try:
        with open(path, "rb") as file:
            return parse_segments(file.read(), user, since)
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
            number = os.makedev(int(major, 16), int(minor, 16))
            if number in devices:
                mapped.add((number, int(inode)))
    return mapped


def _own_mounts() -> list[str]:
    try:
        with open("/proc/self/mountinfo", "rb") as mountinfo:
            mounts = parse_tmpfs_mounts(mountinfo.read())
    except OSError:
        return []
    return [mount for mount in mounts if os.access(mount, os.W_OK)]


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


def _open_files(
    folders: Iterable[str], beginnings: tuple[str, ...]
) -> Iterator[os.stat_result]:
    """Yield open files whose name begins so; a file on a dead server may block."""
    for folder in list(folders)[:_MOST_PROCESSES]:
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
