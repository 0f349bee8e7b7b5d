"""``weigh resume``: the tasks that did not finish, once more, with what they lacked."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from weigh import __version__
from weigh.errors import UsageError
from weigh.flow.follow.choice import Choice, choose
from weigh.flow.follow.staging import continued, keep_together
from weigh.flow.follow.status import View, look, merged
from weigh.flow.follow.tasks import tail_of
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site import schedulers
from weigh.flow.submit.ship import Origin, read_plan, ship
from weigh.flow.submit.staging import staged
from weigh.flow.submit.wanted import parse_gpus
from weigh.model.job import JobScript, Submitted, TaskState, Wanted
from weigh.model.plan import Element, Plan
from weigh.report.resume_lines import Again, Left, Resumed
from weigh.request import round_memory, round_time
from weigh.runner.task_source import TaskSource
from weigh.store import jobs as jobs_file
from weigh.store import location
from weigh.units import parse_duration, parse_size

_FOLDER = "resume_"
Kind = tuple[int, int]  # times the memory, times the time


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as written; None is left to why tasks did not finish."""

    memory: str | None = None
    time: str | None = None
    queue: str | None = None
    gpus: str | None = None
    bugs: bool = False
    dry_run: bool = False


def resume(name: str, wishes: Wishes, *, cwd: str, env: Mapping[str, str]) -> Resumed:
    """Submit the tasks of a plan that did not finish, in a job for each need.

    Raises:
        UsageError: there is no such job, or nothing to resume.
        SchedulerError: the scheduler refuses or does not answer.
    """
    root = location.locate(cwd, env)
    known = jobs_file.read_jobs(root)
    chain = jobs_file.chain_of(known, jobs_file.find_jobs(known, name)[-1])
    views = list(look(chain, known, root=root, env=env))
    choices = _choices(views, bugs=wishes.bugs)
    left = tuple(
        Left(task.task, choice.reason) for task, choice in choices if not choice.run
    )
    groups: dict[Kind, list[tuple[TaskState, Choice]]] = {}
    if any(view.job.staging is not None for view in views):
        choices = list(keep_together(choices))
    for task, choice in choices:
        if choice.run:
            kind = (choice.memory, choice.time)
            groups.setdefault(kind, []).append((task, choice))
    again = tuple(
        _resume_group(chosen, views, wishes, root=root)
        for _, chosen in sorted(groups.items())
    )
    return Resumed(views[-1].job, again, left)


def _choices(views: Sequence[View], *, bugs: bool) -> list[tuple[TaskState, Choice]]:
    """Decide on each task that is not done."""
    by_job = {view.job.id: view for view in views}
    failures = Counter(
        task.task for view in views for task in view.tasks if task.state == "FAILED"
    )
    choices = []
    for _, task in sorted(merged(views).items()):
        if task.state == "COMPLETED":
            continue
        element = by_job[task.job].elements[task.element]
        words = tail_of(task.output) if task.output else ""
        choice = choose(task, element, words, failures=failures[task.task])
        if bugs and task.state == "FAILED":
            choice = msgspec.structs.replace(choice, run=True)
        choices.append((task, choice))
    return choices


def _resume_group(
    chosen: Sequence[tuple[TaskState, Choice]],
    views: Sequence[View],
    wishes: Wishes,
    *,
    root: str,
) -> Again:
    """Submit one job with these tasks."""
    first, last = views[0].job, views[-1]
    tasks = [task for task, _ in chosen]
    before = next(view for view in reversed(views) if view.job.id == tasks[0].job).job
    wanted = _wanted(before, [choice for _, choice in chosen], wishes)
    plan = read_plan(first.folder)
    elements = tuple(_elements(tasks, plan, views))
    reasons = tuple(dict.fromkeys(choice.reason for _, choice in chosen))
    again = Again(tuple(task.task for task in tasks), reasons, wanted, len(elements))
    if wishes.dry_run:
        return again
    folder = _free_folder(first.folder)
    made = msgspec.structs.replace(plan, elements=elements, left_out=())
    _write_plan(folder, made, tasks, views)
    staging = continued(before.staging, tasks, [view.job for view in views])
    script = JobScript(
        name=first.name,
        folder=folder,
        cwd=first.cwd,
        store=root,
        python=sys.executable,
        elements=len(elements),
        together=max(len(element.tasks) for element in elements),
        wanted=wanted,
        setup=before.setup,
        runner=before.runner,
        staging=staging,
        requeue=before.requeue,
        version=__version__,
    )
    origin = Origin(last.job.id, "; ".join(reasons))
    job = ship(
        last.scheduler,
        staged(script, schedulers.kind_of(last.job.scheduler)),
        made,
        root=root,
        origin=origin,
    )
    return msgspec.structs.replace(again, job=job)


