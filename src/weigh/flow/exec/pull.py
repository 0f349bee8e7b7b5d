"""``weigh exec --pull``: the queue of a plan, and which of its runs are gone."""

import os
import time
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from weigh import waits
from weigh.errors import UsageError, WeighError
from weigh.flow.here import Here
from weigh.flow.plan.directory import read_plan
from weigh.flow.site import schedulers
from weigh.model.plan import QUEUE_TASKS, TaskNeed
from weigh.planning.queue_order import (
    element_capacity_for_tasks,
    time_to_start,
    units_of,
)
from weigh.runner import events, orphans, owned_file
from weigh.runner.run_context import ExecOptions
from weigh.runner.shared_queue import PulledTasks, QueueOwner
from weigh.runner.slots import TaskReservation
from weigh.store import jobs
from weigh.store.identity import is_alive, this_machine
from weigh.units import Seconds

_LOGS = "log"


def queue_folder(folder: str) -> str:
    """Return the directory of the queue of a plan; *folder* is either of them.

    Raises:
        UsageError: the plan has no queue, or there is no plan.
        FormatError: it is no plan.
    """
    # the directory of the queue itself, as job scripts name it
    if os.path.exists(os.path.join(folder, QUEUE_TASKS)):
        return folder
    plan = read_plan(folder)
    if plan.queue is None:
        raise UsageError(
            f"{folder} has no shared queue: each element has its own tasks "
            "(weigh plan TASKS --hours H makes one)"
        )
    return os.path.join(folder, plan.queue.folder)


def options_completed_by_plan(options: ExecOptions, folder: str) -> ExecOptions:
    """Fill in what the plan of the queue in *folder* states and nobody typed.

    Tasks that differ in their CPUs are not bound to the cores of a slot.

    Raises:
        UsageError, FormatError, StoreError: its plan cannot be read.
    """
    plan = read_plan(folder)
    jobs = options.jobs
    if jobs is None and options.per_gpu is None:
        jobs = plan.together
    alike = len({kind.item.cpus for kind in plan.kinds}) <= 1
    return replace(
        options,
        jobs=jobs,
        pin=options.pin and alike,
        joblog=options.joblog or _default_joblog(folder),
    )


def _default_joblog(folder: str) -> str:
    """Return the joblog of a run that is started by hand: one per machine."""
    plan = os.path.dirname(os.path.abspath(folder))
    logs = os.path.join(plan, _LOGS)
    os.makedirs(logs, exist_ok=True)
    return os.path.join(logs, f"{this_machine().host}.joblog")


class QueueOfPlan(PulledTasks):
    """The tasks of a plan's queue, which is in *folder*."""

    def __init__(self, here: Here, folder: str, gone: Sequence[str]) -> None:
        """Read the plan; *gone* are hosts that have failed.

        Raises:
            UsageError, FormatError, StoreError: its plan cannot be read.
        """
        plan = read_plan(folder)
        if plan.queue is None:
            raise UsageError(f"{folder} is not the directory of a queue")
        units = [unit.tasks for unit in units_of(plan.queue, plan.kinds)]
        room = element_capacity_for_tasks(plan)
        # None: all tasks need the same, so the slots are the limit
        most = TaskReservation() if room is None else _reservation(room)
        super().__init__(units, max(1, len(plan.elements)), folder=folder, room=most)
        self._here, self._gone, self._queue = here, gone, plan.queue
        self.then = None if plan.then is None else os.fsencode(plan.then)
        self._needs = [_reservation(kind.item) for kind in plan.kinds]
        self._times = [time_to_start(kind) for kind in plan.kinds]

    def kind_of(self, task_number: int) -> int:
        """Return the kind of a task in the plan."""
        return self._queue.kinds[task_number - 1]

    def need_of(self, task_number: int) -> TaskReservation:
        """Return what the plan has for a task."""
        return self._needs[self.kind_of(task_number)]

    def number_of(self, task_number: int) -> int:
        """Return a task's number in the whole task file."""
        numbers = self._queue.tasks
        # the joblog of an earlier plan may name tasks that the queue does not have
        is_known = 0 < task_number <= len(numbers)
        return numbers[task_number - 1] if is_known else task_number

    def time_to_start(self, task_number: int) -> Seconds | None:
        """Return the planned time of a task with its headroom; None if unknown."""
        return self._times[self.kind_of(task_number)]

    def gone_runs(self, owners: Collection[QueueOwner]) -> set[str]:
        """Ask the runs' events, this machine and their scheduler."""
        return _gone(self._here, owners, self.folder, self._gone)


def _reservation(task_need: TaskNeed) -> TaskReservation:
    return TaskReservation(task_need.memory, task_need.gpu_memory, task_need.cpus)


def _gone(
    here: Here, owners: Collection[QueueOwner], folder: str, hosts: Sequence[str]
) -> set[str]:
    """Return the names of the runs that have certainly ended, with all their tasks."""
    machine = this_machine()
    found: set[str] = set()
    remote: list[QueueOwner] = []
    for owner in owners:
        if not owner.joblog:  # a resume: what it claimed is in a queue of its own
            continue
        path = os.path.join(folder, owner.joblog) + events.SUFFIX
        past = events.past_runs_of_file(path, lambda _: False)
        if past is not None and owner.run not in past.open_runs:
            found.add(owner.name)  # it wrote so itself, as its last event
        elif machine.sees_processes_of(owner.machine):
            dead = not is_alive(owner.process)
            if dead and not (past and orphans.find_survivors(past, machine)):
                found.add(owner.name)
        # a restart ended all processes there, but a cloned node that runs looks alike;
        # --gone names the machines that ended
        elif owner.machine.host in hosts or (
            machine.is_later_boot_of(owner.machine)
            and _is_joblog_lock_silent(os.path.join(folder, owner.joblog))
        ):
            found.add(owner.name)
        elif owner.job is not None:
            # another node: only its scheduler knows
            remote.append(owner)
    return found | _ended_jobs(here, remote)


def _is_joblog_lock_silent(joblog: str) -> bool:
    """Return whether the run that held *joblog* let go of it, or is silent."""
    try:
        touched = os.stat(joblog + owned_file.LOCK_SUFFIX).st_mtime
    except FileNotFoundError:
        return True
    except OSError:
        return False  # what cannot be seen may be alive
    return time.time() - touched > waits.times.silence


def _ended_jobs(here: Here, owners: Sequence[QueueOwner]) -> set[str]:
    """Return the names of the runs whose elements have ended, as a scheduler reports.

    Without an answer none has.
    """
    if not owners:
        return set()
    try:
        known = jobs.read_jobs(here.root)
        found = set()
        # one query per scheduler, for all owners
        for name in dict.fromkeys(job.scheduler for job in known):
            ours = [
                job
                for job in known
                if job.scheduler == name and any(job.id == one.job for one in owners)
            ]
            if not ours:
                continue
            snapshot = schedulers.reach(here, name).states(ours, fresh=True)
            # silence is no end: a task would run twice
            if snapshot.trouble is not None:
                continue
            by_id = {job.id: job for job in ours}
            for owner in owners:
                job = by_id.get(owner.job or "")
                if job is None or owner.element is None:
                    continue
                # elements are numbered in the plan, and the job may be a part of it
                if snapshot.of(job, owner.element - job.first).is_final:
                    found.add(owner.name)
    except WeighError:
        return set()
    return found
