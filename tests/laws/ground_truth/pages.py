"""Memory of known size: mappings with every page touched, and what is held anyway."""

import mmap
import os

MIB = 1 << 20


def reserve(size: int) -> mmap.mmap:
    """Map private memory: address space only, until it is touched."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def allocate(size: int) -> mmap.mmap:
    """Map private memory and touch all of it."""
    memory = reserve(size)
    touch(memory, 0, size)
    return memory


def touch(memory: mmap.mmap, start: int, end: int) -> None:
    """Write one byte to every page."""
    memory[start : end : mmap.PAGESIZE] = bytes((end - start) // mmap.PAGESIZE)


def read(memory: mmap.mmap) -> None:
    """Read one byte of every page."""
    memory[:: mmap.PAGESIZE]


def make_file(path: str, size: int) -> None:
    """Write a file of that size, unless it is there."""
    if not os.path.exists(path) or os.path.getsize(path) != size:
        with open(path, "wb") as file:
            file.writelines(bytes(MIB) for _ in range(size // MIB))


def shared_file(size: int) -> int:
    """Open an unnamed file in /dev/shm, or a memfd where that is too small."""
    space = os.statvfs("/dev/shm")
    if space.f_bavail * space.f_frsize > size:
        descriptor = os.open("/dev/shm", os.O_RDWR | os.O_TMPFILE, 0o600)
    else:
        descriptor = os.memfd_create("weigh-ground-truth")
    os.ftruncate(descriptor, size)
    return descriptor


def resident() -> int:
    """Return this process's resident bytes, of every sort."""
    return sum(
        _kilobytes("/proc/self/status", field)
        for field in ("RssAnon", "RssFile", "RssShmem")
    )


def unshared() -> int:
    """Return the bytes that only this process holds: what it has had copied."""
    return _kilobytes("/proc/self/smaps_rollup", "Private_Dirty")


def _kilobytes(path: str, field: str) -> int:
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(field)
