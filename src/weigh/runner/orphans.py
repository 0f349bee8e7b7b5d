"""Collect the children that ended; find the processes that tasks leave behind.

weigh adopts orphans, so a process that outlives its task becomes weigh's child,
whatever its session. A stamp identifies its task: a limit on real-time CPU time that no
program ever reaches. Every process inherits it, and neither a new session nor an empty
environment removes it. Where the stamp is not allowed, a mark in the environment
identifies the task.

Tasks of an earlier run may have outlived it. Boot, process id and start time identify
them. Their exit status is lost, so they run again, but only after the surviving
processes have ended.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import msgspec

from weigh import waits
from weigh.errors import UsageError
from weigh.probe.proc import (
    IoReading,
    parse_children,
    read_kernel_list,
    usable_proc,
)
from weigh.process_ids import is_own_proc
from weigh.regular_file import file_head
from weigh.runner.attempt import KernelUsage, TaskAttempt
from weigh.runner.events import PastRuns, RunOpened
from weigh.runner.spawn import MARK
from weigh.runner.stopping import send_to_all
from weigh.schedulers import KINDS
from weigh.store.identity import MachineIdentity, ProcessIdentity, is_alive
from weigh.units import KIB, Seconds

_ENVIRONMENT_BYTES = 1 << 20
_POLL = 0.02  # seconds
_STAMP = resource.RLIMIT_RTTIME
_STAMPED = b"Max realtime timeout"
_BASE = 1 << 62  # microseconds: 146,000 years
_SEQ_BITS = 32  # the low ones, for the number of the task
_RUN_MASK = (1 << 30) - 1  # the bits above them, for a hash of the run's id
_IO_WORDS = (9, 11, 5, 7, 1, 3)  # of /proc/PID/io, for the fields of an IoReading
_SURVIVOR_POLL = 0.1  # seconds
_QUERY_TIMEOUT = 30.0  # seconds


class ReapedChild(msgspec.Struct, frozen=True, gc=False):
    """A child that ended, with the usage of it and of the children it waited for."""

    pid: int  # no longer in use: the kernel may give it to another process
    status: int  # as wait4 reports it
    at: Seconds  # on the monotonic clock
    usage: KernelUsage


class ChildReaper:
    """Reaps children one at a time.

    When a child is reaped, the kernel adds its storage traffic to ours, so the
    difference is exactly the child's traffic.
    """

    def __init__(self) -> None:
        try:
            self._io: int | None = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._io = None

    def reap(self) -> list[ReapedChild]:
        """Return the children that have ended since the last call."""
        found: list[ReapedChild] = []
        traffic = self._traffic()
        while True:
            try:
                # one by one, so that each difference in traffic has one owner
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            at = time.monotonic()
            before, traffic = traffic, self._traffic()
            usage = KernelUsage(
                used.ru_utime,
                used.ru_stime,
                used.ru_maxrss * KIB,
                traffic.since(before),
                reaped=1,
            )
            found.append(ReapedChild(pid, status, at, usage))

    def _traffic(self) -> IoReading:
        if self._io is None:
            return IoReading(0, 0)
        words = os.pread(self._io, 512, 0).split()
        return IoReading(*(int(words[place]) for place in _IO_WORDS))


class ClearedOrphans(NamedTuple):
    """Processes of no known task: those terminated, and those that cannot be."""

    ended: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class TaskOrphans:
    """The orphans alive now, each with the attempt that it belongs to.

    *running* are the attempts by record.
    """

    def __init__(
        self, run_id: str, running: Mapping[str, TaskAttempt], leaders: Collection[int]
    ) -> None:
        self._run = run_id
        self._running = running
        self._leaders = leaders
        # orphans that were found; None: of no task that runs
        self._owners: dict[int, TaskAttempt | None] = {}
        # children that no task waits for
        self._abandoned: set[int] = set()
        path = f"{usable_proc()}/self/task/{os.getpid()}/children"
        try:
            self._children: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._children = None

    def claim(self, pid: int) -> TaskAttempt | None:
        """Remove an orphan that ended; return the attempt it belonged to."""
        # it was reaped: the kernel may use its id again
        self._abandoned.discard(pid)
        attempt = self._owners.pop(pid, None)
        if attempt is not None:
            attempt.state.orphans.discard(pid)
        return attempt

    def find(self) -> Iterator[tuple[TaskAttempt, int]]:
        """Look for new orphans; add each to its attempt, and yield both."""
        for pid in self._pids():
            if pid in self._leaders or pid in self._owners:
                continue
            attempt = self._owners[pid] = self._owner(pid)
            if pid in self._abandoned:  # set aside by another thread meanwhile
                self._owners.pop(pid, None)
            elif attempt is not None:
                attempt.state.orphans.add(pid)
                yield attempt, pid

    def set_aside(self, pid: int) -> None:
        """Exclude a process of weigh's own. The watcher's thread calls this."""
        self._abandoned.add(pid)
        owner = self._owners.pop(pid, None)
        if owner is not None:
            owner.state.orphans.discard(pid)

    def abandon(self, attempt: TaskAttempt) -> tuple[str, ...]:
        """Give up on the processes of an attempt that cannot be killed; name them."""
        pids = {
            *attempt.state.orphans,
            *({attempt.launch.pid} if attempt.state.status is None else ()),
        }
        for pid in attempt.state.orphans:
            self._owners.pop(pid, None)
        attempt.state.orphans.clear()
        self._abandoned |= pids
        return tuple(process_name_and_state(pid) for pid in sorted(pids))

    def clear(self, grace: Seconds) -> ClearedOrphans:
        """Terminate remaining processes that belong to no known task."""
        pids = self._pids()
        if not pids:
            return ClearedOrphans()
        # now, as nothing shows them once they have ended
        names = {pid: process_name_and_state(pid) for pid in pids}
        send_to_all(pids, signal.SIGTERM)
        kill_at = time.monotonic() + min(grace, waits.times.orphans_killed)
        give_up_at = kill_at + waits.times.end_after_kill
        while pids and time.monotonic() < give_up_at:
            if time.monotonic() >= kill_at:
                send_to_all(pids, signal.SIGKILL)
            time.sleep(_POLL)
            # they are weigh's own children: without it they would stay as zombies
            _reap_all()
            pids = self._pids()
            names.update(
                (pid, process_name_and_state(pid)) for pid in pids if pid not in names
            )
        left = tuple(names.pop(pid) for pid in pids)
        return ClearedOrphans(tuple(names.values()), left)

    def _pids(self) -> list[int]:
        if self._children is None:
            return []
        children = parse_children(read_kernel_list(self._children))
        return [pid for pid in children if pid not in self._abandoned]

    def _owner(self, pid: int) -> TaskAttempt | None:
        # a task has one attempt at a time, so its number is enough
        seq = _task_of_process(pid, (self._run,))
        attempts = self._running.values()
        return next((one for one in attempts if one.seq == seq), None)


def stamp_processes(run_id: str, task_number: int) -> None:
    """Stamp all processes started from now on with a task of a run.

    Do nothing if a limit on real-time CPU time is set already.
    """
    # only the soft limit: it can be set again for the next task
    hard = resource.getrlimit(_STAMP)[1]
    if hard == resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):
            resource.setrlimit(_STAMP, (_stamp_of_run(run_id) | task_number, hard))


def read_stamp(pid: int, run_id: str) -> int | None:
    """Return the task of *run_id* that a process belongs to; None if none."""
    text = file_head(f"/proc/{pid}/limits", 4096)
    words = text.partition(_STAMPED)[2].split(None, 1)
    if not words or not words[0].isdigit():
        return None
    number = int(words[0])
    # a limit that somebody else set, or the stamp of another run
    if number >> _SEQ_BITS != _stamp_of_run(run_id) >> _SEQ_BITS:
        return None
    return number & ((1 << _SEQ_BITS) - 1)


def _stamp_of_run(run_id: str) -> int:
    return _BASE | (crc32(run_id.encode()) & _RUN_MASK) << _SEQ_BITS


def process_name_and_state(pid: int) -> str:
    """Return a process's id and name, and whether it waits for a disk."""
    line = file_head(f"/proc/{pid}/stat", 1024)
    if not line:
        return str(pid)
    name, _, rest = line.partition(b"(")[2].rpartition(b")")
    waits = ", waits for a disk" if rest.split()[:1] == [b"D"] else ""
    return f"{pid} ({name.decode('ascii', 'replace')}{waits})"


