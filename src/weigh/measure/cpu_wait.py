"""How long the threads of a tree waited for a CPU, from the kernel's schedstat files.

``/proc/PID/task/TID/schedstat`` has a thread's nanoseconds on a CPU and in the queue
for one (Documentation/scheduler/sched-stats.rst of the kernel); ``/proc/PID/schedstat``
is that of the first thread only. A thread takes its figures with it when it ends, so
the last ones seen stand for it, and the sum is scaled by how much of the exact CPU time
they cover.

Without the wait a run takes its time less what held it up. Threads that wait at once
hold it up once: between two looks for as long as they waited each, in the mean over
the time that they were ready. While all sleep, or wait for a disk, nobody waits for a
CPU: that time stays.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from weigh.model.record import CpuWait
from weigh.probe.cgroup import group_folders
from weigh.probe.proc import STAT_BYTES, ProcessReading, usable_proc
from weigh.regular_file import file_head
from weigh.units import Seconds

_INTERVAL = 0.1  # seconds between looks: some threads are short
_SHARE = 0.0005  # of one core; many threads are looked at less often
_LEAST_COVERAGE = 0.5  # of the CPU time; what was not seen may have waited otherwise
_LONGEST_WAIT: Seconds = 0.2  # at once; the kernel counts a wait at its end
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_LONGEST = 1 << 20  # bytes of /proc/stat with thousands of CPUs
_NANO = 1e-9
# the name of the figure in version 2 and 1, and its unit in seconds
_THROTTLED = {b"throttled_usec": 1e-6, b"throttled_time": _NANO}


def parse_schedstat(text: bytes) -> tuple[int, int] | None:
    """Read (running, waiting) nanoseconds; None if it is something else."""
    words = text.split(None, 2)
    try:
        return int(words[0]), int(words[1])
    except (IndexError, ValueError):
        return None


def parse_busy(text: bytes) -> dict[int, Seconds]:
    """Read the seconds each CPU was busy since the boot from /proc/stat."""
    busy = {}
    for line in text.splitlines():
        name, *words = line.split()
        # the line of all CPUs together is called "cpu" alone
        number = name.removeprefix(b"cpu")
        if name.startswith(b"cpu") and number.isdigit() and len(words) > max(_BUSY):
            ticks = sum(int(words[at]) for at in _BUSY)
            busy[int(number)] = ticks / _CLOCK_TICKS
    return busy


def parse_throttled(text: bytes) -> Seconds:
    """Read from a group's cpu.stat how long its CPU limit held it; 0 without one."""
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name in _THROTTLED and value.isdigit():
            return int(value) * _THROTTLED[name]
    return 0.0


