"""Run a command and measure its process tree on any system.

For macOS, Windows, and a Linux that hides /proc. There even psutil may have no figures,
and only the kernel's accounting at the end is left. A peak that the system keeps is
used; everything else is sampled.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Self, TypeAlias

import msgspec

from weigh.errors import SIGNAL_BASE, UsageError
from weigh.measure.launcher import launch_error
from weigh.measure.series import is_sampled_memory_growing, thin_samples, thin_series
from weigh.model.record import (
    MeasuringCost,
    PeakMemory,
    RunMeasurement,
    TreeSample,
    Usage,
)
from weigh.probe.psutil_tree import ProcessTotals, PsutilModule, PsutilTree, TreeReading
from weigh.units import KIB, Bytes, Seconds

_CREDIT = 0.05  # a short run needs some samples too


class CpuBudget:
    """CPU time earned as a share of the elapsed time, with some credit."""

    def __init__(
        self, share: float, current_time: Seconds, credit: Seconds = _CREDIT
    ) -> None:
        self._share = share
        self._credit = credit
        self._left = credit
        self._at = current_time

    def spend(self, cost: Seconds, current_time: Seconds) -> None:
        """Subtract *cost* from the budget."""
        self._earn(current_time)
        self._left -= cost

    def wait(self, current_time: Seconds) -> Seconds:
        """Return the seconds until the budget is positive again."""
        self._earn(current_time)
        return max(0.0, -self._left / self._share)

    def _earn(self, current_time: Seconds) -> None:
        earned = (current_time - self._at) * self._share
        # credit is limited, so that a long idle time does not pay for a burst later
        self._left = min(self._credit, self._left + earned)
        self._at = current_time


_MOST_SAMPLES = 4000  # at so many samples, half of them are dropped


class KernelPeak(msgspec.Struct, frozen=True):
    """The kernel's peak of the largest single process.

    Up to ``floor`` it may be the launching process's own memory.
    """

    size: Bytes
    floor: Bytes = 0

    @property
    def exact(self) -> Bytes | None:
        """The size, if it is certainly the job's."""
        return self.size if self.size > self.floor else None


