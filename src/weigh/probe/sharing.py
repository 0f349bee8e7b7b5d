"""Count pages that several processes share only once.

Anonymous pages shared by fork are counted by ``Pss_Anon`` of smaps_rollup. Mapped
files and shared memory are counted by which of their pages the tree maps, read from
pagemap; plain PSS would fall whenever someone outside the tree maps the same library.

Both reads hold the process's memory map lock, so callers must space them.
"""

import ctypes
import os
from collections.abc import Iterable, Iterator

import msgspec

from weigh.units import Bytes

_SYSCALL_NUMBERS = {"x86_64": 312, "aarch64": 272, "ppc64le": 354, "s390x": 343}
_KCMP_VM = 1


def share_memory_map(first: int, second: int) -> bool:
    """Return whether two processes have one memory map; False if unknown."""
    number = _SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None:
        return False
    return bool(ctypes.CDLL(None).syscall(number, first, second, _KCMP_VM, 0, 0) == 0)


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_ENTRY = 8  # bytes of pagemap per page
_BLOCK = 8192  # pages per read: 64 KiB of pagemap keep each stall short
_MOST_PAGES = 1 << 25  # more would take half a second: LMDB maps a tebibyte
# Bit 63 (present) and bit 61 (file page or shared anonymous) of a pagemap entry lie in
# its last byte; Documentation/admin-guide/mm/pagemap.rst of the kernel.
_MAPPED = bytes(ord("1" if byte & 0xA0 == 0xA0 else "0") for byte in range(256))  # noqa: PLR2004
# memfd, SysV and shared anonymous memory are on a hidden mount
_SHMEM_PREFIXES = (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero")


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a file in one process's address space, in pages.

    ``file`` is its device and inode as maps writes them.
    """

    first_page: int
    pages: int
    offset: int
    file: bytes
    is_shared_memory: bool


class AnonymousPages(msgspec.Struct, frozen=True, gc=False):
    """One process's anonymous memory, and its ``share`` when sharers split it."""

    size: Bytes
    share: Bytes


def parse_rollup(text: bytes) -> AnonymousPages | None:
    """Read the anonymous memory in smaps_rollup; None if it is missing.

    Linux before 5.4 has Pss in place of Pss_Anon, which bounds it from above.
    """
    sizes = dict(line.partition(b":")[::2] for line in text.splitlines())
    words = [
        sizes.get(name, b"").split()[:1]
        for name in (b"Anonymous", b"Pss_Anon" if b"Pss_Anon" in sizes else b"Pss")
    ]
    if not all(word and word[0].isdigit() for word in words):
        return None
    size, share = (int(word[0]) * 1024 for word in words)
    return AnonymousPages(size, min(size, share))


def parse_maps(
    lines: Iterable[bytes], tmpfs: frozenset[bytes] = frozenset()
) -> Iterator[Mapping]:
    """Find the mappings of files and shared memory in the lines of /proc/PID/maps.

    *tmpfs* names the devices whose files are shared memory, as maps writes them.

    Raises:
        ValueError: a line is not of that form.
    """
    for line in lines:
        address, _, offset, device, inode, *path = line.split(None, 5)
        if inode == b"0":  # anonymous
            continue
        start, end = (int(word, 16) // _PAGE for word in address.split(b"-"))
        shared = device in tmpfs or bool(path and path[0].startswith(_SHMEM_PREFIXES))
        first = int(offset, 16) // _PAGE
        yield Mapping(start, end - start, first, device + b" " + inode, shared)


def parse_tmpfs_devices(mountinfo: bytes) -> frozenset[bytes]:
    """Find the tmpfs mounts' devices in mountinfo, in the hex that maps uses."""
    devices = set()
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(b" - ")
        device = fields.split()[2:3]
        if kind.startswith(b"tmpfs ") and device:
            major, _, minor = device[0].partition(b":")
            if major.isdigit() and minor.isdigit():
                devices.add(b"%02x:%02x" % (int(major), int(minor)))
    return frozenset(devices)


class FilePages:
    """The distinct file and shared-memory pages that some processes map."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        # a set of pages is one integer per block, one bit per page: union is |
        self._blocks: dict[tuple[bytes, int], int] = {}
        self._shared: set[bytes] = set()
        self._left = _MOST_PAGES
        try:
            with open(f"{root}/self/mountinfo", "rb") as mountinfo:
                self._tmpfs = parse_tmpfs_devices(mountinfo.read())
        except OSError:
            self._tmpfs = frozenset()

    def add(self, pid: int) -> tuple[Bytes, Bytes] | None:
        """Add the pages that *pid* maps; return its own (file, shared memory) bytes.

        None where refused, gone or too many.
        """
        own = {False: 0, True: 0}
        try:
            with (
                open(f"{self._root}/{pid}/maps", "rb") as maps,
                open(f"{self._root}/{pid}/pagemap", "rb", buffering=0) as pagemap,
            ):
                for mapping in parse_maps(maps, self._tmpfs):
                    self._left -= mapping.pages
                    if self._left < 0:
                        return None
                    mapped = self._add_mapping(mapping, pagemap.fileno())
                    own[mapping.is_shared_memory] += mapped * _PAGE
        except (OSError, ValueError, OverflowError):
            return None
        return own[False], own[True]

    def sizes(self) -> tuple[Bytes, Bytes]:
        """Return the bytes of distinct (file, shared memory) pages."""
        file = shared = 0
        for (name, _), pages in self._blocks.items():
            size = pages.bit_count() * _PAGE
            if name in self._shared:
                shared += size
            else:
                file += size
        return file, shared

    def _add_mapping(self, mapping: Mapping, pagemap: int) -> int:
        """Add one mapping's pages; return how many are mapped."""
        done = mapped = 0
        while done < mapping.pages:
            block, within = divmod(mapping.offset + done, _BLOCK)
            pages = min(_BLOCK - within, mapping.pages - done)
            entries = os.pread(
                pagemap, pages * _ENTRY, (mapping.first_page + done) * _ENTRY
            )
            flags = entries[_ENTRY - 1 :: _ENTRY].translate(_MAPPED)
            if b"1" in flags:
                mapped += flags.count(b"1")
                key = (mapping.file, block)
                present = int(flags, 2) << (_BLOCK - within - len(flags))
                self._blocks[key] = self._blocks.get(key, 0) | present
                if mapping.is_shared_memory:
                    self._shared.add(mapping.file)
            done += pages
        return mapped


def read_anonymous(pid: int, root: str = "/proc") -> AnonymousPages | None:
    """Read a process's anonymous memory and its share; None where refused or gone."""
    try:
        with open(f"{root}/{pid}/smaps_rollup", "rb") as rollup:
            return parse_rollup(rollup.read())
    except OSError:
        return None
