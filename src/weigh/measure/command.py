"""Run a command on Linux and watch its whole process tree to the end.

One thread sleeps in sigtimedwait: a signal to pass on, a child that ended or the next
sample's time wakes it. The job's streams are its own descriptors; weigh never touches
them.
"""

import os
import resource  # noqa: F401 - wait4 would load it when descriptors have run out
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from weigh.measure import signals
from weigh.measure.launcher import Launcher
from weigh.measure.orphans import Orphans, adopt_orphans, send
from weigh.measure.peak import PeakTracker
from weigh.measure.reduce import is_growing, thin_series
from weigh.measure.sampler import Sampler, start_gpu_sampler
from weigh.model.gpu import GpuUsage
from weigh.model.record import Measurement, Monitor, Series, Usage
from weigh.probe.cgroup import CgroupReading, read_cgroup, read_memory_limit
from weigh.probe.perf import CpuClock, open_cpu_clock
from weigh.probe.proc import ProcTree, is_own_proc
from weigh.probe.storage import IoReading, read_reaped_io
from weigh.units import KIB, MIB, Seconds


class Seen(Protocol):
    """A run that goes on; seconds since it began."""

    def elapsed(self) -> Seconds:
        """Give the time."""

    def cpu_time(self) -> Seconds | None:
        """Give the CPU time that it took so far."""

    def gpu_idle(self) -> Seconds | None:
        """Give since when no GPU was busy; None without any that says."""

    def leader(self) -> int | None:
        """Give the command's process id, for as long as it runs."""

    def set_aside(self, pid: int) -> None:
        """Leave a process of weigh's own out of the run."""