class PortableSamples:
    """The samples of a run, and their maxima so far."""

    def __init__(self) -> None:
        self.samples: list[TreeSample] = []
        self.looks = 0  # readings taken
        self.largest: Bytes = 0
        self.unshared: Bytes = 0  # of what no two processes share
        self.virtual: Bytes | None = None  # None: not known on this system
        self.high: Bytes = 0  # of the most that each process is known to have held
        self.top: TreeSample | None = None
        self.unread = 0  # processes whose memory could not be read

    def add(self, time: Seconds, seen: TreeReading) -> None:
        """Add one reading."""
        self.looks += 1
        self.unread = max(self.unread, seen.unread)
        if seen.processes == 0:
            return
        sample = TreeSample(time, seen.memory, seen.cpu_time, seen.processes)
        self.samples.append(sample)
        if len(self.samples) >= _MOST_SAMPLES:
            # half as many, so that thinning is rare
            self.samples = thin_samples(self.samples, _MOST_SAMPLES // 2)
        self.largest = max(self.largest, seen.largest_process)
        self.unshared = max(self.unshared, seen.unshared or 0)
        self.high = max(self.high, seen.memory_high)
        if seen.virtual_memory is not None:
            self.virtual = max(self.virtual or 0, seen.virtual_memory)
        if self.top is None or seen.memory > self.top.memory:
            self.top = sample


def peak_memory(
    seen: PortableSamples,
    largest: KernelPeak | None,
    *,
    processes: int,
    interval: Seconds,
) -> PeakMemory | None:
    """Join the samples with the kernel's figure of the *largest* process.

    The bounds are valid unless several processes peaked at once between samples, or
    short processes were never seen.
    """
    exact = largest.exact if largest is not None else None
    sampled = seen.top.memory if seen.top is not None else 0
    value = max(sampled, exact or 0)
    # a process larger than any that was sampled lived between two samples
    unseen = max(0, largest.size - seen.largest) if largest is not None else 0
    high = max(value, (seen.high if processes > 1 else sampled) + unseen)
    # one process: the kernel's own peak is the truth, above every sample
    if exact is not None and processes == 1:
        high = value
    if high == 0:
        return None
    at = seen.top.time if seen.top is not None and sampled == value else None
    return PeakMemory(
        value=value or high,
        low=min(value, max(seen.largest, exact or 0, seen.unshared)),
        high=high,
        anonymous=None,
        shared=None,
        file=None,
        source=_portable_source(seen, exact, processes=processes, interval=interval),
        time=at,
        certainty="exact" if high == value and exact is not None else "guessed",
    )


def _portable_source(
    seen: PortableSamples, exact: Bytes | None, *, processes: int, interval: Seconds
) -> str:
    every = f"every {round(interval * 1000)} ms"
    if seen.top is None:
        known = "launcher floor" if exact is None else "largest process only"
        return f"kernel: {known}"
    if processes > 1:
        return (
            f"psutil: sum of resident sets, sampled {every}; "
            "shared pages counted more than once"
        )
    if exact is not None:
        return "kernel: peak of the one process"
    return f"psutil: peak of the one process, read {every}"


Checkpoint: TypeAlias = Callable[[RunMeasurement], None]

_SHARE = 0.005  # of a core, for finding processes and for reading them each
_FIRST_INTERVAL = 0.005  # seconds, then twice as many each time up to the interval
_GRACE = 5.0  # seconds between TERM and KILL for orphans
_FIRST_CHECKPOINT = 0.2  # seconds
_CHECKPOINT_INTERVAL = 10.0  # seconds
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_LEFT_TO_TERMINAL = ("SIGINT", "SIGBREAK")  # these reach the job directly
_ENDING = ("SIGTERM", "SIGHUP", "SIGINT", "SIGBREAK")
_BLOCK = 512  # what ru_inblock counts in
_ENDED_BY_CTRL_C = 0xC000013A  # the exit code on Windows


def run_portable_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    interval: Seconds = 0.05,
    wait_orphans: bool = True,
    checkpoint: Checkpoint | None = None,
) -> RunMeasurement:
    """Run *command*, in *env* if given, until all known processes have ended.

    Without *wait_orphans*, processes that outlive the command are terminated.

    Raises:
        CommandNotFoundError: the command does not exist.
        CommandNotExecutableError: it cannot be executed.
        UsageError: it contains a NUL byte.
    """
    psutil = import_psutil()
    with _CaughtSignals() as signals:
        run = _PortableRun(
            _launch_portable_command(command, env), psutil, interval, checkpoint
        )
        signals.reach(run.pass_on)
        run.watch()
        run.finish(stop_orphans=not wait_orphans)
        return run.measurement()


def import_psutil() -> PsutilModule | None:
    """Load psutil; None if it is not installed or does not work here."""
    try:
        import psutil  # noqa: PLC0415 - 29 ms, not on Linux
    except (ImportError, OSError):
        return None
    module: PsutilModule = psutil
    return module


def _launch_portable_command(
    command: Sequence[str], env: Mapping[str, str] | None
) -> "subprocess.Popen[bytes]":
    words = list(command)
    try:
        # not close_fds: descriptors meant for the job (3>file) pass through
        return subprocess.Popen(words, env=env, close_fds=False)
    except OSError as error:
        raise launch_error(words[0], error.errno or 0) from error
    except ValueError as error:
        raise UsageError("a command cannot contain a NUL byte") from error


class _CommandExit(msgspec.Struct, frozen=True):
    """How the command ended, with the kernel's figures for it and its children."""

    code: int  # below 0: ended by that signal
    at: Seconds  # seconds on the clock of `perf_counter`
    user_time: Seconds | None = None
    system_time: Seconds | None = None
    largest: KernelPeak | None = None
    read_bytes: Bytes | None = None
    write_bytes: Bytes | None = None


class _ExitWaiter(threading.Thread):
    """Sleeps until the command ends, without polling.

    wait4 returns the usage of this command; getrusage would include earlier ones.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.exit: _CommandExit | None = None
        self._process = process
        self.start()

    def run(self) -> None:
        """Wait, and store the system's figures."""
        try:
            self.exit = self._wait()
        finally:
            self.ended.set()

    def _wait(self) -> _CommandExit:
        if not hasattr(os, "wait4"):
            return _CommandExit(self._process.wait(), time.perf_counter())
        _, status, used = os.wait4(self._process.pid, 0)
        at = time.perf_counter()
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # otherwise Popen would wait in vain
        counts_blocks = sys.platform == "linux"  # macOS counts few of them
        return _CommandExit(
            code,
            at,
            user_time=used.ru_utime,
            system_time=used.ru_stime,
            largest=kernel_peak(used.ru_maxrss, sys.platform),
            read_bytes=used.ru_inblock * _BLOCK if counts_blocks else None,
            write_bytes=used.ru_oublock * _BLOCK if counts_blocks else None,
        )


