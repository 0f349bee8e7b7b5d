"""Tasks of an earlier ``weigh exec`` that outlived it.

They are known by boot, process id and start time, and by the stamp and the mark that
whatever they started inherits. Nobody has their exit status, so they are run again: not
before they have ended.
"""

import os
import signal
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weigh.errors import UsageError
from weigh.probe.proc import is_own_proc
from weigh.runner.events import Opened, Past
from weigh.runner.orphans import mark_words, read_stamp
from weigh.runner.stopping import send_to_all
from weigh.store.identity import Machine, Process, is_alive

if TYPE_CHECKING:
    from weigh.units import Seconds

_POLL = 0.1
_TO_ASK = 30.0
_KILL_AFTER = 5.0


def survivors(past: Past, here: Machine, proc: str = "/proc") -> dict[int, int]:
    """Find the processes that earlier runs left: process id to number of task."""
    runs = {
        run: opened
        for run, opened in past.open_runs.items()
        if here.sees_processes_of(opened.machine)
    }
    if not runs:
        return {}
    found = {
        start.pid: seq
        for seq, start in past.in_flight.items()
        if start.run in runs and is_alive(Process(start.pid, start.start_time))
    }
    for pid in _own_processes(proc):
        seq = _task_of(pid, runs)
        if seq is not None and is_alive(Process(pid)):
            found.setdefault(pid, seq)
    return found


def _task_of(pid: int, runs: Collection[str]) -> int | None:
    """Return the task of one of *runs* that a process belongs to."""
    for run in runs:
        seq = read_stamp(pid, run)
        if seq is not None:
            return seq
    words = mark_words(pid)
    return int(words[1]) if words is not None and words[0] in runs else None


def refuse_living(past: Past, here: Machine, me: Process) -> None:
    """Refuse to work beside an earlier run whose ``weigh exec`` itself still lives.

    Its lock file may have been removed, and not every disk has locks.

    Raises:
        UsageError: there is one.
    """
    for opened in past.open_runs.values():
        if (
            here.sees_processes_of(opened.machine)
            and opened.process != me
            and is_alive(opened.process)
        ):
            raise UsageError(
                f"another weigh exec is at work on {opened.task_file}: process "
                f"{opened.process.pid} (wait for it, or choose another --joblog)"
            )


def elsewhere(past: Past, here: Machine, job: str | None = None) -> tuple[Opened, ...]:
    """Return the runs whose tasks may be alive where this process cannot see them.

    A machine that was restarted runs nothing. A scheduler ends what its job started, so
    of another job than our own, *job*, it is asked whether that still runs there.
    """
    in_flight = {start.run for start in past.in_flight.values()}
    return tuple(
        opened
        for run, opened in past.open_runs.items()
        if run in in_flight
        and not here.sees_processes_of(opened.machine)
        and not here.is_later_boot_of(opened.machine)
        and (
            opened.job is None
            or (opened.job != job and _runs_on(opened.job, opened.machine.host))
        )
    )


def _runs_on(job: str, host: str) -> bool:
    """Return whether a scheduler reports that a job runs on a host.

    No if no scheduler answers: most jobs of a killed run have ended.
    """
    import subprocess  # noqa: PLC0415 - only after a kill -9 on another machine

    states = "RUNNING,SUSPENDED,COMPLETING"
    for argv in (
        ["squeue", "--noheader", "-t", states, "-j", job, "-w", host, "-o", "%A"],
        ["qstat", "-u", "*", "-s", "rs", "-q", f"*@{host}"],
    ):
        try:
            answer = subprocess.run(
                argv, capture_output=True, text=True, timeout=_TO_ASK, check=False
            )
        except (OSError, subprocess.SubprocessError):
            continue
        lines = [line.split() for line in answer.stdout.splitlines()]
        is_listed = argv[0] == "squeue" or [job] in [line[:1] for line in lines]
        if answer.returncode == 0 and any(lines) and is_listed:
            return True
    return False


def refuse_elsewhere(past: Past, here: Machine, job: str | None = None) -> None:
    """Refuse to run tasks a second time that may still run on another machine.

    *job* is the id of our own scheduler's job.

    Raises:
        UsageError: there may be some.
    """
    hosts = sorted({opened.machine.host for opened in elsewhere(past, here, job)})
    if hosts:
        raise UsageError(
            f"tasks may still be running on {', '.join(hosts)}, where weigh exec was "
            "killed: resume there, or add --forget-survivors if they have ended"
        )


def outlast(
    found: Collection[int],
    *,
    kill: bool,
    is_told: Callable[[], bool],
    find: Callable[[], Collection[int]],
) -> bool:
    """Wait for survivors to end, or end them; False if told to stop waiting."""
    kill_at: Seconds | None = None
    while found:
        if is_told():
            return False
        if kill and kill_at is None:
            kill_at = time.monotonic() + _KILL_AFTER
            send_to_all(found, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() >= kill_at:
            send_to_all(found, signal.SIGKILL)
        time.sleep(_POLL)
        found = find()
    return True


def _own_processes(proc: str) -> list[int]:
    own = os.geteuid()
    pids = []
    if not is_own_proc(proc):  # its numbers are not those that can be signalled here
        return []
    with os.scandir(proc) as entries:
        for entry in entries:
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                if entry.stat().st_uid == own:
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids
