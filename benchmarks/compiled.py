"""The compiled programs of tests/laws/ground_truth, and what they are run in."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(os.path.dirname(HERE), "tests", "laws", "ground_truth")
BUSY = 8  # processes that only compute, for a run under load


def compiled(name: str, folder: str) -> tuple[str, dict[str, str]]:
    """Compile truths or held_back; return the program, and its kinds with a text each.

    Exits without a C compiler.
    """
    compiler = shutil.which("cc") or sys.exit("these tables need a C compiler (cc)")
    program = os.path.join(folder, name)
    source = os.path.join(SOURCES, f"{name}.c")
    command = [compiler, "-O1", "-pthread", "-o", program, source]
    if subprocess.run(
        [*command, "-static"], check=False, capture_output=True
    ).returncode:
        subprocess.run(command, check=True)
    listed = subprocess.run([program], check=True, capture_output=True, text=True)
    lines = (line.split("\t") for line in listed.stdout.splitlines())
    return program, dict(lines)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep the machine busy with that many processes."""
    busy = [multiprocessing.Process(target=_compute) for _ in range(processes)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def _compute() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100_000))


class MemoryGroup(NamedTuple):
    """A memory cgroup for one run: what the kernel itself counts."""

    path: str
    parent: str

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Stand in it, so that what is started now begins there."""
        _write(f"{self.path}/cgroup.procs", os.getpid())
        try:
            yield
        finally:
            _write(f"{self.parent}/cgroup.procs", os.getpid())

    def limit(self, size: int) -> None:
        """Have the kernel kill what is in it when it holds more than *size*."""
        for name in (
            *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            *("memory.max", "memory.swap.max"),
        ):
            with suppress(OSError):
                _write(f"{self.path}/{name}", 0 if "swap" in name else size)

    def peak(self) -> int:
        """Return the most it held, page cache and kernel memory included."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with suppress(OSError), open(f"{self.path}/{name}", encoding="ascii") as f:
                return int(f.read())
        raise FileNotFoundError(f"no peak in {self.path}")

    def held(self) -> int:
        """Return what cannot be dropped now: without page cache."""
        with open(f"{self.path}/memory.stat", encoding="ascii") as file:
            now = {line.split()[0]: int(line.split()[1]) for line in file}
        if "total_rss" in now:
            with open(f"{self.path}/memory.kmem.usage_in_bytes", encoding="ascii") as f:
                return now["total_rss"] + now["total_shmem"] + int(f.read())
        kernel = now["kernel"] - now["slab_reclaimable"]
        return now["anon"] + now["shmem"] + kernel + now["sock"]

    def killed(self) -> int:
        """Return how many processes the kernel killed for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            with suppress(OSError), open(f"{self.path}/{name}", encoding="ascii") as f:
                return sum(
                    int(line.split()[1]) for line in f if line.startswith("oom_kill ")
                )
        return 0


def memory_group() -> MemoryGroup | None:
    """Make a memory cgroup below our own; None where that is not allowed."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers == "memory" or not controllers:
                parent = f"/sys/fs/cgroup/{controllers}{path}".rstrip("/")
                if os.path.exists(f"{parent}/memory.stat"):
                    return _below(parent)
    return None


def _below(parent: str) -> MemoryGroup | None:
    group = f"{parent}/weigh-bench.{os.getpid()}.{time.monotonic_ns()}"
    try:
        os.mkdir(group)
        _write(f"{group}/cgroup.procs", os.getpid())
        _write(f"{parent}/cgroup.procs", os.getpid())
    except OSError:
        return None
    return MemoryGroup(group, parent)


def remove(group: MemoryGroup) -> None:
    """Remove it as soon as the last process has left it."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with suppress(OSError):
            os.rmdir(group.path)
            return
        time.sleep(0.05)


def _write(path: str, value: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))
