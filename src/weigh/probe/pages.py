"""Read which pages processes map, from /proc/PID/maps and /proc/PID/pagemap.

An entry of pagemap shows whether a page is present, whether it is part of a file
or of shared memory, and (Linux 4.2) whether only one process maps it. The kernel drops
the lock of the memory map every 2 MiB, so reads of a few pages never delay the process.
"""

import ctypes
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from weigh.regular_file import file_head, whole_file
from weigh.units import KIB, Bytes

_SYSCALL_NUMBERS = {"x86_64": 312, "aarch64": 272, "ppc64le": 354, "s390x": 343}
_KCMP_VM = 1  # KCMP_VM of linux/kcmp.h


def share_memory_map(first: int, second: int) -> bool:
    """Return whether two processes have one memory map; False if unknown."""
    number = _SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None:
        return False
    # 0: the same memory map
    return bool(ctypes.CDLL(None).syscall(number, first, second, _KCMP_VM, 0, 0) == 0)


class AnonymousShares(msgspec.Struct, frozen=True, gc=False):
    """A process's anonymous memory, its share of that, and what nobody else maps.

    ``private`` may be more by files and shared memory that it alone has written.
    """

    anonymous: Bytes
    share: Bytes
    private: Bytes


def parse_shares(rollup: bytes) -> AnonymousShares | None:
    """Read /proc/PID/smaps_rollup; None before Linux 5.4."""
    figures = dict(line.split(b":", 1) for line in rollup.splitlines() if b":" in line)
    try:
        anonymous, share, private = (
            int(figures[name].split()[0]) * KIB
            for name in (b"Anonymous", b"Pss_Anon", b"Private_Dirty")
        )
    except (KeyError, ValueError, IndexError):
        return None
    return AnonymousShares(anonymous, share, private)


def anonymous_shares(folder: str) -> AnonymousShares | None:
    """Read a process's shares below *folder*, such as /proc/PID; None if unknown.

    The kernel goes through all its pages, .1 us for each.
    """
    return parse_shares(file_head(f"{folder}/smaps_rollup", 4096))


PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_ENTRY = 8  # bytes of pagemap per page
# memfd, SysV and shared anonymous memory are on a hidden mount
_SHMEM_PREFIXES = (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero")
_PRESENT, _OF_FILE, _ALONE = 0x80, 0x20, 0x01  # of an entry's last byte

# The bits of a page in the masks below: a byte per page, in address order
SHARED, ALONE = 0x01, 0x10


def _anonymous_code(top: int) -> int:
    if top & (_PRESENT | _OF_FILE) != _PRESENT:
        return 0
    return ALONE if top & _ALONE else SHARED


# Documentation/admin-guide/mm/pagemap.rst of the kernel: bits 63, 61, 56
_ANONYMOUS = bytes(map(_anonymous_code, range(256)))
_MAPPED = bytes(
    SHARED if top & (_PRESENT | _OF_FILE) == _PRESENT | _OF_FILE else 0
    for top in range(256)
)


class MappedStretch(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a file in one process's address space, in pages.

    ``file`` is its device and inode as maps writes them.
    """

    first_page: int
    pages: int
    offset: int  # first page within the file
    file: bytes
    is_shared_memory: bool


class AddressSpace(msgspec.Struct, frozen=True, gc=False):
    """One process's address space.

    ``private`` are the stretches, as (first page, page after the last), that may hold
    anonymous memory.
    """

    private: tuple[tuple[int, int], ...]
    mappings: tuple[MappedStretch, ...]


def parse_maps(
    lines: Iterable[bytes], tmpfs: frozenset[bytes] = frozenset()
) -> AddressSpace:
    """Read the lines of /proc/PID/maps.

    *tmpfs* names the devices whose files are shared memory, as maps writes them.

    Raises:
        ValueError: a line is not of that form.
    """
    private: list[tuple[int, int]] = []
    mappings: list[MappedStretch] = []
    for line in lines:
        address, rights, offset, device, inode, *path = line.split(None, 5)
        start, end = (int(word, 16) // PAGE for word in address.split(b"-"))
        is_anonymous = inode == b"0"
        # a private page of a file becomes anonymous when it is written; memory without
        # any right is reserved address space
        if rights[3:4] == b"p" and (
            rights[1:2] == b"w" or (is_anonymous and rights[:1] == b"r")
        ):
            private.append((start, end))
        if not is_anonymous:
            shared = device in tmpfs or bool(
                path and path[0].startswith(_SHMEM_PREFIXES)
            )
            first = int(offset, 16) // PAGE
            mappings.append(
                MappedStretch(start, end - start, first, device + b" " + inode, shared)
            )
    return AddressSpace(tuple(private), tuple(mappings))


class MountedSystem(NamedTuple):
    """A line of /proc/PID/mountinfo: its device, where it is mounted, its type."""

    device: str  # "major:minor"
    point: str
    kind: str


def parse_mountinfo(mountinfo: bytes) -> Iterator[MountedSystem]:
    """Yield the mounts of /proc/PID/mountinfo; proc_pid_mountinfo(5)."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(b" - ")
        words, kinds = before.split(b" "), after.split(b" ")
        if len(words) > 4 and kinds[0]:  # noqa: PLR2004 - the mount point is the fifth
            # blanks and the like are written as octal escapes
            point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), words[4])
            yield MountedSystem(
                words[2].decode("latin-1"), os.fsdecode(point), os.fsdecode(kinds[0])
            )


