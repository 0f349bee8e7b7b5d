"""Watch a process tree: decide when to look, sample it, and call who else looks at it.

One watcher serves every run: `weigh run`, `--attach`, the agent of a node, the ranks of
a step, and each task of `weigh exec`. A tree goes in; usage, series and cost come out.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weigh.lazy_modules import lazy_module
from weigh.measure.memory.gauge import ForkFilter, TreeMemoryGauge
from weigh.measure.peak import PeakTracker
from weigh.measure.series import (
    MOST_COLUMNS,
    TIMES_INTERVAL,
    peak_in_samples,
    thin_samples,
    thin_series,
)
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    FileCalls,
    MeasuringCost,
    RunMeasurement,
    SampleSeries,
    TreeSample,
    Usage,
    mean_cpus,
)
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.proc import IoReading, ProcessReading, ProcTree
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.estimate import growth
    from weigh.measure import cpu_wait as measure_cpu_wait
    from weigh.measure import gpu_account, gpu_sampler, programs
    from weigh.measure import ranks as measure_ranks
    from weigh.measure.gpu_sampler import TreeGpuAccounts
    from weigh.measure.memory.ledger import MemoryLedger
    from weigh.measure.portable import PsutilTree
    from weigh.probe.perf import CpuClock
else:  # each is imported when it is first used
    growth = lazy_module("weigh.estimate.growth")
    gpu_account = lazy_module("weigh.measure.gpu_account")
    gpu_sampler = lazy_module("weigh.measure.gpu_sampler")
    measure_cpu_wait = lazy_module("weigh.measure.cpu_wait")
    measure_ranks = lazy_module("weigh.measure.ranks")
    programs = lazy_module("weigh.measure.programs")

# of one core, for looks at a tree that works: below 1 % with the counts of pages
_LOOK_SHARE = 0.005
# CPU seconds of looks before any are earned, which grow with what the job itself has
# used: they load modules and meet the processes. Forks of a job of 0.2 s of CPU must
# not cost more than a tenth of it
_FIRST_CREDIT, _MOST_CREDIT = 0.01, 0.04
_CREDIT_SHARE = 0.02  # of the job's own CPU time
_FIRST_INTERVAL = 0.002  # seconds; a run of 30 ms needs some samples too
# of the pause, at each look at an idle tree. With 2 the curve of a run that waits
# between its phases has too few points
_STRETCH = 1.25
_LONGEST_BLIND = 4.0  # seconds without a look at a tree that works, whatever it costs
# seconds; an idle tree that begins to work is seen as late as that
_LONGEST_IDLE_PAUSE = 0.5
# seconds in which an idle tree is not read: what used no CPU time holds what it held.
# Half of what an idle tree cost was reading it every 4 s
_LONGEST_IDLE_BLIND = 10.0


class LookSchedule:
    """Says when to look next, from what the looks cost and whether the tree works.

    ``pause`` is how many seconds the next look waits if it is for free.
    """

    def __init__(self, interval: Seconds) -> None:
        self.interval = interval
        self.pause = min(_FIRST_INTERVAL, interval)
        self._cost: Seconds = 0.0  # CPU time of all looks
        self._looked_at: Seconds = float("-inf")

    def begin_look(self, *, is_idle: bool) -> None:
        """Note that a look is due at a tree that has used no CPU time, or has."""
        # an idle tree waits longer, but only after the fast looks at the start
        if is_idle and self.pause >= self.interval:
            longest = max(_LONGEST_IDLE_PAUSE, self.interval)
            self.pause = min(_STRETCH * self.pause, longest)
        else:
            self.pause = min(2 * self.pause, self.interval)

    def may_skip(self, current_time: Seconds) -> bool:
        """Return whether an idle tree was looked at lately enough."""
        return current_time - self._looked_at <= _LONGEST_IDLE_BLIND

    def wait_after(
        self,
        looked_at: Seconds,
        current_time: Seconds,
        cost: Seconds,
        used: Seconds,
    ) -> Seconds:
        """Return the seconds until the look after one that cost so much CPU time.

        *used* is the CPU time that the job itself has used so far; *looked_at* is minus
        infinity if no process was there, for the next look may not be skipped.
        """
        self._looked_at = looked_at
        self._cost += max(0.0, cost)
        credit = min(_FIRST_CREDIT + _CREDIT_SHARE * used, _MOST_CREDIT)
        # seconds until the looks so far have earned their cost
        owed = (self._cost - credit) / _LOOK_SHARE - current_time
        return max(self.pause, min(owed, _LONGEST_BLIND))


ONE_PROCESS = "kernel high-water mark of the one process"
_PEAK_OF_ONE = "peak of the one process"  # as looks saw it, without /proc
_WATCHED_LATE = "watched from a later start, with the kernel's high-water marks"
_PART_COLUMNS = 200  # of the series that a node's agent sends
_IDLE_CPU_TIME = 1e-4  # seconds; enough to touch some 400 KiB
_MOST_SAMPLES = 2 * MOST_COLUMNS  # little of a node's memory
_FIRST_WAIT_LOOK = 0.15  # seconds; a shorter run loads nothing for it
_FIRST_PROGRAM_LOOK = 0.5  # seconds; as above
_GROWTH_SAMPLES = 20  # fewer show none, and need not load what looks for it

Observer = Callable[[], Seconds]  # returns the seconds until its next call
INFINITY = float("inf")


class WatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to measure a command."""

    interval: Seconds = 0.05
    """The shortest time between samples."""
    wait_orphans: bool = True
    """Wait for processes that outlive the command; else stop them."""
    checkpoint: Callable[[RunMeasurement, int | None], None] = lambda *_: None
    """Called with the measurement so far and the command's process id."""
    notify: Callable[[str], None] | None = None
    """Writes a message to the user during the run."""
    observers: tuple[Callable[["TreeWatcher"], Seconds], ...] = ()
    """Look at the run; each returns the seconds until it is to be called again."""
    streams: dict[int, str] | None = None
    """The files that the job opens in place of weigh's streams."""
    excluded: tuple[int, ...] = ()
    """Processes of weigh's own that are not part of the job."""


class WatchedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a watcher knows of its run when it starts, besides its tree."""

    floor: Bytes = 0
    """A ru_maxrss up to that may be the launcher's own."""
    cpu_clock: "CpuClock | None" = None
    leader: Callable[[], int | None] = lambda: None
    """Returns the command's process id while it runs."""
    ledger: "MemoryLedger | None" = None
    """The kernel's account of the tree, if there is one."""
    gpus: "TreeGpuAccounts | None" = None
    gauge: "PsutilTree | None" = None
    """Adds the processes up where there is no /proc; nothing else of them is read."""
    is_alone: bool = True
    """No other tree of weigh's is sampled at the same time."""
    is_brief: bool = False
    """Only memory and ranks are sampled, for the part of a node."""
    has_begun: bool = False
    """It runs already: what its threads have waited for so far is not known."""


_ANY_RUN = WatchedRun()


def kernel_measurement(  # noqa: PLR0913 - one run, fully described
    usage: Usage,
    started: float,
    code: int | None = None,
    *,
    has_ended: bool = True,
    warnings: Sequence[str] = (),
    oom_kills: int | None = None,
    end_signal: int | None = None,
) -> RunMeasurement:
    """Return what the kernel knows of a run; whoever looked at it adds the rest.

    *usage* has the kernel's figures. *code* is below 0 where a signal ended the
    command, None if it is not known. *started* is seconds since the epoch.
    """
    return RunMeasurement(
        started=started,
        ended=started + usage.wall_time if has_ended else None,
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        usage=replace(usage, cpus_used=mean_cpus(usage.cpu_time, usage.wall_time)),
        monitor=MeasuringCost(warnings=tuple(warnings)),
        oom_kills=oom_kills,
        end_signal=end_signal,
    )


def with_traffic(usage: Usage, traffic: IoReading) -> Usage:
    """Return *usage* with the kernel's counts of a run's reads and writes."""
    return replace(
        usage,
        read_bytes=traffic.read_bytes,
        # what was deleted before it was written may have been there before the run
        write_bytes=max(0, traffic.write_bytes),
        file_calls=FileCalls(
            reads=traffic.read_calls,
            writes=traffic.write_calls,
            read=traffic.read_by_calls,
            written=traffic.written_by_calls,
        ),
    )


