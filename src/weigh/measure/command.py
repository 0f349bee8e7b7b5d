"""Measure a process tree on Linux to its end: of a command, or of a running process.

One thread sleeps in sigtimedwait. It wakes to pass a signal on, to reap a child, or to
take the next sample. The job inherits its streams; weigh never touches them.

A process that runs already gets no signals from weigh, its exit code is unknown, and
CPU time is as last read. The memory peak includes the time before the watch, because
the kernel keeps it; the GPU peak does not, because no driver keeps one.
"""

import os
import resource  # noqa: F401 - wait4 would load it when descriptors have run out
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

import msgspec

from weigh.errors import UsageError
from weigh.measure import signals
from weigh.measure.launcher import JobLauncher, has_child_ended
from weigh.measure.memory.ledger import open_ledger
from weigh.measure.watch_loop import (
    WatchLoop,
    adopt_orphans,
    send_signal_to_orphan,
)
from weigh.measure.watcher import (
    INFINITY,
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
from weigh.probe.proc import ProcTree, read_reaped_io, usable_proc
from weigh.process_ids import is_own_proc
from weigh.regular_file import file_head
from weigh.units import KIB, MIB, Seconds

_FOLDERS = "LD_LIBRARY_PATH"  # of libraries
_WITNESS_AFTER = 0.08  # seconds; by then most programs have installed signal handlers
_LAUNCHER_GROWTH = MIB  # memory of the PATH search, and the inaccuracy of VmHWM
# wait4 also reports stops and continues, which weigh follows
_ANY_CHANGE = os.WNOHANG | os.WUNTRACED | os.WCONTINUED


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
    with ExitStack() as exit_stack:
        run = _MeasuredCommand(launcher, watch, exit_stack)
        # the launchers of later repeats are children of weigh, and not of this job
        waiting = (waiting.pid for waiting in launchers)
        run.start(list(command), dict(env), frozenset((*watch.excluded, *waiting)))
        return run.watch_to_the_end()


class _MeasuredCommand(WatchLoop):
    """One measured command; what it opens is closed by *exit_stack*."""

    def __init__(
        self, launcher: JobLauncher, watch: WatchSettings, exit_stack: ExitStack
    ) -> None:
        self.watch = watch
        self._launcher = launcher
        self._leader = launcher.pid
        self._wakeup = signals.SignalWakeup()
        self._exit_stack = exit_stack
        self._warnings: list[str] = []
        self._tree = ProcTree(os.getpid())
        for opened in (self._wakeup, self._tree):
            exit_stack.callback(opened.close)
        self._witness: int | None = None
        self._exit: int | None = None  # the leader's wait status
        self._ended: Seconds = 0.0  # when the last process so far was reaped
        self._user = self._system = 0.0
        self._leader_stopped = self._asked_to_stop = False
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
                self._exit_stack.callback(opened.close)
        self._cgroup = read_cgroup()
        self._io = read_reaped_io()
        streams = self.watch.streams
        started, launcher_peak = self._launcher.launch(command, env, streams)
        watcher = TreeWatcher(
            self._tree,
            self.watch.interval,
            WatchedRun(
                # ru_maxrss of the job includes what the launcher held before exec
                floor=launcher_peak + _LAUNCHER_GROWTH,
                cpu_clock=clock,
                ledger=self._ledger,
                leader=lambda: self._leader if self._exit is None else None,
                gpus=start_gpu_sampler(self.watch.interval, self._tree.pids),
            ),
            started=started,
        )
        self._exit_stack.callback(watcher.close)
        watcher.call_at(self._call_witness, _WITNESS_AFTER)
        self.begin(watcher, self._leader)
        # they came before there was a job to pass them on to
        for number in self._wakeup.missed():
            self._pass_on(number)
            self._follow(number)

    def is_over(self) -> bool:
        """Return whether the command and what it left have ended."""
        return self._exit is not None and not self.orphans.are_left()

    def sleep(self, seconds: Seconds) -> None:
        """Sleep; reap children and pass signals on."""
        info = self._wakeup.wait(seconds)
        if info is not None and info.si_signo == signal.SIGCHLD:
            self._reap()
        elif info is not None:
            self._take(info)

    def _call_witness(self) -> Seconds:
        if self._exit is None:
            self._witness = self._wakeup.call_witness()
            self.watcher.set_aside(self._witness or 0)
        return INFINITY

    def _take(self, info: signal.struct_siginfo) -> None:
        """Handle one signal to weigh."""
        number = info.si_signo
        is_stop = number in self._wakeup.ending
        if self._exit is not None:
            if is_stop:
                self.orphans.stop()
            elif number == signal.SIGTSTP:
                signals.stop_self()
            return
        # the terminal or a scheduler may have signalled the whole group already
        if self._wakeup.is_for_the_job(info, self._tree.pids()):
            self._pass_on(number)
        if is_stop:  # weigh may be killed next
            self.checkpoints.hurry()
        self._follow(number)

    def _follow(self, number: int) -> None:
        """Stop and continue weigh itself on TSTP and CONT."""
        if number == signal.SIGTSTP:
            self._asked_to_stop = True
            self._stop_too()
        elif number == signal.SIGCONT:
            self._asked_to_stop = False

    def _pass_on(self, number: int) -> None:
        if number in self._wakeup.ending:
            self.end_signal = number
        send_signal_to_orphan(self._leader, number)

    def _reap(self) -> None:
        """Reap every child that ended, and add up its resource usage."""
        watcher = self.watcher
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
        tracker = self.watcher.tracker
        if self._exit is not None or tracker.has_unseen:
            return
        if has_child_ended(self._leader):
            times = self._tree.times(self._leader)
            tracker.has_unseen = times is not None and times.faulted_by_reaped > 0

    def _end(self, status: int) -> None:
        """Note the end of the command; decide whether to stop its orphans."""
        self._exit = status
        self._wakeup.dismiss_witness()
        # the witness is gone, and its id may be another's
        self._tree.excluded -= {self._witness}
        self.note_end(os.waitstatus_to_exitcode(status), self._wakeup.ending)

    def _stop_too(self) -> None:
        """Stop with the job, if weigh got TSTP or an interactive shell waits for it.

        Otherwise nobody would continue weigh after a job that was stopped alone.
        """
        if self._leader_stopped and (self._asked_to_stop or signals.in_foreground()):
            signals.stop_self()

    def measurement(self) -> RunMeasurement:
        """Return the measurement so far."""
        watcher, status, cgroup = self.watcher, self._exit, read_cgroup()
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
                end_signal=self.end_signal,
            )
        )


