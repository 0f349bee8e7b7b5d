"""Live processes to look at, which hold what they are told until they are let go."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from weigh.units import MIB

PRELUDE = """
import mmap, os, sys
MIB, PAGE = 1 << 20, mmap.PAGESIZE
KEPT = []
def keep(memory): KEPT.append(memory); return memory
def touch(memory, start=0, end=None):
    end = len(memory) if end is None else end
    memory[start:end:PAGE] = bytes(len(range(start, end, PAGE)))
def private(mebibytes):
    memory = mmap.mmap(-1, mebibytes * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touch(memory)
    return keep(memory)
def mapped(path):
    with open(path, "rb") as file:
        memory = keep(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    memory[::PAGE]
def ready(): os.write(1, b"r")
def wait(): return os.read(0, 1)
def fork(body):
    if os.fork() == 0:
        body(); ready(); wait(); os._exit(0)
"""


class Job:
    """One job under way: ``pid`` leads, and says when *ready* has been called."""

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def wait_for(self, calls: int) -> None:
        """Wait until ``ready()`` has been called that often more."""
        assert self._process.stdout is not None
        for _ in range(calls):
            assert self._process.stdout.read(1) == b"r", "the job failed"

    def go_on(self, waits: int) -> None:
        """Let so many ``wait()`` return."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"x" * waits)

    def end(self) -> None:
        """Close its input, which ends every wait; wait for all of it to end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()  # its processes hold the other end
        self._process.stdout.close()
        self._process.wait()

    def kill(self) -> None:
        """End all of it at once."""
        os.killpg(self.pid, signal.SIGKILL)


@contextmanager
def jobs(*codes: str, ready: int) -> Iterator[list[Job]]:
    """Run each code until the block ends; *ready* is how often each calls it."""
    started = [Job(code) for code in codes]
    try:
        for job in started:
            job.wait_for(ready)
        yield started
    except BaseException:
        for job in started:  # a process that hangs in the kernel hears of no end
            job.kill()
        raise
    finally:
        for job in started:
            job.end()


def plain_pss(pids: list[int]) -> int:
    """Add up what smaps_rollup says, which depends on who else maps the same."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            words = next(line for line in rollup if line.startswith("Pss:")).split()
        total += int(words[1]) * 1024
    return total


def write_file(path: str, mebibytes: int) -> None:
    """Write a file of distinct pages that stays in the page cache."""
    with open(path, "wb") as file:
        file.writelines(bytes([number]) * MIB for number in range(mebibytes))
        os.fsync(file.fileno())
