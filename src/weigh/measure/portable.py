"""Run a command and measure its process tree where there is no /proc: macOS, Windows.

psutil reads the tree, and the common loop watches it. The systems differ: Windows knows
every process's own peak, macOS does not; neither shows which pages are shared, what
reaches a disk, nor the CPU time of children that have ended.
"""

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from weigh.errors import UsageError
from weigh.measure.launcher import launch_error, own_peak
from weigh.measure.memory.holding import MemoryHolding
from weigh.measure.watch_loop import WatchLoop, send_signal_to_orphan
from weigh.measure.watcher import (
    TreeWatcher,
    WatchedRun,
    WatchSettings,
    kernel_measurement,
)
from weigh.model.record import RunMeasurement, Usage
from weigh.probe.own_memory import max_rss_bytes
from weigh.probe.proc import ProcessReading, ProcessTimes, ProcTree
from weigh.units import Bytes, Seconds

# of a core: a walk looks at every process of the machine, known ones are cheap to read
_WALK_SHARE = 0.005
_WALK_CREDIT = 0.2  # CPU seconds before any are earned: short runs have children too
_LONGEST_UNWALKED = 0.1  # seconds without a walk that the budget allows
_ENDED_BY_CTRL_C = 0xC000013A  # the exit code on Windows


def _signals_of_system(*names: str) -> frozenset[int]:
    """Return those of the signals that this system has."""
    return frozenset(getattr(signal, name) for name in names if hasattr(signal, name))


_LEFT_TO_TERMINAL = _signals_of_system("SIGINT", "SIGBREAK")  # they reach the job
_ENDING = _LEFT_TO_TERMINAL | _signals_of_system("SIGTERM", "SIGHUP")
_CAUGHT = _ENDING | _signals_of_system("SIGUSR1", "SIGUSR2")

# psutil has no types of its own, and its processes differ by system
PsutilProcess = Any  # equal to another one where the process id and the start are
PsutilModule = Any


class _SeenProcess(msgspec.Struct):
    """One process, and what was last read of it; a zombie has ended."""

    process: PsutilProcess
    has_ended: bool = False
    peak: Bytes = 0
    times: tuple[Seconds, Seconds] = (0.0, 0.0)  # user, system