def kernel_peak(ru_maxrss: int, platform: str) -> KernelPeak:
    """Read ru_maxrss: bytes on macOS, KiB elsewhere."""
    if platform == "darwin":
        return KernelPeak(ru_maxrss)
    import resource  # noqa: PLC0415 - no such module on Windows

    # a child starts with its parent's size, which exec does not reset
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return KernelPeak(ru_maxrss * KIB, floor=floor * KIB)


class _CaughtSignals:
    """Catches the signals for the job while it runs, to pass each on once.

    A signal to the whole process group reaches the job twice: Python's handlers cannot
    distinguish it from one sent to weigh alone. SIGINT is never passed on, since the
    terminal sends it to the group. Signals ignored from the start (nohup) stay ignored.
    """

    def __init__(self) -> None:
        self._before: dict[int, object] = {}
        self._early: list[int] = []
        self._take: Callable[[int], None] = self._early.append

    # from a thread, Python cannot set handlers
    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        if hasattr(signal, "SIGCHLD"):
            # if it were ignored, waiting for the command would fail
            self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for name in (*_PASSED_ON, *_LEFT_TO_TERMINAL):
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) in (signal.SIG_IGN, None):
                continue
            # a handler, not SIG_IGN: exec resets only handlers
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type] # from getsignal

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._take(number)

    def reach(self, take: Callable[[int], None]) -> None:
        """Pass signals to *take* from now on, and the earlier ones first."""
        self._take = take
        while self._early:
            take(self._early.pop(0))


