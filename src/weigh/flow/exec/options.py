"""The options of ``weigh exec``, and the values derived from them on this machine."""

import os
import resource
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

import msgspec

from weigh.errors import UsageError
from weigh.flow.run.run import RunOptions, blank_record
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
from weigh.request import need_without_runner
from weigh.runner.run_context import ExecOptions
from weigh.runner.slots import (
    NO_RESERVATION,
    SlotLayout,
    TaskReservation,
    lay_out,
    read_cpu_quota,
    read_resources,
)
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
    ours = read_resources(
        env,
        allocation,
        affinity=frozenset(os.sched_getaffinity(0)),
        quota=read_cpu_quota(),
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


class PlannedTasks:
    """What the plan in the folder of a task file states of its tasks.

    A task that is not in it has no planned need and its own number; so has each task of
    a file that has another number of tasks than in the plan: it was changed.
    """

    def __init__(self, task_file: str, tasks: int) -> None:
        """Read ``plan.json`` of a task file with so many tasks, if there is one."""
        folder, name = os.path.split(task_file)
        path = os.path.join(folder, PLAN_FILE)
        plan = _PlannedElements()
        with (
            suppress(OSError, UnicodeDecodeError, msgspec.DecodeError),
            open(path, "rb", opener=only_regular) as file,
        ):
            plan = msgspec.json.decode(file.read(), type=_PlannedElements)
        element = next((one for one in plan.elements if one.file == name), None)
        self.digest = "" if element is None else element.digest
        if plan.queue is not None and name == QUEUE_TASKS:
            self.digest = plan.queue.digest
        is_unchanged = element is not None and len(element.tasks) == tasks
        self._numbers = element.tasks if element and is_unchanged else ()
        # none if it was resumed: then its tasks need all that it requests
        self._kinds = element.kinds if element and is_unchanged else ()
        count = len(plan.kinds)
        if len(self._kinds) != tasks or any(not 0 <= k < count for k in self._kinds):
            self._kinds = ()
        self._needs = [
            TaskReservation(
                need_without_runner(kind, plan.headroom), kind.item.gpu_memory
            )
            for kind in plan.kinds
        ]

    def need_of(self, task_number: int) -> TaskReservation:
        """Return a task's planned need."""
        if 0 < task_number <= len(self._kinds):
            return self._needs[self._kinds[task_number - 1]]
        return NO_RESERVATION

    def number_of(self, task_number: int) -> int:
        """Return the number of a task in its plan."""
        if 0 < task_number <= len(self._numbers):
            return self._numbers[task_number - 1]
        return task_number


class _PlannedElements(msgspec.Struct):
    """The part of a plan that is read here."""

    headroom: float = 0.0  # that the needs of the kinds include
    kinds: tuple[TaskKind, ...] = ()
    elements: tuple[PlannedElement, ...] = ()
    queue: PlannedQueue | None = None
