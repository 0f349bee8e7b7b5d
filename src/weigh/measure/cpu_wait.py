"""How long the threads of a tree waited for a CPU, from the kernel's schedstat files.

``/proc/PID/task/TID/schedstat`` has a thread's nanoseconds on a CPU and in the queue
for one (Documentation/scheduler/sched-stats.rst of the kernel); ``/proc/PID/schedstat``
is that of the first thread only. A thread takes its figures with it when it ends, so
the last ones seen stand for it, and the sum is scaled by how much of the exact CPU time
they cover.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from weigh.model.record import CpuWait
from weigh.probe.cgroup import group_folders
from weigh.probe.proc import STAT_BYTES, ProcessReading, usable_proc
from weigh.regular_file import file_head
from weigh.units import Seconds

_INTERVAL = 0.1  # seconds between looks: some threads are short
_SHARE = 0.0005  # of one core; many threads are looked at less often
_LEAST_COVERAGE = 0.5  # of the CPU time; what was not seen may have waited otherwise
# of a thread's life, before its first look and after its last; a wait counts at its end
_UNSEEN: Seconds = 0.2
_UNSEEN_SHARE = 0.05
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_LONGEST = 1 << 20  # bytes of /proc/stat with thousands of CPUs
_NANO = 1e-9
_MICRO = 1e-6


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
        if name == b"throttled_usec" and value.isdigit():
            return int(value) * _MICRO
        if name == b"throttled_time" and value.isdigit():  # version 1
            return int(value) * _NANO
    return 0.0


class _ThreadTimes:
    """One thread: seconds that it ran and waited, and when it was active."""

    __slots__ = ("run", "since", "until", "wait")

    def __init__(self, since: Seconds) -> None:
        self.run = self.wait = 0.0
        self.since = self.until = since

    def demand(self) -> Seconds:
        """Return the CPU time that it would have used in its life without waiting.

        While it slept it wanted no CPU: a thread that waits for Python's lock wakes up
        often, waits for a CPU, and sleeps again.
        """
        life = max(self.run + self.wait, self.until - self.since)
        slept = life - self.run - self.wait - min(_UNSEEN, _UNSEEN_SHARE * life)
        wanted = self.run + max(0.0, slept)
        return life * self.run / wanted if self.run > 0 else 0.0


class CpuWaits:
    """Follows the threads of a tree."""

    def __init__(
        self,
        *,
        proc_folder: str = "/proc",
        groups: str = "/sys/fs/cgroup",
        clock: Callable[[], Seconds] = time.thread_time,
    ) -> None:
        self._proc = usable_proc(proc_folder)
        self._groups = groups
        self._clock = clock
        self._live: dict[tuple[int, int], _ThreadTimes] = {}
        self._ended = (0.0, 0.0, 0.0)  # of ended threads: ran, waited, wanted
        self._most_threads = 0
        self._cpus: set[int] = set()
        self._met: set[int] = set()
        self._own_at_first: Seconds | None = None  # CPU seconds seen at the first look
        self._machine_at_first = self._machine()
        self._machine_at_end: tuple[Mapping[int, Seconds], Seconds] | None = None

    def look(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> Seconds:
        """Read all threads; return the seconds until the next look.

        *current_time* are seconds since the run began.
        """
        began = self._clock()
        keys = [key for reading in readings for key in self._threads_of(reading)]
        active = sum(self._follow(key, current_time) for key in keys)
        for key in self._live.keys() - set(keys):
            self._retire(key)
        self._most_threads = max(self._most_threads, active)
        if self._own_at_first is None:
            self._own_at_first, _, _ = self._seen()
        return max(_INTERVAL, (self._clock() - began) / _SHARE)

    def finish(self) -> None:
        """Note that all processes have ended."""
        for key in list(self._live):
            self._retire(key)
        self._machine_at_end = self._machine()

    def figures(self, cpu_time: Seconds | None, wall: Seconds) -> CpuWait | None:
        """Return the wait so far, for an exact *cpu_time*; None if too little was seen.

        *cpu_time* and *wall* are seconds.
        """
        run, wait, wanted = self._seen()
        if not cpu_time or wall <= 0 or run < _LEAST_COVERAGE * cpu_time:
            return None
        # by how much the threads seen fall short of the exact CPU time
        unseen = max(1.0, cpu_time / run)
        waited, wanted = wait * unseen, max(wanted * unseen, cpu_time) / wall
        (busy_before, throttled_before) = self._machine_at_first
        busy, throttled = self._machine_at_end or self._machine()
        cpus = self._cpus & busy.keys() & busy_before.keys()
        # what others kept busy of the CPUs that the tree may use
        others = sum(busy[cpu] - busy_before[cpu] for cpu in cpus)
        others = max(0.0, others - cpu_time + (self._own_at_first or 0.0)) / wall
        return CpuWait(
            time=waited,
            wanted=wanted,
            # one that mostly sleeps lost no more than its threads waited in all
            alone=max(cpu_time / wanted, wall - waited),
            threads=self._most_threads,
            cpus=len(self._cpus) or None,
            others=min(others, float(len(cpus))) if cpus else None,
            throttled=max(0.0, throttled - throttled_before),
        )

    def _seen(self) -> tuple[Seconds, Seconds, Seconds]:
        """Return the seconds that the seen threads ran, waited and wanted to run."""
        run, wait, wanted = self._ended
        for thread in self._live.values():
            run, wait = run + thread.run, wait + thread.wait
            wanted += thread.demand()
        return run, wait, wanted

    def _threads_of(self, reading: ProcessReading) -> Iterator[tuple[int, int]]:
        pid = reading.pid
        try:
            if pid not in self._met:
                self._met.add(pid)
                self._cpus |= os.sched_getaffinity(pid)
        except OSError:
            pass  # it has ended; a look at its threads shows that
        # one thread: its id is that of the process
        names = [str(pid)]
        if reading.threads > 1:
            try:
                names = os.listdir(f"{self._proc}/{pid}/task")
            except OSError:
                return
        yield from ((pid, int(name)) for name in names if name.isdecimal())

    def _follow(self, key: tuple[int, int], current_time: Seconds) -> bool:
        """Read one thread; return whether it ran or waited since the last look."""
        pid, tid = key
        seen = parse_schedstat(self._read(f"{pid}/task/{tid}/schedstat"))
        if seen is None:
            self._retire(key)
            return False
        run, wait = seen[0] * _NANO, seen[1] * _NANO
        thread = self._live.get(key)
        if thread is None or run < thread.run:  # or its number is another thread's now
            self._retire(key)
            since = max(0.0, current_time - run - wait)
            thread = self._live[key] = _ThreadTimes(since)
        is_active = (run, wait) != (thread.run, thread.wait)
        if is_active:
            thread.run, thread.wait, thread.until = run, wait, current_time
        return is_active

    def _retire(self, key: tuple[int, int]) -> None:
        """Add up a thread that has ended."""
        thread = self._live.pop(key, None)
        if thread is not None:
            run, wait, wanted = self._ended
            wanted += thread.demand()
            self._ended = run + thread.run, wait + thread.wait, wanted

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
