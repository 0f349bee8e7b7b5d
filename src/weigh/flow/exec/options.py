"""The options of ``weigh exec``, and the values derived from them on this machine."""

import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

import msgspec

from weigh.errors import UsageError
from weigh.flow.run.options import RunOptions
from weigh.flow.run.run import blank_record
from weigh.model.plan import (
    PLAN_FILE,
    QUEUE_TASKS,
    PlannedElement,
    PlannedQueue,
    TaskKind,
)
from weigh.model.record import Allocation
from weigh.probe.driver import open_probe
from weigh.regular_file import only_regular
from weigh.runner import resources
from weigh.runner.build import ExecOptions
from weigh.runner.slots import NO_RESERVATION, SlotLayout, TaskReservation, lay_out
from weigh.schedulers import end_from_environment
from weigh.units import Seconds

_FILES_OF_A_TASK = 6  # its output, its regions, its files in /proc
_FILES_OF_WEIGH = 20  # joblog, events, records, and files read briefly
_FILES_OF_GPUS = 40  # what a driver's library opens


def choose_layout(
    options: ExecOptions, env: Mapping[str, str], opened: ExitStack
) -> SlotLayout:
    """Return the slots for the CPUs and GPUs of this job's allocation.

    Raises:
        UsageError: there is no GPU to use.
    """
    allocation = blank_record([], RunOptions(), env).allocation
    ours = resources.read_resources(
        env,
        allocation,
        affinity=resources.allowed_cpus(),
        quota=resources.read_cpu_quota(),
    )
    gpus = (ours.gpus or ())[: options.gpus]
    if options.per_gpu is not None or options.gpus is not None:
        gpus = _shared_gpus(env, allocation, options.gpus, opened)
        if not gpus:
            raise UsageError("--per-gpu: this job has no GPU")
    if options.jobs is not None:
        jobs = options.jobs
    elif options.per_gpu is not None:
        jobs = len(gpus) * options.per_gpu
    else:
        # by default a GPU has one task, and each task at least one CPU
        jobs = min(ours.cpus, len(gpus)) if gpus else ours.cpus
    if options.per_gpu is not None:
        gpus = gpus[:jobs]  # a slot has one GPU
    # one slot has all cores anyway
    cores = ours.cores if options.pin and jobs > 1 else ()
    return lay_out(jobs, cpu_count=ours.cpus, cores=cores, gpu_names=gpus)


def within_open_files(layout: SlotLayout, tasks: int) -> tuple[SlotLayout, str | None]:
    """Limit the slots to the file descriptors; return a warning if there are fewer.

    Raise the soft limit as far as necessary; the tasks inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(len(layout.slots), tasks)
    spare = (
        _open_file_limit() + _FILES_OF_WEIGH + (_FILES_OF_GPUS if layout.gpus else 0)
    )
    needed = spare + wanted * _FILES_OF_A_TASK
    # RLIM_INFINITY is -1 in Python, so it cannot be compared
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return layout, None
    # only root may go above the hard limit
    limit = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft = limit
    fit = max(1, (soft - spare) // _FILES_OF_A_TASK)
    if needed <= soft or fit >= wanted:
        return layout, None
    return msgspec.structs.replace(layout, slots=layout.slots[:fit]), (
        f"{soft} open files are enough for {fit} of {wanted} tasks at once "
        f"(ulimit -n {needed} for all)"
    )


def _open_file_limit() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return _FILES_OF_WEIGH


def _shared_gpus(
    env: Mapping[str, str],
    allocation: Allocation | None,
    count: int | None,
    opened: ExitStack,
) -> tuple[str, ...]:
    """Return the GPUs to use; *opened* releases their claims after the run."""
    from weigh.runner.gpus import GpuClaims  # noqa: PLC0415 - only with GPUs

    claims = GpuClaims()
    opened.callback(claims.release)
    return claims.choose(env, allocation, lambda: open_probe(env), gpu_count=count)


def end_at(limit: Seconds | None, env: Mapping[str, str]) -> Seconds | None:
    """Return the end of the time limit on the monotonic clock; None without one."""
    if limit is not None:
        return time.monotonic() + limit
    end = end_from_environment(env)
    # the end is a time of day; the monotonic clock does not jump when that is set
    return None if end is None else time.monotonic() + end - time.time()


def find_parameters(
    task_file: str, opened: ExitStack
) -> Callable[[int, str], dict[str, int | float | str]]:
    """Return a function that reads a task's parameters from the table of its sweep."""
    # weigh sweep writes the table next to its task file
    path = f"{os.path.splitext(task_file)[0]}.tsv"
    if not os.path.exists(path):
        return lambda _seq, _command: {}
    from weigh.runner.task_source import TaskParameters  # noqa: PLC0415 - after a sweep

    table = TaskParameters(path)
    opened.callback(table.close)
    return table.of


def planned_needs(task_file: str, tasks: int) -> Callable[[int], TaskReservation]:
    """Return a function for each task's planned need, from ``plan.json``.

    The plan is in the task file's folder. A task that is not in it has no planned need;
    no task has one if the task file was changed since.
    """
    kinds, element = _planned_element(task_file, tasks)
    places = () if element is None else element.kinds
    if len(places) != tasks or not all(0 <= place < len(kinds) for place in places):
        places = ()  # a resumed element states no kinds: its tasks need all it requests
    shares = [TaskReservation(kind.item.memory, kind.item.gpu_memory) for kind in kinds]

    def plan_of(task_number: int) -> TaskReservation:
        return (
            shares[places[task_number - 1]]
            if 0 < task_number <= len(places)
            else NO_RESERVATION
        )

    return plan_of


def digest_of_plan(task_file: str) -> str:
    """Return the digest that the plan in its folder has of a task file, or none."""
    folder, name = os.path.split(task_file)
    path = os.path.join(folder, PLAN_FILE)
    if not os.path.exists(path):
        return ""
    try:
        with open(path, "rb", opener=only_regular) as file:
            plan = msgspec.json.decode(file.read(), type=_PlannedElements)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return ""
    if plan.queue is not None and name == QUEUE_TASKS:
        return plan.queue.digest
    return next((one.digest for one in plan.elements if one.file == name), "")


def planned_numbers(task_file: str, tasks: int) -> Callable[[int], int]:
    """Return a function for each task's number in its plan; outside of one, its own."""
    _, element = _planned_element(task_file, tasks)
    numbers = () if element is None else element.tasks
    return lambda seq: numbers[seq - 1] if 0 < seq <= len(numbers) else seq


def _planned_element(
    task_file: str, tasks: int
) -> tuple[tuple[TaskKind, ...], PlannedElement | None]:
    """Return the element of the plan that *task_file* is, and the plan's kinds."""
    path = os.path.join(os.path.dirname(task_file), PLAN_FILE)
    try:
        with open(path, "rb", opener=only_regular) as file:
            plan = msgspec.json.decode(file.read(), type=_PlannedElements)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return (), None
    name = os.path.basename(task_file)
    for element in plan.elements:
        # another number of tasks: the file was changed, and the plan's numbers mean
        # others
        if element.file == name and len(element.tasks) == tasks:
            return plan.kinds, element
    return (), None


class _PlannedElements(msgspec.Struct):
    """The part of a plan that is read here."""

    kinds: tuple[TaskKind, ...]
    elements: tuple[PlannedElement, ...]
    queue: PlannedQueue | None = None