class PsutilTree(ProcTree):
    """A process and all below it, kept in sight once they were seen.

    It is its own gauge of memory: pages count in each process. ``unread`` is how many
    processes of one look could not be read, ``spent`` the CPU seconds that finding
    processes took, which has a budget of its own.
    """

    source = "psutil: sum of resident sets; shared pages counted more than once"
    has_found_files = False

    def __init__(self, root_pid: int, psutil: PsutilModule) -> None:
        self.top = root_pid
        self.excluded = frozenset()
        self.seen = self.zombies = self.unread = 0
        self.spent: Seconds = 0.0
        self._began = time.perf_counter()
        self._walk_at = self._began
        self._psutil = psutil
        self._errors = (psutil.Error, OSError)
        self._known = {}  # of /proc: no descriptor is open, no clock is there
        self._met: dict[PsutilProcess, _SeenProcess] = {}
        self._live: dict[int, _SeenProcess] = {}  # by process id, at the last reading
        self._past = (0.0, 0.0)  # times of processes that are forgotten
        self._first: PsutilProcess | None = None
        with suppress(*self._errors):
            self._first = psutil.Process(root_pid)
            self._meet_all([self._first])

    def _meet_all(self, processes: Iterable[PsutilProcess]) -> None:
        for process in processes:
            if process not in self._met:
                self._met[process] = _SeenProcess(process)
                self.seen += 1

    def pids(self) -> list[int]:
        """Return the processes alive at the last reading."""
        return list(self._live)

    def read(self) -> list[ProcessReading]:
        """Look for new processes if that is not too soon, and read all."""
        if time.perf_counter() >= self._walk_at:
            self.walk()
        alive = [one for one in self._met.values() if not one.has_ended]
        found = map(self._read_one, alive)
        readings = [reading for reading in found if reading is not None]
        self._live = {one.process.pid: one for one in alive if not one.has_ended}
        self.unread = max(self.unread, len(self._live) - len(readings))
        return readings

    def _read_one(self, seen: _SeenProcess) -> ProcessReading | None:
        """Read one process; None if it has ended, or is not ours to read."""
        process = seen.process
        try:
            # also asks whether the pid has passed to a stranger
            seen.has_ended = not process.is_running()
            if seen.has_ended:
                return None
            with process.oneshot():
                info = process.memory_info()
                times = process.cpu_times()
        except self._errors as error:
            seen.has_ended = isinstance(error, self._psutil.NoSuchProcess)
            return None
        seen.times = times.user, times.system
        seen.has_ended = not info.rss  # a zombie has no memory
        if seen.has_ended:
            return None
        seen.peak = max(seen.peak, info.rss, getattr(info, "peak_wset", 0))
        # Windows reports committed memory as virtual, and macOS maps hundreds of GiB in
        # every process: neither is what a scheduler counts
        return ProcessReading(
            pid=process.pid,
            virtual=0,
            virtual_peak=0,
            resident=info.rss,
            peak=seen.peak,
            anonymous=info.rss,
            file=0,
            shared=0,
        )

    def walk(self) -> None:
        """Look for new processes. It costs a look at every process of the machine."""
        before = time.thread_time()
        found = {self._first, *self._below(self._first)} - {None}
        for process, seen in tuple(self._met.items()):
            if process in found:
                continue
            if seen.has_ended:  # and is no zombie, which would be met again
                self._past = _sum_of_times((self._past, seen.times))
                del self._met[process]
            else:  # its parent has ended, if it has not
                found.update(self._below(process))
        self._meet_all(found)
        self.spent += time.thread_time() - before
        now = time.perf_counter()
        age = now - self._began
        # a young run starts its processes; then as often as the budget allows
        owed = (self.spent - _WALK_CREDIT) / _WALK_SHARE - age
        self._walk_at = now + max(min(age, _LONGEST_UNWALKED), owed)

    def _below(self, process: PsutilProcess | None) -> list[PsutilProcess]:
        try:
            return [] if process is None else process.children(recursive=True)
        except self._errors:
            return []

    def reading(self, pid: int) -> ProcessReading | None:
        """Read one process, in the tree or not."""
        with suppress(*self._errors):
            return self._read_one(_SeenProcess(self._psutil.Process(pid)))
        return None

    def times(self, pid: int) -> ProcessTimes | None:
        """Return the CPU time that a process was last seen to have used."""
        seen = self._live.get(pid)
        return None if seen is None else ProcessTimes(0, sum(seen.times))

    def totals(self) -> tuple[Seconds, Seconds]:
        """Return the user and system time of all processes by their last reading."""
        return _sum_of_times((self._past, *(one.times for one in self._met.values())))

    def children(self) -> list[int] | None:
        """Return None: the children alone cost as much as the whole tree."""
        return None

    def hold(
        self, readings: Sequence[ProcessReading], best: Bytes, used: Seconds = math.inf
    ) -> MemoryHolding:
        """Return the sum of the resident sets."""
        del best, used  # a sum costs nothing more
        total = sum(reading.resident for reading in readings)
        return MemoryHolding(
            anonymous=total,
            shared=0,
            file=0,
            low=max((reading.resident for reading in readings), default=0),
            high=total,
            certainty="exact" if len(readings) <= 1 else "guessed",
        )

    def finish(self) -> None:
        """Return nothing: no account is left at the end."""


def _sum_of_times(
    times: Iterable[tuple[Seconds, Seconds]],
) -> tuple[Seconds, Seconds]:
    user, system = zip(*times, strict=True)
    return sum(user), sum(system)


def run_portable_command(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    watch: WatchSettings,
) -> RunMeasurement:
    """Run *command*, in *env* if given, until all known processes have ended.

    Of *watch* it heeds no observers, streams and processes that are excluded.

    Raises:
        CommandNotFoundError: the command does not exist.
        CommandNotExecutableError: it cannot be executed.
        UsageError: it contains a NUL byte.
    """
    import psutil  # noqa: PLC0415 - 29 ms, not on Linux

    run = _PortableRun(psutil, watch)
    with _signals_caught(run.take):
        run.start(list(command), env)
        return run.watch_to_the_end()