class TreeWatcher:
    """Watches the process tree of one run; ``samples`` is thinned as it grows.

    ``trouble`` is the first error of a look or an observer; no error ends the watch.
    """

    def __init__(
        self,
        tree: ProcTree,
        interval: Seconds,
        run: WatchedRun = _ANY_RUN,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        started: Seconds | None = None,
    ) -> None:
        """Start; the run may have *started* earlier, on *clock*."""
        self.samples: list[TreeSample] = []
        self.looks = 0
        self.tree = tree
        self.tracker = PeakTracker(run.floor)
        self.leader = run.leader
        self.on_set_aside: Callable[[int], None] = lambda _pid: None
        # the most CPU seconds that were seen: of the live processes at one look, of a
        # clock given up since, of all children that are reaped
        self.most_cpu_time: Seconds = 0.0
        self.trouble: str | None = None
        self.gauge = run.gauge or TreeMemoryGauge(
            tree, clock, run.ledger, is_alone=run.is_alone
        )
        self._run = run
        self.has_finished = False
        self._gpus = run.gpus
        self._has_proc = run.gauge is None
        # each is loaded when it is first used
        self._ranks: measure_ranks.RankTracker | None = None
        if run.is_brief:
            self._ranks = measure_ranks.RankTracker(tree)
        self._waits: measure_cpu_wait.CpuWaits | None = None
        self._programs: programs.ProgramWatch | None = None
        reads_programs = self._has_proc and not run.is_brief
        self._programs_at = _FIRST_PROGRAM_LOOK if reads_programs else INFINITY
        has_waits = reads_programs and not run.has_begun
        self._waits_at = _FIRST_WAIT_LOOK if has_waits else INFINITY
        self._fork_filter = ForkFilter(tree)
        self._cpu_clock = run.cpu_clock
        self._clock = clock
        self._started = clock() if started is None else started
        # seconds since the epoch; the same origin as that of the samples
        self.started = time.time() - self.elapsed()
        self._schedule = LookSchedule(interval)
        self._look_at: Seconds = 0.0  # when the next look is due
        self._observers: dict[Observer, Seconds] = {}  # when each is due
        # an agent's start counts as well: without the job there would be none
        self._own_cpu_time = 0.0 if run.is_brief else time.process_time()
        self._clocks: Mapping[int, Seconds] = {}  # of an idle tree's processes
        self._counted: Seconds = 0.0  # CPU seconds at the last look
        # seconds; so that the first look reads them
        self._times_read: Seconds = -TIMES_INTERVAL

    def call_at(self, observer: Observer, at: Seconds) -> None:
        """Call *observer* when the run is so old, and then as often as it returns."""
        self._observers[observer] = at

    def pause(self) -> Seconds:
        """Return the seconds until a look or an observer is due."""
        return min(self._look_at, *self._observers.values(), INFINITY) - self.elapsed()

    def look_if_due(self) -> None:
        """Look at the tree, and call the observers, as far as they are due."""
        soon = self.elapsed()
        if soon >= self._look_at:
            # observers that are due before the next look need no wake of their own
            self._look_at = soon = self._called(self.look)
        for observer, at in tuple(self._observers.items()):
            if at <= soon:
                self._observers[observer] = self._called(observer)

    def _called(self, observer: Observer) -> Seconds:
        """Call an observer; return when it is due again."""
        try:
            wait = observer()
        except Exception as error:  # noqa: BLE001 - the job goes on after any error
            self._note_failure(error)
            wait = _LONGEST_BLIND
        return self.elapsed() + wait

    def _note_failure(self, error: Exception) -> None:
        # one warning is enough
        what = f"measuring failed: {type(error).__name__}: {error}"
        self.trouble = self.trouble or what

    def pids(self) -> list[int]:
        """Return the processes of the job that were alive at the last sample."""
        return self.tree.pids()

    def own_pids(self) -> tuple[int, ...]:
        """Return weigh's own processes."""
        return os.getpid(), *self.tree.excluded

    def set_aside(self, pid: int) -> None:
        """Exclude one of weigh's own processes from the measurement."""
        self.tree.excluded |= {pid}
        self.on_set_aside(pid)

    def _counted_cpu_time(self) -> Seconds | None:
        """Return what the perf clock shows; None without one."""
        return None if self._cpu_clock is None else self._cpu_clock.read()

    def cpu_time(self) -> Seconds:
        """Return the CPU time used so far, as far as it is known."""
        # both are lower bounds
        return max(self._counted_cpu_time() or 0.0, self.most_cpu_time)

    def gpu_idle(self) -> Seconds | None:
        """Return for how long no GPU was busy; None if unknown."""
        return None if self._gpus is None else self._gpus.idle()

    def elapsed(self) -> Seconds:
        """Return the seconds since the run began."""
        return self._clock() - self._started

    def look(self) -> Seconds:
        """Take one sample; return the seconds until the next one."""
        counted = self._counted_cpu_time()
        # no CPU time means no new memory: the look may be skipped
        is_idle = counted is not None and counted - self._counted <= _IDLE_CPU_TIME
        if is_idle and self._works_unseen():
            self.most_cpu_time = max(self.most_cpu_time, counted or 0.0)
            self._cpu_clock = counted = None
            is_idle = False
        self._schedule.begin_look(is_idle=is_idle)
        if is_idle and self._schedule.may_skip(self.elapsed()):
            # starting a process or touching memory takes CPU: all is as it was, without
            # the spikes before the last look
            last, held = self.samples[-1], self.tracker.held_last()
            memory = min(last.memory, held)
            self._keep(TreeSample(self.elapsed(), memory, counted, last.processes))
            wait = self._schedule.pause
        else:
            wait = self._read_tree(counted)
        self.looks += 1
        return wait

    def _read_tree(self, counted: Seconds | None) -> Seconds:
        """Read all processes; return the seconds until the next look."""
        modules, met = len(sys.modules), self.tree.seen
        before, spent = time.thread_time(), self.gauge.spent
        readings, inherited = self._fork_filter.sift(self.tree.read())
        now = self.elapsed()
        cpu_time = counted if self._cpu_clock else self._cpu_time(now, readings)
        # without a clock, the wall time is the only bound of what the job used
        used = now if cpu_time is None else cpu_time
        held = self.gauge.hold(readings, self.tracker.best, used)
        sample = self.tracker.look(now, readings, held, inherited, counted)
        self._keep(TreeSample(now, sample.memory, cpu_time, sample.processes))
        self._counted = counted or 0.0
        self._clocks = {}
        # one process is a rank of others only where an agent looks for them
        if self._ranks is not None or (self._has_proc and len(readings) > 1):
            self._ranks = self._ranks or measure_ranks.RankTracker(self.tree)
            self._ranks.look(now, readings)
        if readings and now >= self._waits_at:
            self._waits = self._waits or measure_cpu_wait.CpuWaits()
            self._waits_at = now + self._waits.look(now, readings)
        if readings and now >= self._programs_at:
            self._programs = self._programs or programs.ProgramWatch(os.environ)
            self._programs_at = now + self._programs.look(now, readings)
        # counting shared pages has its own budget
        cost = time.thread_time() - before - (self.gauge.spent - spent)
        # loading modules takes most of a second where they are not compiled, but once
        has_loaded = len(sys.modules) > modules
        # nothing was seen, or somebody new, whose rank is read at the second look, or
        # rest will show more: the next one must not be skipped
        is_known = readings and self.tree.seen == met and not held.is_open
        looked_at = now if is_known else -INFINITY
        return self._schedule.wait_after(
            looked_at, self.elapsed(), 0.0 if has_loaded else cost, used
        )

    def _works_unseen(self) -> bool:
        """Return whether processes ran although the perf clock stood still.

        The kernel ends the perf events of a program that may not be read.
        """
        now = self.tree.clocks()
        self._clocks = before = self._clocks or now
        ran = sum(now[pid] - before[pid] for pid in now if pid in before)
        # well above what passes for idle, as the two are not read at one moment
        return ran > 10 * _IDLE_CPU_TIME

    def _cpu_time(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> Seconds | None:
        """Add up the live processes' CPU time, at most every half second.

        At each look at a run that was joined: nobody reaps its processes.
        """
        pause = 0.0 if self._run.has_begun else TIMES_INTERVAL
        if current_time - self._times_read < pause:
            return None
        self._times_read = current_time
        times = [self.tree.times(reading.pid) for reading in readings]
        # the sum falls when processes end, so the largest one is kept
        total = sum(each.cpu_time for each in times if each is not None)
        self.most_cpu_time = max(self.most_cpu_time, total)
        return total

    def _keep(self, sample: TreeSample) -> None:
        self.samples.append(sample)
        if len(self.samples) >= _MOST_SAMPLES:
            self.samples = thin_samples(self.samples, _MOST_SAMPLES // 2)

    def finish(self) -> None:
        """Note that all processes have ended, and what the kernel's account keeps."""
        self.has_finished = True
        try:
            now, held = self.elapsed(), self.gauge.finish()
            if held is not None:
                # the group's account is left, though its processes are gone
                self.tracker.look(now, (), held)
            self.tracker.finish(now, self._counted_cpu_time())
        except Exception as error:  # noqa: BLE001 - as for a look
            self._note_failure(error)

    def reached_interval(self) -> Seconds:
        """Return the mean seconds between looks, never below the interval set."""
        return max(self._schedule.interval, self.elapsed() / max(1, self.looks))

    def rank_count(self) -> int:
        """Return how many ranks of a distributed run were met."""
        return 0 if self._ranks is None else self._ranks.count()

    def is_any_rank_left(self) -> bool:
        """Return whether a process of a rank was there at the last sample."""
        return self._ranks is not None and self._ranks.is_any_left()

    def joined(self, known: RunMeasurement) -> RunMeasurement:
        """Return a run whose kernel's figures are *known* with what the looks saw."""
        usage, waits = known.usage, self._waits
        # what others kept busy: before a driver is waited for
        if waits is not None:
            cpu_wait = waits.figures(usage.cpu_time, usage.wall_time)
            usage = replace(usage, cpu_wait=cpu_wait)
        gpus = self._gpu_usages()
        peak = self.tracker.peak(self._method(usage.processes or 0))
        samples = peak_in_samples(self.samples, peak)
        seen, calls = self._programs, usage.file_calls
        series, growing = self._series(samples), None
        # nobody joins the growth of a node's part: it is that of its curve. Of the
        # record's series alone, so that its later readers get the same answer
        if not self._run.is_brief and len(series.t) >= _GROWTH_SAMPLES:
            growing = growth.is_memory_growing(series.t, series.memory)
        if seen is not None:
            usage = replace(
                usage,
                jvm=seen.jvms.largest(),
                sign=seen.sign,
                cache=seen.cache,
                file_calls=None if calls is None else seen.folders.add_to(calls),
            )
        usage = replace(
            usage,
            peak_memory=peak,
            max_process_memory=self.tracker.max_process(),
            virtual_memory=self.tracker.virtual or None,
            processes=max(self.tree.seen, usage.processes or 0, 1),
            growing=growing,
            gpus=gpus,
        )
        return replace(
            known,
            usage=usage,
            series=series,
            monitor=self._cost(known.monitor.warnings),
            ranks=() if self._ranks is None else self._ranks.ranks(gpus),
        )

    def _method(self, reaped: int) -> str:
        """Describe how memory was measured, of a run whose parent *reaped* so many."""
        if self._run.has_begun:
            return _WATCHED_LATE
        is_alone = max(self.tree.seen, reaped) <= 1 and not self.tracker.has_unseen
        if is_alone and not self.gauge.has_found_files and not self._run.is_brief:
            return ONE_PROCESS if self._has_proc else _PEAK_OF_ONE
        every = f"every {round(self.reached_interval() * 1000)} ms"
        return f"{self.gauge.source}; {every}"

    def _gpu_usages(self) -> tuple[GpuUsage, ...]:
        """Return what is known of the GPUs; after the end, all."""
        if self._gpus is None:
            return ()
        return self._gpus.stop() if self.has_finished else self._gpus.usages()

    def _series(self, samples: Sequence[TreeSample]) -> SampleSeries:
        """Return the samples as columns, with those of the GPUs."""
        if self._run.is_brief:
            # which of the job's GPUs its columns would be is not known elsewhere
            return thin_series(samples, _PART_COLUMNS)
        series = thin_series(samples)
        rows = [] if self._gpus is None else self._gpus.rows()
        if not rows or not all(rows):  # the process's memory on one GPU is unknown
            return series
        # samples of GPUs are on the monotonic clock, the series on the run's
        began = time.monotonic() - self.elapsed()
        times = [began + at for at in series.t]
        columns = tuple(gpu_account.gpu_column(row, times) for row in rows)
        return replace(series, gpu_memory=columns)

    def _cost(self, warnings: Sequence[str]) -> MeasuringCost:
        """Return what measuring has cost so far, and what went wrong."""
        own = self.tree.reading(os.getpid())
        gpus = () if self._gpus is None else self._gpus.warnings()
        trouble = () if self.trouble is None else (self.trouble,)
        return MeasuringCost(
            cpu_time=time.process_time() - self._own_cpu_time,
            memory=None if own is None else own.peak,
            samples=self.looks,
            interval=self.reached_interval(),
            warnings=(*warnings, *trouble, *gpus),
        )

    def close(self) -> None:
        """Close the descriptors, and release the GPU driver."""
        self.tree.close()
        if self._gpus is not None:
            self._gpus.stop()


def start_gpu_sampler(
    interval: Seconds,
    pids: Callable[[], list[int]],
    env: Mapping[str, str] = os.environ,
    *,
    joined: bool = False,
) -> "TreeGpuAccounts | None":
    """Start sampling the GPUs visible in *env*, if any, without waiting for them.

    The driver's start takes some 30 ms and up to seconds; a job that has just been
    started needs longer until it holds memory of a GPU. One that had started before is
    *joined*.
    """
    if not gpu_may_be_present(env):
        return None
    sampler = gpu_sampler.GpuSampler(
        lambda: open_probe(env), interval, pids=pids, joined=joined
    )
    # first figures of what runs already; of a new job there are none to wait for
    sampler.start(*(() if joined else (0.0,)))
    return sampler
