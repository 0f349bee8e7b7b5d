"""Find tasks of an earlier ``weigh exec`` that outlived it, and wait for them.

Boot, process id and start time identify them, and the stamp and the mark identify the
processes they started. Their exit status is lost, so they run again, but only after the
surviving processes have ended.
"""

import os
import signal
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weigh.errors import UsageError
from weigh.probe.proc import is_own_proc
from weigh.runner.events import PastRuns, RunOpened
from weigh.runner.orphans import mark_words, read_stamp
from weigh.runner.stopping import send_to_all
from weigh.schedulers import KINDS
from weigh.store.identity import MachineIdentity, ProcessIdentity, is_alive

if TYPE_CHECKING:
    from weigh.units import Seconds

_POLL = 0.1  # seconds
_QUERY_TIMEOUT = 30.0  # seconds
_KILL_AFTER = 5.0  # seconds


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
    words = mark_words(pid)
    return int(words[1]) if words is not None and words[0] in run_ids else None


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


def runs_alive_elsewhere(
    past_runs: PastRuns, here: MachineIdentity, job_id: str | None = None
) -> tuple[RunOpened, ...]:
    """Return the runs whose tasks may be alive where this process cannot see them.

    A restarted machine runs nothing. A scheduler terminates the processes of its jobs,
    so for a job other than our own, *job_id*, it is queried whether that job still
    runs.
    """
    in_flight = {start.run for start in past_runs.in_flight.values()}
    return tuple(
        opened
        for run, opened in past_runs.open_runs.items()
        if run in in_flight
        and not here.sees_processes_of(opened.machine)
        and not here.is_later_boot_of(opened.machine)
        and (
            opened.job is None
            # our own job: the scheduler ended it before it started it again
            or (opened.job != job_id and _runs_on(opened.job, opened.machine.host))
        )
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


def refuse_elsewhere(
    past_runs: PastRuns, here: MachineIdentity, job_id: str | None = None
) -> None:
    """Refuse to run tasks a second time that may still run on another machine.

    *job_id* is the id of our own scheduler's job.

    Raises:
        UsageError: some may still run.
    """
    hosts = sorted(
        {
            opened.machine.host
            for opened in runs_alive_elsewhere(past_runs, here, job_id)
        }
    )
    if hosts:
        raise UsageError(
            f"tasks may still be running on {', '.join(hosts)}, where weigh exec was "
            "killed: resume there, or add --forget-survivors if they have ended"
        )


def wait_or_kill(
    found: Collection[int],
    *,
    may_kill: bool,
    should_stop: Callable[[], bool],
    find: Callable[[], Collection[int]],
) -> bool:
    """Wait for survivors, or terminate them; return False if *should_stop*."""
    kill_at: Seconds | None = None
    while found:
        if should_stop():
            return False
        if may_kill and kill_at is None:
            kill_at = time.monotonic() + _KILL_AFTER
            send_to_all(found, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() >= kill_at:
            send_to_all(found, signal.SIGKILL)
        time.sleep(_POLL)
        # also what the survivors have started meanwhile
        found = find()
    return True


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