def _wanted(before: Submitted, choices: Sequence[Choice], wishes: Wishes) -> Wanted:
    """Ask for what was asked before, and more of what was short."""
    wanted = before.wanted
    more = choices[0]
    memory, limit = wanted.memory, wanted.time_limit
    virtual = wanted.virtual_memory
    if more.memory > 1 and memory is not None:
        memory = round_memory(memory * more.memory)
        virtual = None if virtual is None else round_memory(virtual * more.memory)
    if more.time > 1 and limit is not None:
        limit = round_time(limit * more.time)
    gpu_type, gpus = parse_gpus(wishes.gpus)
    avoid = [choice.avoid for choice in choices if choice.avoid]
    return msgspec.structs.replace(
        wanted,
        memory=parse_size(wishes.memory) if wishes.memory else memory,
        virtual_memory=virtual,
        time_limit=parse_duration(wishes.time) if wishes.time else limit,
        queue=wishes.queue or wanted.queue,
        gpus=gpus or wanted.gpus,
        gpu_type=gpu_type if gpus else wanted.gpu_type,
        after=(),
        exclude=tuple(dict.fromkeys((*wanted.exclude, *avoid))),
    )


def _elements(
    tasks: Sequence[TaskState], plan: Plan, views: Sequence[View]
) -> Iterator[Element]:
    """Put tasks together as they were: what fitted side by side still does.

    Where all tasks need the same, the places of those that are done are taken.
    """
    plans = {view.job.id: read_plan(view.job.folder) for view in views}
    firsts = {view.job.id: view.job.first for view in views}
    most = max(len(element.tasks) for element in plan.elements)
    bins: list[tuple[Element, list[int]]] = []
    keys: dict[tuple[str, int] | int, int] = {}
    alike = len(plan.kinds) <= 1 and views[0].job.staging is None
    for place, task in enumerate(tasks):
        key = place // most if alike else (task.job, task.element)
        if key not in keys:
            keys[key] = len(bins)
            element = plans[task.job].elements[firsts[task.job] + task.element]
            bins.append((element, []))
        bins[keys[key]][1].append(task.task)
    for number, (element, members) in enumerate(bins):
        yield msgspec.structs.replace(
            element, file=f"tasks_{number}.txt", tasks=tuple(members)
        )


def _write_plan(
    folder: str, plan: Plan, tasks: Sequence[TaskState], views: Sequence[View]
) -> None:
    """Write the task files from those that the tasks stand in."""
    by_job = {view.job.id: view.job for view in views}
    where = {task.task: task for task in tasks}
    with ExitStack() as opened:
        sources: dict[str, TaskSource] = {}

        def text_of(number: int) -> bytes:
            task = where[number]
            job = by_job[task.job]
            path = os.path.join(job.folder, f"tasks_{job.first + task.element}.txt")
            if path not in sources:
                sources[path] = TaskSource(path)
                opened.callback(sources[path].close)
            if task.seq > len(sources[path]):
                raise UsageError(f"{path} has lost its task {task.seq}")
            return sources[path].text(task.seq)

        plan_directory.write(folder, plan, text_of)


def _free_folder(plan_folder: str) -> str:
    number = 1
    while os.path.lexists(os.path.join(plan_folder, f"{_FOLDER}{number}")):
        number += 1
    return os.path.join(plan_folder, f"{_FOLDER}{number}")
