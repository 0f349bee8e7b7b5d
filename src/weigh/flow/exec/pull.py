"""``weigh exec --pull``: the queue of a plan, and which of its runs are gone."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from weigh.errors import FormatError, StoreError, UsageError, WeighError
from weigh.flow.plan.directory import current_files, files_after, read_plan
from weigh.flow.site import schedulers
from weigh.model.plan import QUEUE_TASKS, Item
from weigh.planning.queue_order import room_of, time_to_start, units_of
from weigh.runner import events, previous_run
from weigh.runner.build import ExecOptions, Shared
from weigh.runner.shared_queue import Owner
from weigh.runner.slots import Reservation
from weigh.runner.task_source import TaskSource
from weigh.store import jobs, location
from weigh.store.identity import is_alive, this_machine

_LOGS = "log"


def queue_folder(folder: str) -> str:
    """Return the directory of the queue of a plan; *folder* is either of them.

    Raises:
        UsageError: the plan has no queue, or there is no plan.
        FormatError: it is no plan.
    """
    if os.path.exists(os.path.join(folder, QUEUE_TASKS)):
        return folder
    plan = read_plan(folder)
    if plan.queue is None:
        raise UsageError(
            f"{folder} has no shared queue: each element has its own tasks "
            "(weigh plan TASKS --hours H makes one)"
        )
    return os.path.join(folder, plan.queue.folder)


def task_file(folder: str) -> str:
    """Return the current task file of the queue in *folder*."""
    return os.path.join(current_files(folder), QUEUE_TASKS)


def completed(options: ExecOptions, folder: str) -> ExecOptions:
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


def shared_queue(
    folder: str,
    source: TaskSource,
    gone: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
) -> tuple[Shared, Callable[[int], Reservation]]:
    """Return the queue in *folder*, and a function for each task's planned need.

    *source* has its current tasks; those that are added later are read into it.

    Raises:
        UsageError, FormatError, StoreError: its plan cannot be read.
    """
    current = _Current(folder, source)
    room = room_of(current.plan)
    return Shared(
        folder=folder,
        units=current.units,
        more=current.more,
        elements=current.elements,
        kind_of=lambda seq: current.queue.kinds[seq - 1],
        time_to_start=lambda kind: current.times[kind],
        room=Reservation() if room is None else _reservation(room),
        gone=lambda owners: _gone(owners, folder, gone, cwd=cwd, env=env),
    ), lambda seq: current.needs[current.queue.kinds[seq - 1]]


class _Current:
    """The plan of a queue, to which tasks may be added at any time."""

    def __init__(self, folder: str, source: TaskSource) -> None:
        """Read the plan next to the tasks of *source*, of the queue in *folder*."""
        self._folder = folder
        self._source = source
        self._read(os.path.dirname(source.name))

    def _read(self, files: str) -> None:
        plan = read_plan(files)
        if plan.queue is None:
            raise UsageError(f"{files} is not the directory of a queue")
        self._files, self.plan, self.queue = files, plan, plan.queue
        self.elements = max(1, len(plan.elements))
        units = units_of(plan.queue, plan.kinds, self.elements)
        self.units = [unit.tasks for unit in units]
        self.needs = [_reservation(kind.item) for kind in plan.kinds]
        self.times = [time_to_start(kind) for kind in plan.kinds]

    def more(self) -> Sequence[Sequence[int]]:
        """Return the units of tasks that were added since.

        Raises:
            StoreError: their files cannot be read.
        """
        if not os.path.isdir(files_after(self._folder, self._files)):
            return ()
        known = len(self.units)
        try:
            self._read(current_files(self._folder))
            self._source.go_on_in(os.path.join(self._files, QUEUE_TASKS))
        except (FormatError, UsageError) as error:
            raise StoreError(f"cannot read added tasks: {error}") from error
        return self.units[known:]


def _reservation(item: Item) -> Reservation:
    return Reservation(item.memory, item.gpu_memory, item.cpus)


def _gone(
    owners: Collection[Owner],
    folder: str,
    hosts: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
) -> set[str]:
    """Return the names of the runs that have certainly ended, with all their tasks."""
    here = this_machine()
    found: set[str] = set()
    remote: list[Owner] = []
    for owner in owners:
        if not owner.joblog:
            continue
        past = _past(os.path.join(folder, owner.joblog) + events.SUFFIX)
        if past is not None and owner.run not in past.open_runs:
            found.add(owner.name)  # it wrote so itself, as its last event
        elif here.sees_processes_of(owner.machine):
            dead = not is_alive(owner.process)
            if dead and not (past and previous_run.find_survivors(past, here)):
                found.add(owner.name)
        elif here.is_later_boot_of(owner.machine) or owner.machine.host in hosts:
            found.add(owner.name)
        elif owner.job is not None:
            remote.append(owner)
    return found | _ended_jobs(remote, cwd=cwd, env=env)


def _past(path: str) -> events.Past | None:
    try:
        with open(path, "rb") as file:
            return events.read_past(file, lambda _: False)
    except OSError:
        return None


def _ended_jobs(
    owners: Sequence[Owner], *, cwd: str, env: Mapping[str, str]
) -> set[str]:
    """Return the names of the runs whose elements have ended, as a scheduler reports.

    Without an answer none has.
    """
    if not owners:
        return set()
    try:
        root = location.locate(cwd, env)
        known = jobs.read_jobs(root)
        found = set()
        for name in dict.fromkeys(job.scheduler for job in known):
            ours = [
                job
                for job in known
                if job.scheduler == name and any(job.id == one.job for one in owners)
            ]
            if not ours:
                continue
            snapshot = schedulers.reach(name, root=root, env=env).states(
                ours, fresh=True
            )
            if snapshot.trouble is not None:
                continue
            by_id = {job.id: job for job in ours}
            for owner in owners:
                job = by_id.get(owner.job or "")
                if job is None or owner.element is None:
                    continue
                if snapshot.of(job, owner.element - job.first).is_final:
                    found.add(owner.name)
    except WeighError:
        return set()
    return found