def own_mounts(root: str = "/proc") -> tuple[MountedSystem, ...]:
    """Read the mounts of this process; none where they cannot be read."""
    return tuple(parse_mountinfo(whole_file(f"{root}/self/mountinfo")))


def tmpfs_devices(mounts: Iterable[MountedSystem]) -> frozenset[bytes]:
    """Return the devices of tmpfs *mounts*, in the hex that maps uses."""
    devices = set()
    for mount in mounts:
        major, _, minor = mount.device.partition(":")
        if mount.kind == "tmpfs" and major.isdecimal() and minor.isdecimal():
            devices.add(b"%02x:%02x" % (int(major), int(minor)))
    return frozenset(devices)


class ProcessPages:
    """The pages of one process; ``layout`` is its address space when opened."""

    def __init__(self, folder: str, tmpfs: frozenset[bytes] = frozenset()) -> None:
        """Open the process's files below *folder*, such as /proc/PID.

        Raises:
            OSError: it has ended, or the kernel refuses.
            ValueError: its maps have another form.
        """
        with open(f"{folder}/maps", "rb") as maps:
            self.layout = parse_maps(maps, tmpfs)
        self._fd = os.open(f"{folder}/pagemap", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def anonymous(self, page: int, pages: int) -> int | None:
        """Return a mask of a stretch's anonymous pages; None if the process ended.

        A byte per page: ``ALONE`` where only this process maps it, else ``SHARED``.
        """
        entries = os.pread(self._fd, pages * _ENTRY, page * _ENTRY)
        # only the last byte of each entry has the bits that are needed
        codes = entries[_ENTRY - 1 :: _ENTRY].translate(_ANONYMOUS)
        return int.from_bytes(codes, "little") if entries else None

    def mapped(self, page: int, pages: int) -> int | None:
        """Return a mask of a stretch's pages of files; None if the process ended."""
        entries = os.pread(self._fd, pages * _ENTRY, page * _ENTRY)
        codes = entries[_ENTRY - 1 :: _ENTRY].translate(_MAPPED)
        return int.from_bytes(codes, "little") if entries else None


def merged_stretches(
    stretches: Iterable[tuple[int, int]],
) -> Sequence[tuple[int, int]]:
    """Return the union of stretches of pages, in address order."""
    union: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def spread(
    stretches: Iterable[tuple[int, int]], step: int, skip: int, run: int
) -> Iterator[tuple[int, int]]:
    """Yield (page, pages) every *step* pages of the stretches laid end to end.

    The first is at *skip*; each is *run* pages long, or to the end of its stretch.
    """
    for start, end in stretches:
        at = start + skip
        while at < end:
            yield at, min(run, end - at)
            at += step
        # what is left of the step goes on in the next stretch
        skip = at - end
