"""Sample a process tree at intervals, and reduce the samples to a short series."""

import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.measure.look_schedule import LookSchedule, cost_of_look
from weigh.measure.memory.gauge import TreeMemoryGauge
from weigh.measure.peak import PeakTracker
from weigh.model.record import (
    CpuWait,
    PeakMemory,
    RecordedRank,
    SampleSeries,
    TreeSample,
    Usage,
)
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.proc import IoReading, ProcessReading, ProcTree
from weigh.units import MIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.estimate import growth
    from weigh.measure import cpu_wait as measure_cpu_wait
    from weigh.measure import jvm, unreaped
    from weigh.measure import ranks as measure_ranks
    from weigh.measure import signs as measure_signs
    from weigh.measure.cpu_wait import CpuWaits
    from weigh.measure.gpu import sampler as gpu_sampler
    from weigh.measure.gpu.sampler import GpuSampler
    from weigh.measure.jvm import JvmWatch
    from weigh.measure.memory.ledger import MemoryLedger
    from weigh.measure.ranks import RankTracker
    from weigh.measure.signs import SignWatch
    from weigh.measure.unreaped import UnreapedIo
    from weigh.model.gpu import GpuUsage
    from weigh.probe import pages
    from weigh.probe.perf import CpuClock
else:  # each is imported when it is first used
    growth = lazy_module("weigh.estimate.growth")
    measure_cpu_wait = lazy_module("weigh.measure.cpu_wait")
    gpu_sampler = lazy_module("weigh.measure.gpu.sampler")
    jvm = lazy_module("weigh.measure.jvm")
    measure_ranks = lazy_module("weigh.measure.ranks")
    measure_signs = lazy_module("weigh.measure.signs")
    unreaped = lazy_module("weigh.measure.unreaped")
    pages = lazy_module("weigh.probe.pages")


