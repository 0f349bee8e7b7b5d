"""Small programs that know their own peak memory, CPU time or writes by construction.

    python programs.py KIND [--truth FILE] [--scale S] [--seconds S] [--file PATH]

Each ends by writing its truth as JSON: ``{"kind": ..., "peak_memory": bytes}`` and so
on. ``--scale 0.25`` shrinks every allocation, for tests on a small machine.

How the peak is known. An allocation is a fresh mapping of a known size in which every
page is touched. To it comes what the interpreter holds anyway, the base: 10 MiB or so
beside 256 MiB to 1 GiB, so that an error in it hardly shows. A single process reads its
base (RssAnon + RssFile + RssShmem in /proc/self/status) just before it allocates. In a
tree of forks nobody executes a new program, so all map the same files and share the
root's base copy-on-write: the base counts once, and each child adds only the pages
it has had copied (Private_Dirty in /proc/self/smaps_rollup, read before it allocates)
and what it allocates itself.

Standard library only; Linux only.
"""

import argparse
import json
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence

from forks import burn, daemonise, fork, together, wait
from pages import (
    MIB,
    allocate,
    make_file,
    read,
    reserve,
    resident,
    shared_file,
    touch,
    unshared,
)

HOLD = 0.05  # seconds; the interval of a 20 Hz sampler
WRITTEN = 60_000_000

Truth = dict[str, float]


def main() -> int:
    """Run one kind and write down its truth."""
    parser = argparse.ArgumentParser(description="Run a program of known usage.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--truth", help="file for the truth as JSON (or stdout)")
    parser.add_argument("--scale", type=float, default=1.0, help="of all allocations")
    parser.add_argument("--seconds", type=float, default=0.2, help="to hold a peak")
    parser.add_argument("--processes", type=int, default=10, help="for work")
    parser.add_argument("--file", help="to map or to write; for m, writes")
    options = parser.parse_args()
    if options.kind in {"m", "writes"} and not options.file:
        parser.error(f"{options.kind} needs --file PATH")
    truth = json.dumps({"kind": options.kind, **KINDS[options.kind](options)})
    if options.truth is None:
        print(truth)
    else:
        with open(options.truth, "w", encoding="utf-8") as file:
            file.write(truth + "\n")
    return 0


# One process