class _PortableRun:
    """One measured command."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        psutil: PsutilModule | None,
        interval: Seconds,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._begun = time.perf_counter()
        self._started = time.time()
        self._own_cpu = time.process_time()
        self._pid = process.pid
        self._psutil = psutil
        # before anything waits for the command, so that its id is still valid
        self._tree = PsutilTree(process.pid, psutil) if psutil is not None else None
        self._interval = interval
        self._turn = min(_FIRST_INTERVAL, interval)
        self._finding = CpuBudget(_SHARE, 0.0)
        self._reading = CpuBudget(_SHARE, 0.0)
        self._seen = PortableSamples()
        self._checkpoint = checkpoint
        self._checkpoint_at = _FIRST_CHECKPOINT
        self._ended: Seconds | None = None
        self._end_signal: int | None = None
        self._got_second_signal = False
        self._waiter = _ExitWaiter(process)

    def watch(self) -> None:
        """Sample until the command itself ends."""
        while not self._waiter.ended.is_set():
            self._waiter.ended.wait(self._look())
        exited = self._waiter.exit
        self._ended = self._elapsed() if exited is None else exited.at - self._begun

    def finish(self, *, stop_orphans: bool) -> None:
        """Sample until the orphans have ended too, by themselves or by a signal."""
        # without psutil only the command itself is known
        if self._tree is None:
            return
        # whatever it costs: the budget may have skipped the last children
        self._tree.walk()
        self._look()
        kill_at: Seconds | None = None
        while self._tree.is_alive():
            now = self._elapsed()
            if kill_at is None and (stop_orphans or self._got_end_signal()):
                self._tree.send_signal(signal.SIGTERM)
                kill_at = now + _GRACE
            elif kill_at is not None and (now >= kill_at or self._got_second_signal):
                self._tree.kill()
            if kill_at is not None and now >= kill_at + _GRACE:
                break  # another user's process
            time.sleep(self._look())
            self._ended = self._elapsed()

    def pass_on(self, number: int) -> None:
        """Handle one signal."""
        name = signal.Signals(number).name
        if self._waiter.ended.is_set():
            # after the command, a second signal is for weigh: KILL instead of TERM
            self._got_second_signal = self._end_signal is not None
        elif name in _LEFT_TO_TERMINAL:
            return
        else:
            _send_portable_signal(self._pid, number)
        if name in _ENDING:
            self._end_signal = number

    def _got_end_signal(self) -> bool:
        """Return whether weigh, or the command directly, received an ending signal."""
        if self._end_signal is not None or self._waiter.exit is None:
            return self._end_signal is not None
        code = self._waiter.exit.code
        # a shell ends with 128 and the number of the signal that ended its command
        number = -code if code < 0 else code - SIGNAL_BASE
        ending = [getattr(signal, name, None) for name in _ENDING]
        return number in ending or code == _ENDED_BY_CTRL_C

    def _elapsed(self) -> Seconds:
        return time.perf_counter() - self._begun

    def _look(self) -> Seconds:
        """Take one sample; return the seconds until the next one."""
        if self._tree is not None:
            # finding new processes and reading known ones have budgets of their own
            if self._finding.wait(self._elapsed()) == 0:
                before = time.thread_time()
                self._tree.walk()
                self._finding.spend(time.thread_time() - before, self._elapsed())
            before = time.thread_time()
            self._seen.add(self._elapsed(), self._tree.read())
            self._reading.spend(time.thread_time() - before, self._elapsed())
        self._write_checkpoint()
        # fast at first, then at the interval
        self._turn = min(2 * self._turn, self._interval)
        return max(self._turn, self._reading.wait(self._elapsed()))

    def _write_checkpoint(self) -> None:
        now = self._elapsed()
        if self._checkpoint is not None and now >= self._checkpoint_at:
            self._checkpoint_at = now + _CHECKPOINT_INTERVAL
            self._checkpoint(self.measurement())

    def measurement(self) -> RunMeasurement:
        """Return the measurement so far."""
        ended = self._ended
        wall = self._elapsed() if ended is None else ended
        exited = None if ended is None else self._waiter.exit
        code = None if exited is None else exited.code
        return RunMeasurement(
            started=self._started,
            ended=None if ended is None else self._started + ended,
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            usage=self._usage(wall, exited),
            series=thin_series(self._seen.samples),
            monitor=self._monitor(wall),
            end_signal=self._end_signal,
        )

    def _usage(self, wall: Seconds, exited: _CommandExit | None) -> Usage:
        processes = 1 if self._tree is None else max(1, self._tree.processes)
        largest = exited.largest if exited is not None else None
        exact = None if largest is None else largest.exact
        totals = self._totals(exited)
        user, system = totals.user_time, totals.system_time
        cpu = None if user is None or system is None else user + system
        return Usage(
            wall_time=wall,
            cpu_time=cpu,
            user_time=user,
            system_time=system,
            cpus_used=None if cpu is None or not wall else cpu / wall,
            peak_memory=peak_memory(
                self._seen,
                largest,
                processes=processes,
                interval=self._real_interval(wall),
            ),
            max_process_memory=max(self._seen.largest, exact or 0) or None,
            virtual_memory=self._virtual_memory(),
            read_bytes=totals.read_bytes,
            write_bytes=totals.write_bytes,
            processes=processes,
            growing=is_sampled_memory_growing(self._seen.samples),
        )

    def _totals(self, exited: _CommandExit | None) -> ProcessTotals:
        """Return the kernel's totals plus detached processes, or sampled totals."""
        # before the end only samples are known
        if exited is None or exited.user_time is None:
            return ProcessTotals() if self._tree is None else self._tree.totals()
        accounted = ProcessTotals(
            exited.user_time,
            exited.system_time,
            exited.read_bytes,
            exited.write_bytes,
        )
        if self._tree is None:
            return accounted
        return accounted + self._tree.totals(detached_only=True)

    def _virtual_memory(self) -> Bytes | None:
        # Windows reports committed memory here, and macOS maps hundreds of GiB in every
        # process: neither is what h_vmem counts on Linux
        return self._seen.virtual if sys.platform == "linux" else None

    def _real_interval(self, wall: Seconds) -> Seconds:
        # looks that take long make it longer than was set
        return max(self._interval, wall / max(1, self._seen.looks))

    def _monitor(self, wall: Seconds) -> MeasuringCost:
        warnings = []
        if self._tree is None:
            warnings.append("psutil is missing: only the largest process was measured")
        if self._seen.unread:
            warnings.append(f"{self._seen.unread} of the processes are not readable")
        return MeasuringCost(
            cpu_time=time.process_time() - self._own_cpu,
            memory=_own_memory(self._psutil),
            samples=self._seen.looks,
            interval=self._real_interval(wall),
            warnings=tuple(warnings),
        )


def _own_memory(psutil: PsutilModule | None) -> Bytes | None:
    if psutil is None:
        return None
    try:
        return psutil.Process(os.getpid()).memory_info().rss
    except (psutil.Error, OSError):
        return None


def _send_portable_signal(pid: int, number: int) -> None:
    """Send a signal; ignore that the process has ended or changed its user."""
    try:
        os.kill(pid, number)
    except OSError:
        return
