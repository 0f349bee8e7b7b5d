"""Run a command on Linux and watch its whole process tree to the end.

One thread sleeps in sigtimedwait: a signal to pass on, a child that ended or the next
sample's time wakes it. The job's streams are its own descriptors; weigh never touches
them.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.measure import signals
from weigh.measure.launcher import Launcher
from weigh.measure.peak import PeakTracker
from weigh.measure.reduce import is_growing, thin_series
from weigh.measure.sampler import Sampler
from weigh.measure.subreaper import adopt_orphans
from weigh.model import Measurement, Monitor, Usage
from weigh.probe.cgroup import CgroupReading, read_cgroup
from weigh.probe.perf import CpuClock, open_cpu_clock
from weigh.probe.proc import ProcTree
from weigh.probe.storage import IoReading, read_reaped_io
from weigh.units import KIB, MIB, Seconds

_GRACE = 5.0  # seconds between TERM and KILL for what a told-to-end job left behind
_FIRST_CHECKPOINT = 0.2
_CHECKPOINT_INTERVAL = 10.0
_LAUNCHER_GROWTH = MIB  # the search along PATH, and how far off VmHWM's counters are
_SHORTEST_MEAN = 0.1  # seconds below which a mean over the run says nothing
_SHELL_SIGNAL_BASE = 128


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch a command.

    ``interval`` is the seconds between samples at best; ``checkpoint`` is handed what
    is known so far and the command's process id, soon after the start and every ten
    seconds; ``say`` speaks to the user while the run goes on, which only the wait for
    orphans needs.
    """

    interval: Seconds = 0.05
    wait_orphans: bool = True
    checkpoint: Callable[[Measurement, int | None], None] | None = None
    say: Callable[[str], None] | None = None


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
    launcher = launchers.pop(0) if launchers else Launcher()
    wakeup = signals.Wakeup()
    try:
        run = _Run(launcher, watch, wakeup, [waiting.pid for waiting in launchers])
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
        self._tree.besides = frozenset(besides)
        self._clock: CpuClock | None = None
        self._exit: int | None = None  # the leader's wait status
        self._ended: Seconds | None = None
        self._user = self._system = 0.0
        self._leader_stopped = False
        self._told_to_end: int | None = None
        self._kill_at: Seconds | None = None
        self._said_waiting = False
        self._reaped = 0

    def start(self, command: list[str], env: dict[str, str]) -> None:
        """Let the launcher go, with every account opened before it does."""
        if not adopt_orphans():
            self._warnings.append("cannot adopt orphans: daemons may be missed")
        self._clock = open_cpu_clock(self._leader)
        self._cgroup = read_cgroup()
        self._io = read_reaped_io()
        self._own_cpu = time.process_time()
        self._started = time.time()
        launch = self._launcher.launch(command, env)
        self._launch_cpu_time = launch.cpu_time
        self._tracker = PeakTracker(launch.peak_memory + _LAUNCHER_GROWTH)
        self._sampler = Sampler(
            self._tree, self._tracker, self._clock, self._watch.interval
        )
        self._checkpoint_at = _FIRST_CHECKPOINT

    def close(self) -> None:
        """Give back descriptors."""
        self._tree.close()
        if self._clock is not None:
            self._clock.close()

    def watch_to_the_end(self) -> None:
        """Sample, reap and pass signals on until nothing of the tree is left."""
        due = self._sampler.elapsed() + self._look()
        while self._something_left():
            now = self._sampler.elapsed()
            info = self._wakeup.wait(min(due, self._checkpoint_at) - now)
            if info is not None:
                self._take(info)
                continue
            now = self._sampler.elapsed()
            if now >= due:
                due = now + self._look()
            if now >= self._checkpoint_at:
                self._write_checkpoint(now)
        self._tracker.finish(self._sampler.elapsed())

    def _look(self) -> Seconds:
        wait = self._sampler.look()
        self._kill_when_due()
        return wait

    def _something_left(self) -> bool:
        """Tell whether to go on; see to what the leader left behind."""
        if self._exit is None:
            return True
        left = self._tree.children()
        if left is None:
            left = self._left_unseen()
        if not left:
            return False
        if self._must_stop_orphans():
            self._stop(left)
        elif not self._said_waiting and self._watch.say is not None:
            self._said_waiting = True
            self._watch.say(_waiting_for(left))
        return True

    def _left_unseen(self) -> list[int]:
        """Ask wait itself for children, where /proc will not tell who they are."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return []
        return [] if self._tree.besides else [-1]

    def _must_stop_orphans(self) -> bool:
        if not self._watch.wait_orphans or self._told_to_end is not None:
            return True
        status = self._exit or 0
        number = _signal_of(status)
        return number is not None and self._wakeup.asks_to_end(number)

    def _stop(self, pids: list[int]) -> None:
        """Send TERM once; KILL follows when the grace is over."""
        if self._kill_at is not None:
            return
        self._kill_at = self._sampler.elapsed() + _GRACE
        for pid in {*pids, *self._tree.pids()}:
            _send(pid, signal.SIGTERM)
            _send(pid, signal.SIGCONT)

    def _kill_when_due(self) -> None:
        if self._kill_at is not None and self._sampler.elapsed() >= self._kill_at:
            for pid in self._tree.pids():
                _send(pid, signal.SIGKILL)

    def _take(self, info: signal.struct_siginfo) -> None:
        """See to one signal."""
        number = info.si_signo
        if number == signal.SIGCHLD:
            self._reap()
        elif self._exit is not None:
            if self._wakeup.asks_to_end(number):
                self._hurry(number)
        elif signals.is_for_the_job(info, self._tree.pids()):
            self._pass_on(number)

    def _hurry(self, number: int) -> None:
        """Stop what was left behind; told twice, kill it."""
        if self._told_to_end is not None and self._kill_at is not None:
            self._kill_at = self._sampler.elapsed()
        self._told_to_end = number

    def _pass_on(self, number: int) -> None:
        if self._wakeup.asks_to_end(number):
            self._told_to_end = number
        if number == signal.SIGCONT and self._leader_stopped:
            # the shell's fg continues the whole group; a lone CONT finds it stopped
            self._leader_stopped = False
            if not self._tree.is_stopped(self._leader):
                return
        _send(self._leader, number)

    def _reap(self) -> None:
        """Collect every child that ended, with what it and its own children used."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._follow_stop(pid, os.WSTOPSIG(status))
                continue
            self._reaped += 1
            self._user += used.ru_utime
            self._system += used.ru_stime
            self._tracker.reap(used.ru_maxrss * KIB)
            self._ended = self._sampler.elapsed()
            if pid == self._leader:
                self._exit = status

    def _follow_stop(self, pid: int, number: int) -> None:
        """Stop with the job where a shell waits to hear of it (Ctrl-Z)."""
        if pid != self._leader:
            return
        self._leader_stopped = True
        if number == signal.SIGTSTP and signals.in_foreground():
            signals.stop_self()

    def _write_checkpoint(self, now: Seconds) -> None:
        self._checkpoint_at = now + _CHECKPOINT_INTERVAL
        if self._watch.checkpoint is not None:
            self._watch.checkpoint(self.measurement(), self._leader)

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
            series=thin_series(self._sampler.samples),
            monitor=self._monitor(),
            oom_kills=_increase(self._cgroup.oom_kills, cgroup.oom_kills),
            told_to_end=self._told_to_end,
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
        )

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
        return (
            f"sampled every {round(self._sampler.interval * 1000)} ms, shared pages "
            "once, with the kernel's high-water marks"
        )

    def _monitor(self) -> Monitor:
        reading = self._tree.reading(os.getpid())
        return Monitor(
            cpu_time=time.process_time() - self._own_cpu,
            memory=None if reading is None else reading.peak,
            samples=self._sampler.looks,
            interval=self._sampler.interval,
            warnings=tuple(self._warnings),
        )


def _send(pid: int, number: int) -> None:
    """Signal a process; one that ended, or became another user, is left alone."""
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def _signal_of(status: int) -> int | None:
    """Give the signal that ended a process, also as a shell words it: 128 + n."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    code = os.waitstatus_to_exitcode(status)
    return code - _SHELL_SIGNAL_BASE if code > _SHELL_SIGNAL_BASE else None


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _waiting_for(pids: list[int]) -> str:
    left = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
    return (
        f"the command ended and left {left} behind; waiting for the end "
        "(--no-wait-orphans stops such processes)"
    )