@contextmanager
def _signals_caught(take: Callable[[int], None]) -> Iterator[None]:
    """Catch the signals for the job while it runs, to pass each on once.

    A signal to the whole process group reaches the job twice: Python's handlers cannot
    distinguish it from one sent to weigh alone. SIGINT is never passed on, since the
    terminal sends it to the group. Signals ignored from the start (nohup) stay ignored.
    """
    before: dict[int, Any] = {}
    # from a thread, Python cannot set handlers
    if threading.current_thread() is threading.main_thread():
        if hasattr(signal, "SIGCHLD"):
            # if it were ignored, waiting for the command would fail
            before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in _CAUGHT:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                # a handler, not SIG_IGN: exec resets only handlers
                before[number] = signal.signal(number, lambda caught, _: take(caught))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _PortableRun(WatchLoop):
    """One measured command.

    A thread sleeps until it ends, and then sets ``_is_over``: nothing polls.
    """

    def __init__(self, psutil: PsutilModule, watch: WatchSettings) -> None:
        self.watch = watch
        self._psutil = psutil
        self._ended: Seconds | None = None
        self._pid: int | None = None
        self._early: list[int] = []  # signals before there was a job
        self._is_over = threading.Event()
        self._code: int | None = None  # below 0 if a signal ended it
        # the kernel's figures for it and its children: user and system time, a size
        self._times: tuple[Seconds, Seconds] = (0.0, 0.0)
        self._max_rss: Bytes = 0

    def start(self, command: list[str], env: Mapping[str, str] | None) -> None:
        """Start the command, and begin to watch it."""
        try:
            # not close_fds: descriptors meant for the job (3>file) pass through
            process = subprocess.Popen(command, env=env, close_fds=False)
        except OSError as error:
            raise launch_error(command[0], error.errno or 0) from error
        except ValueError as error:
            raise UsageError("a command cannot contain a NUL byte") from error
        # before anything waits for the command, so that its id is still valid
        self._tree = PsutilTree(process.pid, self._psutil)
        # a child starts with the size of what forked it; macOS resets that at exec
        run = WatchedRun(floor=own_peak(), gauge=self._tree)
        interval, clock = self.watch.interval, time.perf_counter
        self.begin(TreeWatcher(self._tree, interval, run, clock=clock), None)
        threading.Thread(target=self._wait_for, args=(process,), daemon=True).start()
        self._pid = process.pid
        while self._early:
            self.take(self._early.pop(0))

    def _wait_for(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            if not hasattr(os, "wait4"):
                self._code = process.wait()
                return
            # the usage of this command: getrusage would include earlier ones
            _, status, used = os.wait4(process.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
            process.returncode = self._code  # otherwise Popen would wait in vain
            self._times = used.ru_utime, used.ru_stime
            self._max_rss = max_rss_bytes(used.ru_maxrss)
        finally:
            self._is_over.set()

    def is_over(self) -> bool:
        """Return whether the command and its orphans have ended."""
        return self._ended is not None and not self.orphans.are_left()

    def sleep(self, seconds: Seconds) -> None:
        """Sleep, at most until the command ends."""
        if self._ended is not None:
            time.sleep(seconds)
            self._ended = self.watcher.elapsed()
        elif self._is_over.wait(seconds):
            self._ended = self.watcher.elapsed()
            # whatever it costs: a walk may have been put off
            self._tree.walk()
            self.watcher.tracker.reap(self._max_rss)
            code = self._code or 0
            is_ctrl_c = code == _ENDED_BY_CTRL_C
            self.note_end(-signal.SIGINT if is_ctrl_c else code, _ENDING)

    def take(self, number: int) -> None:
        """Handle one signal."""
        if self._pid is None:
            self._early.append(number)
            return
        if self._is_over.is_set():
            # after the command, a signal is for weigh
            if number in _ENDING:
                self.orphans.stop()
        elif number not in _LEFT_TO_TERMINAL:
            send_signal_to_orphan(self._pid, number)
            self.end_signal = number if number in _ENDING else self.end_signal

    def measurement(self) -> RunMeasurement:
        """Return the measurement so far."""
        watcher, ended, unread = self.watcher, self._ended, self._tree.unread
        warnings = [f"{unread} of the processes are not readable"] if unread else []
        # each is a lower bound: the kernel's times lack what nobody waited for, the
        # looks lack what processes did after the last one
        times = max(self._tree.totals(), self._times, key=sum)
        usage = Usage(
            wall_time=watcher.elapsed() if ended is None else ended,
            cpu_time=sum(times),
            user_time=times[0],
            system_time=times[1],
        )
        return watcher.joined(
            kernel_measurement(
                usage,
                watcher.started,
                None if ended is None else self._code,
                has_ended=ended is not None,
                warnings=warnings,
                end_signal=self.end_signal,
            )
        )
