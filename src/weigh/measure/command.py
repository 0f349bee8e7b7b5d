"""Run a command on Linux and measure its process tree until every process has ended.

One thread sleeps in sigtimedwait. It wakes to pass a signal on, to reap a child, or to
take the next sample. The job inherits its streams; weigh never touches them.
"""

import os
import resource  # noqa: F401 - wait4 would load it when descriptors have run out
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import msgspec

from weigh.measure import signals
from weigh.measure.launcher import JobLauncher
from weigh.measure.memory.ledger import open_ledger
from weigh.measure.orphans import CommandOrphans, adopt_orphans, send_signal_to_orphan
from weigh.measure.watcher import (
    INFINITY,
    RunCheckpoints,
    TreeWatcher,
    WatchedRun,
    WatchSettings,
    kernel_measurement,
    start_gpu_sampler,
    with_traffic,
)
from weigh.model.record import RunMeasurement, Usage
from weigh.probe.cgroup import read_cgroup, read_memory_limit
from weigh.probe.perf import open_cpu_clock
from weigh.probe.proc import ProcTree, read_reaped_io
from weigh.process_ids import is_own_proc
from weigh.units import KIB, MIB, Seconds

_WITNESS_AFTER = 0.08  # seconds; by then most programs have installed signal handlers
_LAUNCHER_GROWTH = MIB  # memory of the PATH search, and the inaccuracy of VmHWM
# wait4 also reports stops and continues, which weigh follows
_ANY_CHANGE = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT  # the status stays for the later wait


def run_command(
    command: Sequence[str],
    env: Mapping[str, str],
    watch: WatchSettings,
    launchers: list[JobLauncher],
) -> RunMeasurement:
    """Run *command* with *env* added, until all processes of its tree have ended.

    Uses one of *launchers*, or forks a new one if none is left.

    Raises:
        CommandNotFoundError: the command does not exist.
        CommandNotExecutableError: it cannot be executed.
        OSError: no process can be started.
    """
    launcher = launchers.pop(0) if launchers else JobLauncher()
    with ExitStack() as closing:
        run = _MeasuredCommand(launcher, watch, closing)
        # the launchers of later repeats are children of weigh, and not of this job
        waiting = (waiting.pid for waiting in launchers)
        run.start(list(command), dict(env), frozenset((*watch.excluded, *waiting)))
        run.watch_to_the_end()
        return run.measurement()