def _why_no_tree() -> str:
    """Return the warning for a run whose processes cannot be read."""
    if is_own_proc():
        return "cannot read /proc: the largest process alone counts"
    return "/proc shows another pid namespace: only the largest process counts"


def watch_process(pid: int, watch: WatchSettings) -> RunMeasurement:
    """Watch *pid* until its tree has ended, or weigh receives an ending signal.

    ``end_signal`` of the result is that signal, or None.

    Raises:
        UsageError: the process does not exist or has no memory, or /proc shows another
            pid namespace.
    """
    if not is_own_proc():
        raise UsageError(
            "/proc shows another pid namespace: attach from outside the container"
        )
    tree = ProcTree(pid)
    # it is no descendant of weigh, so a walk would not find it
    if not tree.adopt(pid) or tree.reading(pid) is None:
        raise UsageError(f"no running process {pid} (ps -u $USER lists yours)")
    environment = _environment_for_gpus(tree.environment(pid))
    gpus = start_gpu_sampler(watch.interval, tree.pids, environment, joined=True)
    run = WatchedRun(gpus=gpus, has_begun=True)
    with (
        closing(TreeWatcher(tree, watch.interval, run)) as watcher,
        closing(signals.SignalWakeup()) as wakeup,
    ):
        watcher.look_if_due()
        attached = _AttachedProcess(watch, wakeup, watcher.cpu_time())
        attached.begin(watcher, pid)
        return attached.watch_to_the_end()


class _AttachedProcess(WatchLoop):
    """A process that had used *cpu_before* seconds when the watch began."""

    def __init__(
        self, watch: WatchSettings, wakeup: signals.SignalWakeup, cpu_before: Seconds
    ) -> None:
        self.watch = watch
        self._wakeup = wakeup
        self._cpu_before = cpu_before

    def is_over(self) -> bool:
        """Return whether it has ended with all its descendants, or weigh is to end."""
        samples = self.watcher.samples
        # a process that ended and is not reaped yet is in no sample
        has_ended = bool(samples) and not samples[-1].processes
        return has_ended or self.end_signal is not None

    def sleep(self, seconds: Seconds) -> None:
        """Sleep; signals are for weigh here: the watched process gets none of them."""
        info = self._wakeup.wait(seconds)
        if info is not None and info.si_signo in self._wakeup.ending:
            self.end_signal = info.si_signo
        elif info is not None and info.si_signo == signal.SIGTSTP:
            signals.stop_self()

    def measurement(self) -> RunMeasurement:
        """Return the measurement so far."""
        watcher = self.watcher
        used = watcher.cpu_time() - self._cpu_before
        known = kernel_measurement(
            Usage(watcher.elapsed(), used),
            watcher.started,
            has_ended=watcher.has_finished,
            end_signal=self.end_signal,
        )
        return watcher.joined(known)


def command_of_process(pid: int) -> list[str]:
    """Read a process's argv; empty when it is gone or a kernel thread."""
    text = os.fsdecode(file_head(f"{usable_proc()}/{pid}/cmdline"))
    return text.split("\0")[:-1]


def _environment_for_gpus(theirs: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment in which GPUs are those that a process can see.

    It is *theirs*, if it may be read, but weigh loads the driver that itself finds.
    """
    # an environment that may not be read is one empty name
    if not any(theirs):
        return os.environ
    return {**theirs, _FOLDERS: os.environ.get(_FOLDERS, "")}