class ForkFilter:
    """Inspects each new process of a tree once."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._residents: dict[int, Bytes] = {}  # bytes, at the last sample

    def sift(
        self, readings: Sequence[ProcessReading]
    ) -> tuple[Sequence[ProcessReading], Mapping[int, Bytes]]:
        """Drop vfork children; return the rest, and what each new fork inherited."""
        inherited: dict[int, Bytes] = {}
        if len(readings) > 1 and any(r.pid not in self._residents for r in readings):
            readings = self._meet(readings, inherited)
        self._residents = {reading.pid: reading.resident for reading in readings}
        return readings, inherited

    def _meet(
        self, readings: Sequence[ProcessReading], inherited: dict[int, Bytes]
    ) -> list[ProcessReading]:
        residents = {reading.pid: reading.resident for reading in readings}
        kept = []
        # only new processes have their parent read
        for reading in readings:
            pid = reading.pid
            times = None if pid in self._residents else self._tree.times(pid)
            if times is None or times.parent not in residents:
                kept.append(reading)
                continue
            # a vfork child runs in its parent's memory, which counts once, until it
            # execs
            if pages.share_memory_map(times.parent, pid):
                continue
            # read again: until a moment ago it may have been a vfork child
            times, parent = (
                self._tree.times(pid) or times,
                self._tree.times(times.parent),
            )
            # the parent may have changed since the fork: at most what it held at either
            # look
            if parent is not None and times.is_fork_of(parent):
                before = self._residents.get(times.parent, 0)
                inherited[pid] = max(before, residents[times.parent])
            # it may have been a vfork child still when it was read
            kept.append(self._tree.reading(pid) or reading)
        return kept


_TIMES_INTERVAL = 0.5  # seconds between reads of CPU time where there is no perf
_IDLE_CPU_TIME = 1e-4  # seconds; enough to touch some 400 KiB
_UNSEEN_CPU_TIME = 1e-3  # seconds, of processes while the perf clock stands still
_IDLE_CHANGE = 4 * MIB  # bytes; an idle tree changes by less
_MOST_SAMPLES = 4096
_FIRST_WAIT_LOOK = 0.15  # seconds; a shorter run loads nothing for it
_FIRST_SIGN = 0.5  # seconds
_GPU_INTERVAL = 0.05  # seconds; NVML calls cost more than /proc


class RunSampler:
    """Takes the samples of one run; ``samples`` is thinned as it grows."""

    def __init__(  # noqa: PLR0913 - keyword-only but for four
        self,
        tree: ProcTree,
        tracker: PeakTracker,
        cpu_clock: "CpuClock | None",
        interval: Seconds,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        started: Seconds | None = None,
        ranks: "RankTracker | None" = None,
        ledger: "MemoryLedger | None" = None,
        is_alone: bool = True,
        is_brief: bool = False,
    ) -> None:
        """Start; the run may have *started* earlier, on *clock*.

        *ledger* is the kernel's account of the tree, if there is one. Without
        *is_alone*, another tree of weigh's is sampled at the same time. If *is_brief*,
        only memory and ranks are sampled, and fewer samples kept.
        """
        self.samples: list[TreeSample] = []
        self.looks = 0
        self.interval = interval
        self.most_cpu_time: Seconds = 0.0
        self._tree = tree
        self._tracker = tracker
        self._ranks = ranks
        self._unreaped: UnreapedIo | None = None
        self._waits: CpuWaits | None = None
        self._jvms: JvmWatch | None = None
        self._signs: SignWatch | None = None
        self._is_brief = is_brief
        self._most_samples = _MOST_SAMPLES // 4 if is_brief else _MOST_SAMPLES
        self._waits_at = float("inf") if is_brief else _FIRST_WAIT_LOOK
        self._signs_at = float("inf") if is_brief else _FIRST_SIGN
        self.before: dict[int, bytes] = {}  # schedstats of what was there before
        self._fork_filter = ForkFilter(tree)
        self._gauge = TreeMemoryGauge(tree, clock, ledger, is_alone=is_alone)
        self._cpu_clock = cpu_clock
        self._clock = clock
        self._started = clock() if started is None else started
        self._schedule = LookSchedule(interval)
        # it no longer counts the job, so that it cannot show idleness
        self._cpu_clock_stands = False
        self._clocks: Mapping[int, Seconds] = {}  # of an idle tree's processes
        self._counted: Seconds = 0.0  # CPU seconds at the last look
        # seconds; so that the first look reads them
        self._times_read: Seconds = -_TIMES_INTERVAL

    def elapsed(self) -> Seconds:
        """Return the seconds since the run began."""
        return self._clock() - self._started

    def look(self) -> Seconds:
        """Take one sample; return the seconds until the next one."""
        counted = None if self._cpu_clock is None else self._cpu_clock.read()
        # no CPU time means no new memory: the look may be skipped
        is_idle = (
            counted is not None
            and counted - self._counted <= _IDLE_CPU_TIME
            and not self._cpu_clock_stands
        )
        if is_idle and self._works_unseen():
            is_idle, self._cpu_clock_stands = False, True
        self._schedule.begin_look(is_idle=is_idle)
        if is_idle and self._schedule.may_skip(self.elapsed()):
            self._repeat(counted)
            return self._schedule.least_wait()
        # a look that imports a module costs more than looks do
        modules = len(sys.modules)
        before, spent = time.thread_time(), self._gauge.spent
        readings, inherited = self._fork_filter.sift(self._tree.read())
        now = self.elapsed()
        cpu_time = counted if self._cpu_clock else self._cpu_time(now, readings)
        # without a clock, the wall time is the only bound of what the job used
        used = now if cpu_time is None else cpu_time
        held = self._gauge.hold(readings, self._tracker.best, used)
        # a clock that stands shows no limit of growth
        exact = None if self._cpu_clock_stands else counted
        sample = self._tracker.look(now, readings, held, inherited, exact)
        self._keep(sample, cpu_time)
        self._counted = counted or 0.0
        self._clocks = {}
        # a single process is no distributed run, and weigh itself waits for it
        if len(readings) > 1 or self._ranks is not None:
            self._sample_ranks(readings)
            if not self._is_brief:
                self._sample_io(readings)
        self._look_at_programs(now, readings)
        self.looks += 1
        # counting shared pages has its own budget
        cost = time.thread_time() - before - (self._gauge.spent - spent)
        cost = cost_of_look(cost, has_loaded=len(sys.modules) > modules)
        # it has changed although it used no CPU time: the clock is wrong
        if is_idle and _has_changed(self.samples[-2:]):
            self._cpu_clock_stands = True
        # nothing was seen, so the next look must not be skipped
        looked_at = now if readings else float("-inf")
        return self._schedule.wait_after(looked_at, self.elapsed(), cost, used)

    def _works_unseen(self) -> bool:
        """Return whether processes ran although the perf clock stood still.

        The kernel ends the perf events of a program that may not be read.
        """
        now = self._tree.clocks()
        self._clocks = before = self._clocks or now
        ran = sum(now[pid] - before[pid] for pid in now if pid in before)
        return ran > _UNSEEN_CPU_TIME

    def _repeat(self, counted: Seconds | None) -> None:
        """Repeat the last sample: starting a process or touching memory takes CPU."""
        now, last = self.elapsed(), self.samples[-1]
        held = min(last.memory, self._tracker.held_last())  # without spikes before it
        self._keep(msgspec.structs.replace(last, time=now, memory=held), counted)
        self.looks += 1

    def finish(self) -> None:
        """Note that all processes have ended, and what the kernel's account keeps."""
        now = self.elapsed()
        held = self._gauge.finish()
        if held is not None:
            # the group's account is left, though its processes are gone
            self._tracker.look(now, (), held)
        if self._waits is not None:
            self._waits.finish()
        clock = None if self._cpu_clock_stands else self._cpu_clock
        self._tracker.finish(now, None if clock is None else clock.read())

    def reached_interval(self) -> Seconds:
        """Return the mean seconds between looks, never below the interval set."""
        return max(self.interval, self.elapsed() / max(1, self.looks))

    @property
    def has_found_files(self) -> bool:
        """Whether memory was found that no process maps."""
        return self._gauge.has_found_files

    @property
    def method(self) -> str:
        """The description of how memory was measured."""
        every = f"every {round(self.reached_interval() * 1000)} ms"
        return f"{self._gauge.source}; {every}"

    def ranks(self, gpus: Sequence["GpuUsage"] = ()) -> tuple[RecordedRank, ...]:
        """Return the ranks of a distributed run, each with its peak, also on *gpus*."""
        return () if self._ranks is None else self._ranks.ranks(gpus)

    def _sample_ranks(self, readings: Sequence[ProcessReading]) -> None:
        if self._ranks is None:
            self._ranks = measure_ranks.RankTracker(self._tree)
        self._ranks.look(readings)

    def _sample_io(self, readings: Sequence[ProcessReading]) -> None:
        if self._unreaped is None:
            self._unreaped = unreaped.UnreapedIo(self._tree)
        self._unreaped.look(readings)

    def _look_at_programs(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> None:
        if current_time >= self._waits_at:
            self._sample_waits(current_time, readings)
        if (
            current_time >= self._signs_at
        ):  # many threads: their waits are seldom looked at
            self._look_for_signs(current_time, readings)

    def _sample_waits(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> None:
        if self._waits is None or self._jvms is None:
            self._waits = measure_cpu_wait.CpuWaits(before=self.before)
            self._jvms = jvm.JvmWatch()
        self._jvms.look(readings)
        self._waits_at = current_time + self._waits.look(current_time, readings)

    def cpu_wait(self, cpu_time: Seconds | None, wall: Seconds) -> CpuWait | None:
        """Return how long threads waited for a CPU, for an exact *cpu_time*."""
        return None if self._waits is None else self._waits.figures(cpu_time, wall)

    def _look_for_signs(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> None:
        if self._signs is None:
            self._signs = measure_signs.SignWatch(os.environ)
        self._signs.look(current_time, readings)
        self._signs_at = self._signs.next_look

    def with_programs(self, usage: Usage) -> Usage:
        """Add what is known of the programs of the run."""
        signs = self._signs
        return msgspec.structs.replace(
            usage,
            jvm=None if self._jvms is None else self._jvms.largest(),
            sign=None if signs is None else signs.sign,
            cache=None if signs is None else signs.cache,
        )

    def unreaped_io(self) -> IoReading:
        """Return the storage traffic of processes that nobody waited for."""
        return IoReading(0, 0) if self._unreaped is None else self._unreaped.total()

    def _keep(self, sample: TreeSample, cpu_time: Seconds | None) -> None:
        self.samples.append(
            TreeSample(
                sample.time,
                sample.memory,
                cpu_time,
                sample.processes,
            )
        )
        if len(self.samples) >= self._most_samples:
            # of each two the larger stays, so that no peak is lost
            pairs = zip(self.samples[::2], self.samples[1::2], strict=False)
            self.samples = [_larger_sample(*pair) for pair in pairs]

    def _cpu_time(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> Seconds | None:
        """Add up the live processes' CPU time, at most every half second."""
        if current_time - self._times_read < _TIMES_INTERVAL:
            return None
        self._times_read = current_time
        times = [self._tree.times(reading.pid) for reading in readings]
        # the sum falls when processes end, so the largest one is kept
        total = sum(each.cpu_time for each in times if each is not None)
        self.most_cpu_time = max(self.most_cpu_time, total)
        return total


def _larger_sample(tree_sample: TreeSample, other: TreeSample) -> TreeSample:
    """Return the larger of two samples, with the least memory of both."""
    larger = tree_sample if tree_sample.memory >= other.memory else other
    return msgspec.structs.replace(
        larger, memory_low=min(_low(tree_sample), _low(other))
    )


def _low(sample: TreeSample) -> Bytes:
    return sample.memory if sample.memory_low is None else sample.memory_low


def _has_changed(samples: Sequence[TreeSample]) -> bool:
    """Return whether more has changed between two samples than an idle tree can."""
    sizes = [sample.memory for sample in samples]
    return max(sizes) - min(sizes) > _IDLE_CHANGE or samples[0].processes != (
        samples[-1].processes
    )


def start_gpu_sampler(
    interval: Seconds, pids: Callable[[], list[int]]
) -> "GpuSampler | None":
    """Start sampling the visible GPUs, if there are any, without waiting for them.

    The driver's start takes some 30 ms and up to seconds; a job that has just been
    started needs longer until it holds memory of a GPU.
    """
    if not gpu_may_be_present(os.environ):
        return None
    sampler = gpu_sampler.GpuSampler(
        lambda: open_probe(os.environ), max(interval, _GPU_INTERVAL), pids=pids
    )
    sampler.start(wait=0.0)
    return sampler


_COLUMNS = 500  # columns of a series
_STRETCHES = 60  # of a run: the least memory of each is kept
_SHORTEST_RATE = 0.02  # seconds between two readings of CPU time
_WORTH_ASKING = 20  # samples; avoids the import for the shortest runs


def peak_in_samples(
    samples: Sequence[TreeSample], peak: PeakMemory | None
) -> list[TreeSample]:
    """Return the samples with *peak* as their largest, at its time.

    A sample may show a spike of one process that the settled peak does not have, and
    a peak may settle after its sample: a record has one figure for both.
    """
    if peak is None or not samples:
        return list(samples)
    kept = [_limited_to(sample, peak.value) for sample in samples]
    # no sample reached the peak: put it at the nearest one
    if peak.time is not None and max(one.memory for one in kept) < peak.value:
        gaps = [abs(one.time - peak.time) for one in kept]
        place = gaps.index(min(gaps))
        kept[place] = msgspec.structs.replace(kept[place], memory=peak.value)
    return kept


def _limited_to(sample: TreeSample, most: Bytes) -> TreeSample:
    if sample.memory <= most:
        return sample
    return msgspec.structs.replace(sample, memory=most)


def thin_series(samples: Sequence[TreeSample], limit: int = _COLUMNS) -> SampleSeries:
    """Return samples as columns of at most *limit* (3 or more) values, peaks included.

    The busy CPUs are the mean between the two readings around a sample; None where
    unknown, or where an ended process took its CPU time away.
    """
    kept = thin_samples(samples, limit)
    return SampleSeries(
        t=tuple(sample.time for sample in kept),
        memory=tuple(sample.memory for sample in kept),
        cpu=_cpus_busy(samples, kept),
        low=_lows(samples),
    )


def _lows(samples: Sequence[TreeSample]) -> tuple[Bytes, ...]:
    """Return the least memory in each stretch of the run; empty if it is short.

    A stretch without a sample has what the sample before it left.
    """
    if len(samples) < _WORTH_ASKING or samples[-1].time <= samples[0].time:
        return ()
    start, duration = samples[0].time, samples[-1].time - samples[0].time
    least: list[Bytes | None] = [None] * _STRETCHES
    for sample in samples:
        place = int((sample.time - start) / duration * _STRETCHES)
        at, low = min(place, _STRETCHES - 1), _low(sample)
        before = least[at]
        least[at] = low if before is None else min(before, low)
    lows: list[Bytes] = []
    for one in least:
        lows.append(lows[-1] if one is None else one)
    return tuple(lows)


def thin_samples(samples: Sequence[TreeSample], limit: int) -> list[TreeSample]:
    """Keep at most *limit* (3 or more) samples: first, last, and the peaks between.

    Each of equal stretches of time keeps its largest sample. Repeated thinning affects
    all parts alike.
    """
    if len(samples) <= limit:
        return list(samples)
    start, end = samples[0].time, samples[-1].time
    stretches = limit - 2
    per_second = stretches / (end - start) if end > start else 0.0
    largest: dict[int, TreeSample] = {}
    for sample in samples[1:-1]:
        stretch = min(int((sample.time - start) * per_second), stretches - 1)
        if stretch not in largest or sample.memory > largest[stretch].memory:
            largest[stretch] = sample
    return [samples[0], *largest.values(), samples[-1]]


def _cpus_busy(
    samples: Sequence[TreeSample], kept: Sequence[TreeSample]
) -> tuple[float | None, ...]:
    known = _cpu_readings(samples)
    times = [time for time, _ in known]
    busy: list[float | None] = []
    before: tuple[Seconds, Seconds] | None = None
    waiting = 0
    for sample in kept:
        # CPU time may be read less often than memory: use the last reading before
        at = bisect_right(times, sample.time) - 1
        now = known[at] if at >= 0 else None
        rate = _rate(before, now)
        busy.append(rate)
        if now is not None and now == before:
            waiting += 1  # for the next reading, whose rate is that of this time too
            continue
        busy[len(busy) - 1 - waiting :] = [rate] * (waiting + 1)
        before, waiting = now, 0
    return tuple(busy)


def _cpu_readings(samples: Sequence[TreeSample]) -> list[tuple[Seconds, Seconds]]:
    """Return (time, CPU time), without readings that closely follow another.

    A reading takes some milliseconds itself, so that over a shorter time one process
    would seem to keep several CPUs busy.
    """
    known: list[tuple[Seconds, Seconds]] = []
    for sample in samples:
        if sample.cpu_time is None:
            continue
        if not known or sample.time - known[-1][0] >= _SHORTEST_RATE:
            known.append((sample.time, sample.cpu_time))
    return known


def _rate(
    before: tuple[Seconds, Seconds] | None, now: tuple[Seconds, Seconds] | None
) -> float | None:
    if before is None or now is None:
        return None
    elapsed, used = now[0] - before[0], now[1] - before[1]
    # the sum falls when a process ends and takes its time with it
    return used / elapsed if elapsed > 0 and used >= 0 else None


def is_sampled_memory_growing(samples: Sequence[TreeSample]) -> bool | None:
    """Return whether the run ended while its memory was still rising.

    None for a run that is too short. Only the record's series is used, so that a later
    reader of the record gets the same answer.
    """
    if len(samples) < _WORTH_ASKING:
        return None
    kept = thin_samples(samples, _COLUMNS)
    times = [sample.time for sample in kept]
    return growth.is_memory_growing(times, [sample.memory for sample in kept])