def a(options: argparse.Namespace) -> Truth:
    """Climb to 1 GiB in 16 steps; the peak is the top step."""
    size, base = _scaled(1024, options), resident()
    memory = reserve(size)
    for start in range(0, size, size // 16):
        touch(memory, start, start + size // 16)
        time.sleep(0.02)
    time.sleep(options.seconds)
    return {"peak_memory": base + size}


def b(options: argparse.Namespace) -> Truth:
    """Hold 512 MiB for 50 ms between two idle stretches."""
    size, base = _scaled(512, options), resident()
    time.sleep(0.4)
    memory = allocate(size)
    time.sleep(HOLD)
    memory.close()
    time.sleep(0.4)
    return {"peak_memory": base + size}


# Children


def c(options: argparse.Namespace) -> Truth:
    """Run 30 children of 96 MiB one after another, 20 ms each: one is the peak."""
    size, base = _scaled(96, options), resident()
    largest = max(together([_holder(size)], hold=0.02) for _ in range(30))
    return {"peak_memory": base + largest}


def c2(options: argparse.Namespace) -> Truth:
    """Run a single child of 256 MiB for 50 ms while nothing else happens."""
    size, base = _scaled(256, options), resident()
    time.sleep(0.6)
    own = together([_holder(size)], hold=HOLD)
    time.sleep(0.6)
    return {"peak_memory": base + own}


def d(options: argparse.Namespace) -> Truth:
    """Share 1 GiB copy-on-write with 4 forks that only read it: it counts once."""
    size, base = _scaled(1024, options), resident()
    memory = allocate(size)

    def reader() -> int:
        read(memory)
        return unshared()

    return {"peak_memory": base + size + together([reader] * 4, hold=options.seconds)}


def e(options: argparse.Namespace) -> Truth:
    """Map 1 GiB of /dev/shm in 2 processes, both touching all of it: once."""
    size = _scaled(1024, options)
    return _share(size, hold=options.seconds, parts=[(0, size), (0, size)])


def e2(options: argparse.Namespace) -> Truth:
    """Map 1 GiB of /dev/shm in 2 processes, each touching its own half: the whole."""
    size = _scaled(1024, options)
    halves = [(0, size // 2), (size // 2, size)]
    return _share(size, hold=options.seconds, parts=halves)


def f(options: argparse.Namespace) -> Truth:
    """Let a daemon (double fork, setsid) hold 496 MiB while the leader waits idly.

    The intermediate process is gone by then: the leader's base counts, and what the
    daemon adds to it.
    """
    size, base = _scaled(496, options), resident()
    reading, writing = os.pipe()

    def daemon() -> None:
        own = unshared() + size
        memory = allocate(size)
        time.sleep(options.seconds)
        memory.close()
        os.write(writing, str(own).encode())

    daemonise(daemon)
    os.close(writing)
    return {"peak_memory": base + int(os.read(reading, 64))}


def f2(options: argparse.Namespace) -> Truth:
    """Let the daemon of *f* start only once the leader is gone.

    Alone by then, it is the whole tree: its own base and its allocation. It writes
    the truth itself, because it outlives the leader.
    """
    size = _scaled(496, options)
    reading, writing = os.pipe()
    if daemonise(None):
        os.close(reading)
        os._exit(0)  # closes the last writing end: the daemon's cue
    os.close(writing)
    os.read(reading, 1)
    time.sleep(HOLD)
    base = resident()
    memory = allocate(size)
    time.sleep(options.seconds)
    memory.close()
    return {"peak_memory": base + size}


def k(options: argparse.Namespace) -> Truth:
    """Hold 256 MiB in each of 4 children at once: the sum of them."""
    size, base = _scaled(256, options), resident()
    return {"peak_memory": base + together([_holder(size)] * 4, hold=options.seconds)}


def m(options: argparse.Namespace) -> Truth:
    """Map a 256 MiB file in 2 processes, each beside 64 MiB of its own: the file once.

    The kernel can drop the file's pages; other jobs that map it too change nothing.
    """
    private, size = _scaled(64, options), _scaled(256, options)
    make_file(options.file, size)
    base = resident()
    with open(options.file, "rb") as file:
        memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)

    def reader() -> int:
        own = unshared() + private
        KEPT.append(allocate(private))
        read(memory)
        return own

    own = together([reader] * 2, hold=options.seconds)
    return {"peak_memory": base + size + own, "file": size}


# CPU time, writes, and process trees


def cpu(_: argparse.Namespace) -> Truth:
    """Burn 15 ms in each of 100 waited-for children; the kernel's own sum is true."""
    for _child in range(100):
        wait(fork(burn))
    own, children = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    return {"cpu_time": seconds, "processes": 101}


def nowait(_: argparse.Namespace) -> Truth:
    """Burn 80 ms in each of 20 children nobody waits for; each reports its own sum.

    With SIGCHLD ignored the kernel reaps them and adds their time to no parent.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    reading, writing = os.pipe()

    def child() -> None:
        burn(0.08)
        os.write(writing, f"{time.process_time()}\n".encode())

    for _child in range(20):
        fork(child)
    os.close(writing)
    with open(reading, encoding="ascii") as reports:
        seconds = sum(float(line) for line in reports)
    return {"cpu_time": seconds + time.process_time(), "processes": 21}


def writes(options: argparse.Namespace) -> Truth:
    """Write 60,000,000 bytes to a file, which must be on a disk (not tmpfs)."""
    block = bytes(1_000_000)
    with open(options.file, "wb", buffering=0) as file:
        file.writelines(block for _ in range(WRITTEN // len(block)))
    return {"write_bytes": WRITTEN}


def spawn1500(_: argparse.Namespace) -> Truth:
    """Fork and reap 1,500 children that do nothing."""
    for _child in range(1500):
        wait(fork(int))
    return {"processes": 1501}


def tree10(options: argparse.Namespace) -> Truth:
    """Keep 10 idle processes, this one and 9 children, for some seconds."""
    together([unshared] * 9, hold=options.seconds)
    return {"processes": 10}


def work(options: argparse.Namespace) -> Truth:
    """Keep processes at work: each copies shared pages, takes memory and frees it.

    Together they copy 256 MiB in the time, so a new peak is possible at any look.
    """
    count, until = options.processes, time.monotonic() + options.seconds
    shared = allocate(64 * MIB)
    copied = min(len(shared), 256 * MIB // count) >> 12 << 12

    def worker() -> None:
        started, at = time.monotonic(), 0
        while (now := time.monotonic()) < until:
            share = (now - started) / (until - started)
            end = int(copied * share) >> 12 << 12
            touch(shared, at, end)
            at = end
            allocate(MIB // 4).close()
            time.sleep(0.025)

    workers = [fork(worker) for _ in range(count - 1)]
    worker()
    for worker_pid in workers:
        wait(worker_pid)
    return {"processes": count}


def mapper(options: argparse.Namespace) -> Truth:
    """Map and unmap 1 MiB every half millisecond, with 2 GiB that a fork copies.

    Who reads this process's page table keeps it waiting: the longest wait is in ms.
    """
    size = _scaled(2048, options)
    memory = reserve(size)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # as many entries as can be
    touch(memory, 0, size)
    until = time.monotonic() + options.seconds

    def copier() -> None:
        at = 0
        while time.monotonic() < until and at < size:
            touch(memory, at, at + MIB)
            at += MIB
            time.sleep(0.005)

    copying, longest = fork(copier), 0.0
    while time.monotonic() < until:
        began = time.perf_counter()
        mmap.mmap(-1, MIB).close()
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.0005)
    wait(copying)
    return {"stall": 1000 * longest}


KINDS: dict[str, Callable[[argparse.Namespace], Truth]] = {
    kind.__name__: kind
    for kind in (
        *(a, b, c, c2, d, e, e2, f, f2, k, m),
        *(cpu, nowait, writes, spawn1500, tree10, work, mapper),
    )
}


# What several kinds do


def _scaled(mebibytes: int, options: argparse.Namespace) -> int:
    """Return a size in bytes, in whole 16 MiB, so that halves and steps are even."""
    return max(1, round(mebibytes * float(options.scale) / 16)) * 16 * MIB


KEPT: list[mmap.mmap] = []


def _holder(size: int) -> Callable[[], int]:
    """Return a body for a child that holds *size* bytes until it ends."""

    def hold() -> int:
        own = unshared() + size
        KEPT.append(allocate(size))
        return own

    return hold


def _share(size: int, *, hold: float, parts: Sequence[tuple[int, int]]) -> Truth:
    """Let one child a part touch that part of one shared file; its pages count once."""
    base = resident()
    memory = mmap.mmap(shared_file(size), size, flags=mmap.MAP_SHARED)

    def toucher(start: int, end: int) -> Callable[[], int]:
        def part() -> int:
            own = unshared()
            touch(memory, start, end)
            return own

        return part

    own = together([toucher(*part) for part in parts], hold=hold)
    return {"peak_memory": base + size + own}


if __name__ == "__main__":
    sys.exit(main())
