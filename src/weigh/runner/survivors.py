"""Tasks of an earlier ``weigh exec`` that outlived it.

They are known by boot, process id and start time, and by the mark in the environment
of whatever they started. Nobody has their exit status, so they are run again: when
they have ended, never beside themselves.
"""

import os
import signal
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weigh.errors import UsageError
from weigh.probe.proc import is_own_proc
from weigh.runner.events import Opened, Past
from weigh.runner.leftovers import mark_words
from weigh.runner.stopping import send_to_all
from weigh.store.identity import Machine, Process, is_alive

if TYPE_CHECKING:
    from weigh.units import Seconds

_POLL = 0.1
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
        words = mark_words(pid)
        if words is not None and words[0] in runs and is_alive(Process(pid)):
            found.setdefault(pid, int(words[1]))
    return found


def elsewhere(past: Past, here: Machine) -> tuple[Opened, ...]:
    """Give the runs of which nobody can say from here whether tasks of theirs live.

    A scheduler clears up after its job, and a machine that was restarted runs nothing.
    """
    in_flight = {start.run for start in past.in_flight.values()}
    return tuple(
        opened
        for run, opened in past.open_runs.items()
        if run in in_flight
        and not here.sees_processes_of(opened.machine)
        and not here.is_later_boot_of(opened.machine)
        and opened.job is None
    )


def refuse_elsewhere(past: Past, here: Machine) -> None:
    """Refuse to run tasks a second time that may still run on another machine.

    Raises:
        UsageError: there may be some.
    """
    hosts = sorted({opened.machine.host for opened in elsewhere(past, here)})
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