_FIRST_CHECKPOINT = 0.2
_CHECKPOINT_INTERVAL = 10.0
_WITNESS_AFTER = 0.08  # seconds; by then most programs have handlers for signals
_BLIND_INTERVAL = 1.0  # seconds between looks after one that failed
_LAUNCHER_GROWTH = MIB  # the search along PATH, and how far off VmHWM's counters are
_SHORTEST_MEAN = 0.1  # seconds below which a mean over the run says nothing
_ANY_CHANGE = os.WNOHANG | os.WUNTRACED | os.WCONTINUED


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch a command.

    ``interval`` is the seconds between samples at best; ``checkpoint`` is handed what
    is known so far and the command's process id, soon after the start and every ten
    seconds; ``say`` speaks to the user while the run goes on, which only the wait for
    orphans needs; ``grace`` is the seconds between TERM and KILL for orphans that are
    to be stopped. ``along`` looks at the run now and then, and gives the seconds until
    it wants to again; ``streams`` are what the job is to open in place of weigh's, and
    ``besides`` processes of weigh's own that are no part of it.
    """

    interval: Seconds = 0.05
    wait_orphans: bool = True
    grace: Seconds = 5.0
    checkpoint: Callable[[Measurement, int | None], None] | None = None
    say: Callable[[str], None] | None = None
    along: "Callable[[Seen], Seconds] | None" = None
    streams: dict[int, str] | None = None
    besides: tuple[int, ...] = ()


def run_command(
    command: Sequence[str],
    env: Mapping[str, str],
    watch: Watch,
    launchers: list[Launcher],
) -> Measurement:
    """Run *command* with *env* added, until nothing of its tree is left.

    Uses up one of *launchers*, or forks one where none is left.

    Raises:
        CommandNotFoundError: no such command.
        CommandNotExecutableError: it cannot be executed.
        OSError: no process can be made.
    """
    while launchers and not launchers[0].is_waiting():  # somebody killed it
        launchers.pop(0)
    launcher = launchers.pop(0) if launchers else Launcher()
    wakeup = signals.Wakeup()
    try:
        besides = [*watch.besides, *(waiting.pid for waiting in launchers)]
        run = _Run(launcher, watch, wakeup, besides)
        try:
            run.start(list(command), dict(env))
            run.watch_to_the_end()
            return run.measurement()
        finally:
            run.close()
    finally:
        wakeup.restore()


class _Run:
    """One command under watch."""

    def __init__(
        self,
        launcher: Launcher,
        watch: Watch,
        wakeup: signals.Wakeup,
        besides: list[int],
    ) -> None:
        self._launcher = launcher
        self._leader = launcher.pid
        self._watch = watch
        self._wakeup = wakeup
        self._warnings: list[str] = []
        self._tree = ProcTree(os.getpid())
        self._besides = frozenset(besides)
        self._tree.besides = self._besides
        self._clock: CpuClock | None = None
        self._exit: int | None = None  # the leader's wait status
        self._ended: Seconds | None = None
        self._user = self._system = 0.0
        self._has_witness = self._has_failed = False
        self._leader_stopped = self._told_to_stop = False
        self._told_to_end: int | None = None
        self._reaped = 0

    def start(self, command: list[str], env: dict[str, str]) -> None:
        """Let the launcher go, with every account opened before it does."""
        if not adopt_orphans():
            self._warnings.append("cannot adopt orphans: daemons may be missed")
        if self._tree.reading(os.getpid()) is None:
            self._warnings.append(_why_no_tree())
        self._clock = open_cpu_clock(self._leader)
        self._gpus = start_gpu_sampler(self._watch.interval, self._tree.pids)
        self._cgroup = read_cgroup()
        self._io = read_reaped_io()
        self._own_cpu = time.process_time()
        self._started = time.time()
        launch = self._launcher.launch(command, env, self._watch.streams)
        self._launch_cpu_time = launch.cpu_time
        self._tracker = PeakTracker(launch.peak_memory + _LAUNCHER_GROWTH)
        self._sampler = Sampler(
            self._tree, self._tracker, self._clock, self._watch.interval
        )
        self._orphans = Orphans(
            self._tree, self._sampler.elapsed, self._watch.grace, self._watch.say
        )
        self._checkpoint_at = _FIRST_CHECKPOINT
        self._along_at = float("inf") if self._watch.along is None else 0.0
        for number in self._wakeup.missed():
            self._pass_on(number)
            self._follow(number)

    def close(self) -> None:
        """Give back descriptors."""
        self._tree.close()
        if self._gpus is not None:
            self._gpus.stop()
        if self._clock is not None:
            self._clock.close()

    def watch_to_the_end(self) -> None:
        """Sample, reap and pass signals on until nothing of the tree is left."""
        due = self._sampler.elapsed() + self._look()
        while self._exit is None or self._orphans.are_left():
            now = self._sampler.elapsed()
            wakes = (due, self._checkpoint_at, self._orphans.wake_at, self._along_at)
            info = self._wakeup.wait(min(wakes) - now)
            if info is not None:
                self._take(info)
                continue
            now = self._sampler.elapsed()
            if now >= due:
                due = now + self._look()
            if now >= self._checkpoint_at:
                self._write_checkpoint(now)
            if now >= self._along_at:
                self._look_along()
        self._tracker.finish(self._sampler.elapsed())

    def _look(self) -> Seconds:
        """Take a sample; give the seconds until the next."""
        self._call_witness()
        try:
            return self._sampler.look()
        except Exception as error:  # noqa: BLE001 - whatever it is, the job goes on
            self._measuring_failed(error)
            return _BLIND_INTERVAL

    def _look_along(self) -> None:
        """Let who reads along do so."""
        if self._watch.along is None:
            return
        try:
            self._along_at = self.elapsed() + self._watch.along(self)
        except Exception as error:  # noqa: BLE001 - as for a look
            self._along_at = float("inf")
            self._measuring_failed(error)

    def elapsed(self) -> Seconds:
        """Give the seconds since it began."""
        return self._sampler.elapsed()

    def cpu_time(self) -> Seconds | None:
        """Give the CPU time so far, as well as it is known."""
        return self._cpu_times()[2]

    def gpu_idle(self) -> Seconds | None:
        """Give since when no GPU was busy; None without any that says."""
        return None if self._gpus is None else self._gpus.idle()

    def leader(self) -> int | None:
        """Give the command's process id, for as long as it runs."""
        return self._leader if self._exit is None else None

    def set_aside(self, pid: int) -> None:
        """Leave a process of weigh's own out of the run."""
        self._besides |= {pid}
        self._tree.besides |= {pid}

    def _measuring_failed(self, error: Exception) -> None:
        if not self._has_failed:  # saying so once is enough
            self._has_failed = True
            self._warnings.append(f"measuring failed: {type(error).__name__}: {error}")

    def _call_witness(self) -> None:
        late = self._sampler.elapsed() >= _WITNESS_AFTER
        if late and self._exit is None and not self._has_witness:
            self._has_witness = True
            self._tree.besides |= {self._wakeup.call_witness() or 0}

    def _take(self, info: signal.struct_siginfo) -> None:
        """See to one signal."""
        number = info.si_signo
        if number == signal.SIGCHLD:
            self._reap()
        elif self._exit is not None:
            self._take_after_the_end(number)
        else:
            if self._wakeup.is_for_the_job(info, self._tree.pids()):
                self._pass_on(number)
            self._follow(number)

    def _follow(self, number: int) -> None:
        """Note what TSTP and CONT ask of weigh itself."""
        if number == signal.SIGTSTP:
            self._told_to_stop = True
            self._stop_too()
        elif number == signal.SIGCONT:
            self._told_to_stop = False

    def _take_after_the_end(self, number: int) -> None:
        if self._wakeup.asks_to_end(number):
            self._orphans.stop()
        elif number == signal.SIGTSTP:
            signals.stop_self()

    def _pass_on(self, number: int) -> None:
        if self._wakeup.asks_to_end(number):
            self._told_to_end = number
        send(self._leader, number)

    def _reap(self) -> None:
        """Collect every child that ended, with what it and its own children used."""
        while True:
            try:
                pid, status, used = os.wait4(-1, _ANY_CHANGE)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                if pid == self._leader:
                    self._leader_stopped = os.WIFSTOPPED(status)
                    self._stop_too()
                continue
            if pid in self._tree.besides:
                continue
            self._reaped += 1
            self._user += used.ru_utime
            self._system += used.ru_stime
            self._tracker.reap(used.ru_maxrss * KIB)
            self._ended = self._sampler.elapsed()
            if pid == self._leader:
                self._end(status)

    def _end(self, status: int) -> None:
        """Note the end of the command; decide about what it left behind."""
        self._exit = status
        self._wakeup.dismiss_witness()
        self._tree.besides = self._besides
        number = signals.ended_by(status)
        if (
            not self._watch.wait_orphans
            or self._told_to_end is not None
            or (number is not None and self._wakeup.asks_to_end(number))
        ):
            self._orphans.stop()

    def _stop_too(self) -> None:
        """Stop with the job, if weigh was told to or a shell waits to hear of it.

        Else nobody would continue weigh after a job that was stopped on its own.
        """
        if self._leader_stopped and (self._told_to_stop or signals.in_foreground()):
            signals.stop_self()

    def _write_checkpoint(self, now: Seconds) -> None:
        self._checkpoint_at = now + _CHECKPOINT_INTERVAL
        if self._watch.checkpoint is None:
            return
        try:
            self._watch.checkpoint(self.measurement(), self._leader)
        except Exception as error:  # noqa: BLE001 - as for a look
            self._measuring_failed(error)

    def measurement(self) -> Measurement:
        """Sum up what is known by now."""
        wall = self._sampler.elapsed() if self._exit is None else self._ended
        status = self._exit
        code = None if status is None else os.waitstatus_to_exitcode(status)
        cgroup = read_cgroup()
        return Measurement(
            started=self._started,
            ended=None if status is None else self._started + (wall or 0.0),
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            usage=self._usage(wall or 0.0, cgroup),
            series=self._series(),
            monitor=self._monitor(),
            oom_kills=cgroup.kills_since(self._cgroup),
            told_to_end=self._told_to_end,
            ranks=self._sampler.ranks(),
        )

    def _usage(self, wall: Seconds, cgroup: CgroupReading) -> Usage:
        user, system, cpu = self._cpu_times()
        io = self._io_since_start()
        rose = (cgroup.peak or 0) > (self._cgroup.peak or 0)
        return Usage(
            wall_time=wall,
            cpu_time=cpu,
            user_time=user,
            system_time=system,
            cpus_used=None if cpu is None or wall < _SHORTEST_MEAN else cpu / wall,
            peak_memory=self._tracker.peak(self._method()),
            max_process_memory=self._tracker.max_process(),
            virtual_memory=self._tracker.virtual or None,
            cgroup_peak=cgroup.peak if rose else None,
            read_bytes=None if io is None else io.read_bytes,
            write_bytes=None if io is None else io.write_bytes,
            processes=max(self._tree.seen, self._reaped, 1),
            growing=is_growing(self._sampler.samples),
            gpus=self._gpu_usages(),
            memory_limit=read_memory_limit() if self._exit else None,
        )

    def _gpu_usages(self) -> tuple[GpuUsage, ...]:
        if self._gpus is None:
            return ()
        return self._gpus.usages() if self._exit is None else self._gpus.stop()

    def _series(self) -> Series:
        series = thin_series(self._sampler.samples)
        if self._gpus is None:
            return series
        from weigh.measure.gpu.account import gpu_columns  # noqa: PLC0415 - with GPUs

        began = time.monotonic() - self._sampler.elapsed()
        columns = gpu_columns(self._gpus.rows(), [began + at for at in series.t])
        return msgspec.structs.replace(series, gpu_memory=columns)

    def _cpu_times(self) -> tuple[Seconds | None, Seconds | None, Seconds | None]:
        """Give (user, system, both): reaped children exactly, the others by perf."""
        counted = self._clock.read() if self._clock is not None else None
        system = max(0.0, self._system - self._launch_cpu_time)
        both = max(self._user + system, counted or 0.0, self._sampler.most_cpu_time)
        if self._exit is None:
            return None, None, both
        return self._user, system, both

    def _io_since_start(self) -> IoReading | None:
        now = read_reaped_io()
        if now is None or self._io is None or self._exit is None:
            return None
        return now.since(self._io)

    def _method(self) -> str:
        if self._tree.seen <= 1 and self._reaped <= 1:
            return "kernel high-water mark of the one process"
        return self._sampler.method

    def _monitor(self) -> Monitor:
        reading = self._tree.reading(os.getpid())
        return Monitor(
            cpu_time=time.process_time() - self._own_cpu,
            memory=None if reading is None else reading.peak,
            samples=self._sampler.looks,
            interval=self._sampler.interval,
            warnings=(*self._warnings, *(self._gpus.warnings() if self._gpus else ())),
        )


def _why_no_tree() -> str:
    """Return the warning for a run whose processes cannot be looked at."""
    if is_own_proc():
        return "cannot read /proc: the largest process alone counts"
    return "/proc shows another pid namespace: only the largest process counts"