def _marked_task(pid: int) -> tuple[str, int] | None:
    """Return (run, seq) from a process's environment; None without a mark."""
    text = b"\0" + file_head(f"{usable_proc()}/{pid}/environ", _ENVIRONMENT_BYTES)
    rest = text.partition(b"\0" + MARK + b"=")[2].partition(b"\0")[0]
    run, _, number = rest.decode("ascii", "replace").partition(".")
    return (run, int(number)) if number.isdecimal() else None


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def find_survivors(
    past_runs: PastRuns, here: MachineIdentity, proc_folder: str = "/proc"
) -> dict[int, int]:
    """Return the processes that earlier runs left: process id to task number."""
    runs = {
        run: opened
        for run, opened in past_runs.open_runs.items()
        if here.sees_processes_of(opened.machine)
    }
    if not runs:
        return {}
    found = {
        start.pid: seq
        for seq, start in past_runs.in_flight.items()
        if start.run in runs and is_alive(ProcessIdentity(start.pid, start.start_time))
    }
    for pid in _processes_of_user(proc_folder):
        seq = _task_of_process(pid, runs)
        # not a zombie: it holds nothing, and may never be reaped
        if seq is not None and is_alive(ProcessIdentity(pid)):
            found.setdefault(pid, seq)
    return found