class _MeasuredCommand:
    """One measured command; what it opens is closed by *closing*."""

    def __init__(
        self, launcher: JobLauncher, watch: WatchSettings, closing: ExitStack
    ) -> None:
        self._launcher = launcher
        self._leader = launcher.pid
        self._watch = watch
        self._wakeup = signals.SignalWakeup()
        self._closing = closing
        self._warnings: list[str] = []
        self._tree = ProcTree(os.getpid())
        for opened in (self._wakeup, self._tree):
            closing.callback(opened.close)
        self._witness: int | None = None
        self._exit: int | None = None  # the leader's wait status
        self._ended: Seconds = 0.0  # when the last process so far was reaped
        self._user = self._system = 0.0
        self._leader_stopped = self._asked_to_stop = False
        # signal that weigh got and that asks for the end
        self._end_signal: int | None = None
        self._reaped = 0  # children reaped so far

    def start(
        self, command: list[str], env: dict[str, str], excluded: frozenset[int]
    ) -> None:
        """Open all counters, then let the launcher exec the command."""
        self._tree.excluded = excluded
        if not adopt_orphans():
            self._warnings.append("cannot adopt orphans: daemons may be missed")
        if self._tree.reading(os.getpid()) is None:
            self._warnings.append(_why_no_tree())
        # opened before exec: the counter is inherited by all that the job starts
        clock = open_cpu_clock(self._leader)
        self._ledger = open_ledger(
            self._leader, os.environ, lambda: self._tree.excluded
        )
        for opened in (clock, self._ledger):
            if opened is not None:
                self._closing.callback(opened.close)
        self._cgroup = read_cgroup()
        self._io = read_reaped_io()
        streams = self._watch.streams
        started, launcher_peak = self._launcher.launch(command, env, streams)
        self._watcher = watcher = TreeWatcher(
            self._tree,
            self._watch.interval,
            WatchedRun(
                # ru_maxrss of the job includes what the launcher held before exec
                floor=launcher_peak + _LAUNCHER_GROWTH,
                cpu_clock=clock,
                ledger=self._ledger,
                leader=lambda: self._leader if self._exit is None else None,
                gpus=start_gpu_sampler(self._watch.interval, self._tree.pids),
            ),
            started=started,
        )
        self._closing.callback(watcher.close)
        self._orphans = CommandOrphans(self._tree, watcher.elapsed, self._watch.notify)
        watcher.call_at(self._call_witness, _WITNESS_AFTER)
        self._checkpoints = RunCheckpoints(
            watcher, lambda: self._watch.checkpoint(self.measurement(), self._leader)
        )
        for observer in self._watch.observers:
            watcher.call_at(partial(observer, watcher), 0.0)
        # they came before there was a job to pass them on to
        for number in self._wakeup.missed():
            self._pass_on(number)
            self._follow(number)

    def watch_to_the_end(self) -> None:
        """Sample, reap and pass signals on until all processes have ended."""
        watcher = self._watcher
        watcher.look_if_due()
        while self._exit is None or self._orphans.are_left():
            # the earliest of all due times; a signal wakes it before
            wait = min(watcher.pause(), self._orphans.wake_at - watcher.elapsed())
            info = self._wakeup.wait(wait)
            if info is None:
                watcher.look_if_due()
            elif info.si_signo == signal.SIGCHLD:
                self._reap()
            else:
                self._take(info)
        watcher.finish()

    def _call_witness(self) -> Seconds:
        if self._exit is None:
            self._witness = self._wakeup.call_witness()
            self._watcher.set_aside(self._witness or 0)
        return INFINITY

    def _take(self, info: signal.struct_siginfo) -> None:
        """Handle one signal to weigh."""
        number = info.si_signo
        is_stop = self._wakeup.is_stop_request(number)
        if self._exit is not None:
            if is_stop:
                self._orphans.stop()
            elif number == signal.SIGTSTP:
                signals.stop_self()
            return
        # the terminal or a scheduler may have signalled the whole group already
        if self._wakeup.is_for_the_job(info, self._tree.pids()):
            self._pass_on(number)
        if is_stop:  # weigh may be killed next
            self._checkpoints.hurry()
        self._follow(number)

    def _follow(self, number: int) -> None:
        """Stop and continue weigh itself on TSTP and CONT."""
        if number == signal.SIGTSTP:
            self._asked_to_stop = True
            self._stop_too()
        elif number == signal.SIGCONT:
            self._asked_to_stop = False

    def _pass_on(self, number: int) -> None:
        if self._wakeup.is_stop_request(number):
            self._end_signal = number
        send_signal_to_orphan(self._leader, number)

    def _reap(self) -> None:
        """Reap every child that ended, and add up its resource usage."""
        watcher = self._watcher
        self._peek()
        # one SIGCHLD may stand for several children
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
            # weigh's own children: witness, launchers, agents
            if pid in self._tree.excluded:
                continue
            self._reaped += 1
            self._user += used.ru_utime
            self._system += used.ru_stime
            used_so_far = self._user + self._system
            watcher.most_cpu_time = max(watcher.most_cpu_time, used_so_far)
            watcher.tracker.reap(used.ru_maxrss * KIB)
            self._ended = watcher.elapsed()
            if pid == self._leader:
                self._end(status)

    def _peek(self) -> None:
        """Look at a leader that has ended whether it had children, before it is reaped.

        If none was met, its ru_maxrss may be the largest child's.
        """
        tracker = self._watcher.tracker
        if self._exit is not None or tracker.has_unseen:
            return
        try:
            if os.waitid(os.P_PID, self._leader, _PEEK) is None:
                return
        except OSError:
            return
        times = self._tree.times(self._leader)
        tracker.has_unseen = times is not None and times.faulted_by_reaped > 0

    def _end(self, status: int) -> None:
        """Note the end of the command; decide whether to stop its orphans."""
        self._exit = status
        self._wakeup.dismiss_witness()
        # the witness is gone, and its id may be another's
        self._tree.excluded -= {self._witness}
        number = signals.ended_by(status)
        if (
            not self._watch.wait_orphans
            or self._end_signal is not None
            or (number is not None and self._wakeup.is_stop_request(number))
        ):
            self._orphans.stop()

    def _stop_too(self) -> None:
        """Stop with the job, if weigh got TSTP or an interactive shell waits for it.

        Otherwise nobody would continue weigh after a job that was stopped alone.
        """
        if self._leader_stopped and (self._asked_to_stop or signals.in_foreground()):
            signals.stop_self()

    def measurement(self) -> RunMeasurement:
        """Return the measurement so far."""
        watcher, status, cgroup = self._watcher, self._exit, read_cgroup()
        # a mark that has not risen is from before the job
        has_risen = (cgroup.peak or 0) > (self._cgroup.peak or 0)
        usage = Usage(
            wall_time=watcher.elapsed() if status is None else self._ended,
            cpu_time=watcher.cpu_time(),
            processes=self._reaped,
            cgroup_peak=cgroup.peak if has_risen else None,
        )
        # these are known only of reaped processes
        if status is not None:
            usage = msgspec.structs.replace(
                usage,
                user_time=self._user,
                system_time=self._system,
                memory_limit=read_memory_limit() if status else None,
            )
            traffic = read_reaped_io()
            if traffic is not None and self._io is not None:
                usage = with_traffic(usage, traffic.since(self._io))
        kills = cgroup.kills_since(self._cgroup)
        own = 0 if self._ledger is None else self._ledger.own_oom_kills()
        return watcher.joined(
            kernel_measurement(
                usage,
                watcher.started,
                None if status is None else os.waitstatus_to_exitcode(status),
                has_ended=status is not None,
                warnings=self._warnings,
                oom_kills=own or None if kills is None else kills + own,
                end_signal=self._end_signal,
            )
        )


def _why_no_tree() -> str:
    """Return the warning for a run whose processes cannot be read."""
    if is_own_proc():
        return "cannot read /proc: the largest process alone counts"
    return "/proc shows another pid namespace: only the largest process counts"