class CpuWaits:
    """Follows the threads of a tree."""

    def __init__(
        self,
        *,
        proc_folder: str = "/proc",
        groups: str = "/sys/fs/cgroup",
    ) -> None:
        self._proc = usable_proc(proc_folder)
        self._groups = groups
        # nanoseconds that each living thread ran and waited
        self._live: dict[tuple[int, int], tuple[int, int]] = {}
        self._ran = self._waited = 0.0  # seconds, of ended threads too
        self._looked: Seconds = 0.0
        # of the time until then no thread was seen to be ready, lately and before
        self._idle: Seconds = 0.0
        self._asleep: Seconds = 0.0
        self._held_up: Seconds = 0.0  # the run as a whole
        self._most_threads = 0
        self._cpus: set[int] = set()
        self._own_at_first: Seconds | None = None  # CPU seconds seen at the first look
        self._machine_at_first = self._machine()

    def look(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> Seconds:
        """Read all threads; return the seconds until the next look.

        *current_time* are seconds since the run began.
        """
        began = time.thread_time()
        before, self._live = self._live, {}
        spans: list[tuple[Seconds, Seconds]] = []  # ran, waited since the last look
        for pid, tid in (key for one in readings for key in self._threads_of(one)):
            seen = parse_schedstat(self._read(f"{pid}/task/{tid}/schedstat"))
            if seen is None:
                continue
            last = before.get((pid, tid), (0, 0))
            if seen[0] < last[0]:  # its number is another thread's
                last = 0, 0
            self._live[pid, tid] = seen
            if seen != last:
                ran, waited = seen[0] - last[0], seen[1] - last[1]
                spans.append((ran * _NANO, waited * _NANO))
        self._ran += sum(ran for ran, _ in spans)
        self._waited += sum(waited for _, waited in spans)
        self._add_hold_up(current_time, spans)
        self._most_threads = max(self._most_threads, len(spans))
        if self._own_at_first is None:
            self._own_at_first = self._ran
        return max(_INTERVAL, (time.thread_time() - began) / _SHARE)

    def figures(self, cpu_time: Seconds | None, wall: Seconds) -> CpuWait | None:
        """Return the wait so far, for an exact *cpu_time*; None if too little was seen.

        *cpu_time* and *wall* are seconds.
        """
        if not cpu_time or wall <= 0 or self._ran < _LEAST_COVERAGE * cpu_time:
            return None
        # by how much the threads seen fall short of the exact CPU time
        unseen = max(1.0, cpu_time / self._ran)
        # each thread is on one CPU at a time
        least = min(wall, self._asleep + cpu_time / max(1, self._most_threads))
        alone = max(least, wall - self._held_up * unseen)
        (busy_before, throttled_before) = self._machine_at_first
        busy, throttled = self._machine()
        cpus = self._cpus & busy.keys() & busy_before.keys()
        # what others kept busy of the CPUs that the tree may use
        others = sum(busy[cpu] - busy_before[cpu] for cpu in cpus)
        others = max(0.0, others - cpu_time + (self._own_at_first or 0.0)) / wall
        return CpuWait(
            time=self._waited * unseen,
            wanted=cpu_time / alone,
            alone=alone,
            threads=self._most_threads,
            cpus=len(self._cpus) or None,
            others=min(others, float(len(cpus))) if cpus else None,
            throttled=max(0.0, throttled - throttled_before),
        )

    def _add_hold_up(
        self, current_time: Seconds, spans: Sequence[tuple[Seconds, Seconds]]
    ) -> None:
        """Add what waits held up the run since the last look, of threads' *spans*."""
        passed, self._looked = current_time - self._looked, current_time
        idle = min(self._idle, _LONGEST_WAIT)
        self._asleep, left = self._asleep + self._idle - idle, idle + passed
        # long ones count for most: others began them, or slept meanwhile
        every = sum(run + wait for run, wait in spans) or 1.0
        ready = sum((run + wait) ** 2 for run, wait in spans) / every
        held = sum((run + wait) * wait for run, wait in spans) / every
        self._held_up += held * min(1.0, left / (ready or 1.0))
        self._idle = max(0.0, left - ready)

    def _threads_of(self, reading: ProcessReading) -> Iterator[tuple[int, int]]:
        pid = reading.pid
        with suppress(OSError):  # it has ended
            self._cpus |= os.sched_getaffinity(pid)
        if reading.threads <= 1:  # its id is that of the process
            yield pid, pid
            return
        with suppress(OSError):
            names = os.listdir(f"{self._proc}/{pid}/task")
            yield from ((pid, int(name)) for name in names if name.isdecimal())

    def _machine(self) -> tuple[Mapping[int, Seconds], Seconds]:
        """Return how long each CPU was busy, and how long CPU limits held our groups.

        The limit of any group above holds too: the longest stop is the tightest one's.
        """
        folders, _ = group_folders("cpu", self._proc, self._groups)
        texts = (file_head(f"{folder}/cpu.stat") for folder in folders)
        throttled = max(map(parse_throttled, texts), default=0.0)
        return parse_busy(self._read("stat", _LONGEST)), throttled

    def _read(self, name: str, size: int = STAT_BYTES) -> bytes:
        return file_head(f"{self._proc}/{name}", size)