def _task_of_process(pid: int, run_ids: Collection[str]) -> int | None:
    """Return the task of one of *run_ids* that a process belongs to; None if none."""
    # first the stamp, which no program removes; then the mark
    for run in run_ids:
        seq = read_stamp(pid, run)
        if seq is not None:
            return seq
    marked = _marked_task(pid)
    return marked[1] if marked is not None and marked[0] in run_ids else None


def refuse_living(
    past_runs: PastRuns, here: MachineIdentity, current_process: ProcessIdentity
) -> None:
    """Refuse to run while an earlier ``weigh exec`` on this joblog is alive.

    Its lock file may have been removed, and not every file system has locks.

    Raises:
        UsageError: one is alive.
    """
    for opened in past_runs.open_runs.values():
        if (
            here.sees_processes_of(opened.machine)
            and opened.process != current_process
            and is_alive(opened.process)
        ):
            raise UsageError(
                f"another weigh exec is running on {opened.task_file}: process "
                f"{opened.process.pid} (wait for it, or choose another --joblog)"
            )


def refuse_elsewhere(
    past_runs: PastRuns, here: MachineIdentity, job_id: str | None = None
) -> None:
    """Refuse to run tasks a second time that may run where they cannot be seen.

    A restarted machine runs nothing. A scheduler terminates the processes of its jobs,
    so for a job other than our own, *job_id*, it is queried whether that job still
    runs.

    Raises:
        UsageError: some may still run.
    """
    # a cloned node looks like this one before a restart; tasks that began after this
    # machine's start cannot have ended with it
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    hidden: dict[str, RunOpened] = {}
    for start in past_runs.in_flight.values():
        opened = past_runs.open_runs.get(start.run)
        if opened is None or here.sees_processes_of(opened.machine):
            continue
        if start.time >= booted or not here.is_later_boot_of(opened.machine):
            hidden[start.run] = opened
    hosts = {
        opened.machine.host
        for opened in hidden.values()
        # our own job: the scheduler ended it before it started it again
        if opened.job is None
        or (opened.job != job_id and _runs_on(opened.job, opened.machine.host))
    }
    if hosts:
        raise UsageError(
            f"tasks may still be running on {', '.join(sorted(hosts))}, where weigh "
            "exec was killed: resume there, or add --forget-survivors if they have "
            "ended"
        )


def _runs_on(job_id: str, host_name: str) -> bool:
    """Return whether a scheduler reports that a job runs on a host.

    Return False if no scheduler answers: most jobs of a killed run have ended.
    """
    import subprocess  # noqa: PLC0415 - only after a kill -9 on another machine

    # all of them, as an id does not show whose it is
    for kind in KINDS.values():
        question = kind.backend.runs_on_host(job_id, host_name)
        try:
            answer = subprocess.run(
                question.argvs[0],
                capture_output=True,
                text=True,
                timeout=_QUERY_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if answer.returncode == 0 and question.read([answer.stdout]):
            return True
    return False


def outlast_survivors(
    past_runs: PastRuns,
    here: MachineIdentity,
    stop_signal: Callable[[], int | None],
    *,
    may_kill: bool,
) -> int | None:
    """Wait until the tasks of earlier runs have ended, or terminate them.

    Return the signal that ended the wait, None if all have ended.
    """
    kill_at: Seconds | None = None
    # each time also what the survivors have started meanwhile
    while found := find_survivors(past_runs, here):
        number = stop_signal()
        if number is not None:
            return number
        if may_kill and kill_at is None:
            kill_at = time.monotonic() + waits.times.survivors_killed
            send_to_all(found, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() >= kill_at:
            send_to_all(found, signal.SIGKILL)
        time.sleep(_SURVIVOR_POLL)
    return None


def _processes_of_user(proc_folder: str) -> list[int]:
    own = os.geteuid()
    pids = []
    if not is_own_proc(proc_folder):  # its process ids are not ours to signal
        return []
    with os.scandir(proc_folder) as entries:
        for entry in entries:
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                if entry.stat().st_uid == own:
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids
