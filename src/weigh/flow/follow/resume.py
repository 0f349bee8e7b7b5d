"""``weigh resume``: submit unfinished tasks again, with a larger request if needed."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from weigh._version import __version__
from weigh.errors import UsageError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.resume_policy import (
    Choice,
    ResumeOptions,
    choose,
    continued,
    enlarged,
    keep_together,
)
from weigh.flow.follow.tasks import tail_of
from weigh.flow.follow.view import View, look, merged
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import read_plan
from weigh.flow.site import schedulers
from weigh.flow.submit.checks import check_request
from weigh.flow.submit.job_parts import Origin, own_flags, parts_of, pinned
from weigh.flow.submit.job_request import parse_gpus, refuse_absent
from weigh.flow.submit.rounds import Round, Sendings, reaching, settle_all
from weigh.flow.submit.staging import staged
from weigh.flow.submit.submit_script import make_numbered, programs_of, ship
from weigh.model.job import (
    CANCELLING,
    OUTCOME_UNKNOWN,
    JobRequest,
    JobScript,
    Submitted,
    TaskState,
)
from weigh.model.plan import QUEUE_TASKS, Element, Item, Kind, Plan, Queue
from weigh.planning.queue_order import units_of
from weigh.render.resume_lines import Again, Left, Resumed
from weigh.runner.shared_queue import OwnClaims, Owner
from weigh.runner.task_source import TaskSource
from weigh.store import jobs as jobs_file
from weigh.store import location
from weigh.store.identity import new_id, process, this_machine

_FOLDER = "resume_"
_TO_END = 60.0  # seconds that a cancelled job may take to end
_PAUSE = 1.0
_Alike = tuple[int, int, JobRequest]  # factors for memory and time, and the request
Chosen = Sequence[tuple[TaskState, Choice]]


def resume(
    name: str,
    options: ResumeOptions,
    *,
    cwd: str,
    env: Mapping[str, str],
    notify: Callable[[str], None] = lambda _: None,
) -> Resumed:
    """Submit the unfinished tasks of a plan, with one job per request.

    *notify* receives the outcome of an earlier submission that had no answer, and what
    resume waits for.

    Raises:
        UsageError: there is no such job, or another process is resuming it, or its
            scheduler has no queues to choose from.
        SchedulerError: the scheduler refuses or does not answer.
    """
    root = location.locate(cwd, env)
    settle_all(root, env, notify)
    chain = _chain(name, root, env)
    sendings = Sendings(chain[0].folder, root=root, reach=reaching(root, env))
    number = sendings.next_number(notify)
    chain = _chain(
        name, root, env
    )  # again: jobs were settled or sent by others meanwhile
    known = with_foreign(jobs_file.read_jobs(root), chain)
    views = _ended_views(chain, known, root=root, env=env, notify=notify)
    if options.queue is not None:
        refuse_absent(JobRequest(queue=options.queue), chain[-1].scheduler)
    if chain[-1].own is not None:
        from weigh.flow.follow.resume_script import (  # noqa: PLC0415 - no plan
            resume_script,
        )

        return resume_script(
            views,
            options,
            sendings=sendings,
            number=number,
            root=root,
            env=env,
            notify=notify,
        )
    choices = [*_choices(views, options), *_never_sent(views)]
    left = tuple(
        Left(task.task, choice.reason) for task, choice in choices if not choice.run
    )
    if any(view.job.staging is not None for view in views):
        choices = list(keep_together(choices))
    groups = [_Group.of(chosen, views, options) for chosen in _alike(choices, views)]
    if options.dry_run:
        return Resumed(views[-1].job, tuple(one.again for one in groups), left)
    for one in groups:
        one.check(views, root=root, env=env)
    if not groups:
        return Resumed(views[-1].job, (), left)
    sending = sendings.begin(number)
    try:
        kept = _claimed(choices, views, number)
        if len(kept) < len(choices):
            groups = [_Group.of(some, views, options) for some in _alike(kept, views)]
        again = tuple(one.submit(views, sending) for one in groups)
    finally:
        sending.close()
    return Resumed(views[-1].job, again, left)


def _ended_views(
    chain: Sequence[Submitted],
    known: Sequence[Submitted],
    *,
    root: str,
    env: Mapping[str, str],
    notify: Callable[[str], None],
) -> list[View]:
    """Return the current views; wait briefly for jobs that are being cancelled."""
    until = time.monotonic() + _TO_END
    waited = False
    while True:
        views = list(look(chain, known, root=root, env=env, fresh=True))
        ending = [
            view.job.id
            for view in views
            if any(state.reason == CANCELLING for state in view.elements)
        ]
        if not ending or time.monotonic() > until:
            return views
        if not waited:
            notify(f"waiting for cancelled job {', '.join(ending)} to end")
        waited = True
        time.sleep(_PAUSE)


def _chain(name: str, root: str, env: Mapping[str, str]) -> list[Submitted]:
    known = jobs_file.read_jobs(root)
    job = named_jobs(known, name, root=root, env=env)[-1]
    return jobs_file.chain_of(with_foreign(known, [job]), job)


def _alike(
    choices: Sequence[tuple[TaskState, Choice]], views: Sequence[View]
) -> list[Chosen]:
    """Group the tasks to run by their request and the factors for it."""
    requests = {view.job.id: _plain(view.job.request) for view in views}
    groups: dict[_Alike, list[tuple[TaskState, Choice]]] = {}
    for task, choice in choices:
        if choice.run:
            kind = (choice.memory, choice.time, requests[task.job])
            groups.setdefault(kind, []).append((task, choice))
    return list(groups.values())


def _plain(request: JobRequest) -> JobRequest:
    """Return the request without dependencies, excluded nodes and throttle."""
    return msgspec.structs.replace(
        request, after=(), exclude=(), throttle=None, extra=own_flags(request)
    )


def _choices(
    views: Sequence[View], options: ResumeOptions
) -> list[tuple[TaskState, Choice]]:
    """Return the decision on each task that is not done."""
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
        answered = by_job[task.job].snapshot.trouble is None
        if options.unknown and task.state == "UNKNOWN" and answered:
            choice = msgspec.structs.replace(choice, run=True, reason=OUTCOME_UNKNOWN)
        if options.bugs and task.state == "FAILED":
            choice = msgspec.structs.replace(choice, run=True)
        choices.append((task, _possible(choice, by_job[task.job].job.request, options)))
    return choices


def _never_sent(views: Sequence[View]) -> Iterator[tuple[TaskState, Choice]]:
    """Yield the tasks of the parts of a plan that were not submitted."""
    first_job = views[0].job
    if first_job.resumes is not None or pinned(first_job.request):
        return
    there = merged(views)
    for number, element in enumerate(read_plan(first_job.plan_folder).elements):
        for seq, task in enumerate(element.tasks, start=1):
            if task not in there:
                state = TaskState(
                    task=task,
                    job=first_job.id,
                    element=number - first_job.first,
                    seq=seq,
                    state="UNKNOWN",
                )
                yield state, Choice(run=True, reason="was not submitted")


def _possible(choice: Choice, had: JobRequest, options: ResumeOptions) -> Choice:
    """Return the choice; do not run a task if the request to double is not known."""
    if not choice.run:
        return choice
    for lacks, known, option in (
        (
            choice.memory > 1 and options.memory is None,
            had.memory if had.virtual_memory is None else had.virtual_memory,
            "--memory SIZE",
        ),
        (choice.time > 1 and options.time is None, had.time_limit, "--time TIME"),
    ):
        if lacks and known is None:
            reason = f"{choice.reason}, the queue's default: {option}"
            return msgspec.structs.replace(choice, run=False, reason=reason)
    return choice


class _Group(msgspec.Struct, frozen=True):
    """Tasks that go into one job, or into several if the array would be too long."""

    before: Submitted
    plan: Plan
    tasks: tuple[TaskState, ...]
    again: Again

    @classmethod
    def of(
        cls, chosen: Chosen, views: Sequence[View], options: ResumeOptions
    ) -> "_Group":
        """Return the group of these tasks, with its plan and request."""
        tasks = tuple(task for task, _ in chosen)
        before = next(
            view.job for view in reversed(views) if view.job.id == tasks[0].job
        )
        request = _request(before, [choice for _, choice in chosen], options)
        plan = read_plan(views[0].job.plan_folder)
        if plan.queue is not None:
            made = _pulled(tasks, chosen, plan, views)
            return cls(before, made, tasks, _again(tasks, chosen, request, made))
        elements = tuple(_elements(tasks, plan, views))
        if any(choice.memory > 1 for _, choice in chosen):  # the plan underestimated
            elements = tuple(
                msgspec.structs.replace(element, kinds=()) for element in elements
            )
        made = msgspec.structs.replace(plan, elements=elements, left_out=())
        return cls(before, made, tasks, _again(tasks, chosen, request, made))

    def check(
        self, views: Sequence[View], *, root: str, env: Mapping[str, str]
    ) -> None:
        """Compare the request with the cluster's limits before the submission.

        Raises:
            UsageError: the job would be refused, or never start.
        """
        script = self._script(views, self.before.folder, root=root)
        scheduler = views[-1].scheduler
        if script.setup.checks:
            check_request(
                script,
                scheduler.render(script),
                scheduler=schedulers.kind_of(scheduler.name),
                env=schedulers.reaching(scheduler.name, env),
                elements=script.elements,
            )

    def submit(self, views: Sequence[View], sending: Round) -> Again:
        """Write the plan of these tasks and submit it."""
        folder = make_numbered(views[0].job.folder, _FOLDER)
        _write_plan(folder, self.plan, self.tasks, views)
        script = self._script(views, folder, root=sending.sender.store)
        scheduler = views[-1].scheduler
        origin = Origin(views[-1].job.id, "; ".join(self.again.reasons))
        jobs = [
            ship(scheduler, part, self.plan, sending, origin=origin)
            for part in parts_of(script, scheduler.array_limit(script.elements))
        ]
        return msgspec.structs.replace(self.again, job=jobs[0], more=tuple(jobs[1:]))

    def _script(self, views: Sequence[View], folder: str, *, root: str) -> JobScript:
        before, elements = self.before, self.plan.elements
        script = JobScript(
            name=views[0].job.name,
            folder=folder,
            cwd=views[0].job.cwd,
            store=root,
            python=sys.executable,
            elements=len(elements),
            together=self.plan.together,
            queue=self.plan.queue.folder if self.plan.queue else "",
            request=self.again.request,
            setup=before.setup,
            runner=before.runner,
            programs=programs_of(self.plan),
            staging=continued(before.staging, self.tasks, [view.job for view in views]),
            requeue=before.requeue,
            version=__version__,
        )
        return staged(script, schedulers.kind_of(views[-1].job.scheduler))


def _again(
    tasks: Sequence[TaskState], chosen: Chosen, request: JobRequest, plan: Plan
) -> Again:
    reasons = tuple(dict.fromkeys(choice.reason for _, choice in chosen))
    numbers = tuple(task.task for task in tasks)
    return Again(numbers, reasons, request, len(plan.elements))


def _pulled(
    tasks: Sequence[TaskState], chosen: Chosen, plan: Plan, views: Sequence[View]
) -> Plan:
    """Return a plan whose elements pull these tasks from a queue of their own.

    What a task needs grows as the request does.
    """
    more = chosen[0][1]
    plans = {view.job.id: read_plan(view.job.plan_folder) for view in views}
    kinds: list[Kind] = []
    places: list[int] = []
    for task in tasks:
        old = plans[task.job]
        queue = old.queue
        kind = old.kinds[queue.kinds[task.seq - 1]] if queue else old.kinds[0]
        kind = _grown(kind, more)
        if kind not in kinds:
            kinds.append(kind)
        places.append(kinds.index(kind))
    slots = plan.together
    count = min(len(plan.elements), -(-len(tasks) // slots))
    return msgspec.structs.replace(
        plan,
        kinds=tuple(kinds),
        elements=tuple(
            msgspec.structs.replace(element, memory=element.memory * more.memory)
            for element in plan.elements[:count]
        ),
        left_out=(),
        queue=Queue(
            folder=f"queue_{new_id()}",
            tasks=tuple(task.task for task in tasks),
            kinds=tuple(places),
            slots=slots,
            waves=-(-len(tasks) // slots),
        ),
    )


def _grown(kind: Kind, more: Choice) -> Kind:
    def grown(item: Item) -> Item:
        time = None if item.time is None else item.time * more.time
        return msgspec.structs.replace(
            item, memory=item.memory * more.memory, time=time
        )

    item, used = grown(kind.item), grown(kind.used)
    return msgspec.structs.replace(kind, item=item, used=used, notes=())


def _claimed(
    choices: Sequence[tuple[TaskState, Choice]], views: Sequence[View], number: int
) -> list[tuple[TaskState, Choice]]:
    """Return the choices without tasks that other runs took from their queue meanwhile.

    The round of this *number* claims the others there, so that nobody else runs them.
    """
    kept = [one for one in choices if not one[1].run]
    for view in views:
        job, plan = view.job, read_plan(view.job.plan_folder)
        ours = [one for one in choices if one[1].run and one[0].job == job.id]
        if plan.queue is None or not ours:
            kept += ours
            continue
        queue = os.path.join(job.folder, plan.queue.folder)
        owner = Owner(
            name=f"round_{number}",
            joblog="",
            run="",
            machine=this_machine(),
            process=process(os.getpid()),
            folder=queue,
        )
        claims = OwnClaims(queue, owner)
        claims.enter()
        units = units_of(plan.queue, plan.kinds, max(1, len(plan.elements)))
        unit_of = {seq: at for at, one in enumerate(units) for seq in one.tasks}
        wanted = {unit_of[task.seq]: task.claims for task, _ in ours}
        won = {unit for unit, before in wanted.items() if claims.take(unit, before)}
        kept += [one for one in ours if unit_of[one[0].seq] in won]
    return kept


def _request(
    before: Submitted, choices: Sequence[Choice], options: ResumeOptions
) -> JobRequest:
    """Return the earlier request, with more of what was too small."""
    request = enlarged(before.request, choices, options)
    gpu_type, gpus = parse_gpus(options.gpus)
    return msgspec.structs.replace(
        request,
        gpus=gpus or request.gpus,
        gpu_type=gpu_type if gpus else request.gpu_type,
        after=(),
        extra=own_flags(request),
    )


def _elements(
    tasks: Sequence[TaskState], plan: Plan, views: Sequence[View]
) -> Iterator[Element]:
    """Yield elements with the tasks grouped as before: they fitted together then.

    If all tasks need the same, the elements are filled up.
    """
    plans = {view.job.id: read_plan(view.job.plan_folder) for view in views}
    firsts = {view.job.id: view.job.first for view in views}
    most = max(len(element.tasks) for element in plan.elements)
    bins: list[tuple[Element, list[TaskState]]] = []
    keys: dict[tuple[str, int] | int, int] = {}
    alike = len(plan.kinds) <= 1 and views[0].job.staging is None
    for place, task in enumerate(tasks):
        key = place // most if alike else (task.job, task.element)
        if key not in keys:
            keys[key] = len(bins)
            element = plans[task.job].elements[firsts[task.job] + task.element]
            bins.append((element, []))
        bins[keys[key]][1].append(task)
    for number, (element, members) in enumerate(bins):
        kinds = [_kind(task, plans[task.job], firsts[task.job]) for task in members]
        yield msgspec.structs.replace(
            element,
            file=f"tasks_{number}.txt",
            tasks=tuple(task.task for task in members),
            kinds=tuple(kind for kind in kinds if kind is not None)
            if None not in kinds
            else (),
        )


def _kind(task: TaskState, plan: Plan, first: int) -> int | None:
    """Return the index of a task's kind in its plan; None where not known."""
    kinds = plan.elements[first + task.element].kinds
    return kinds[task.seq - 1] if 0 < task.seq <= len(kinds) else None


def _write_plan(
    folder: str, plan: Plan, tasks: Sequence[TaskState], views: Sequence[View]
) -> None:
    """Write the task files, with the lines copied from the earlier task files."""
    by_job = {view.job.id: view.job for view in views}
    where = {task.task: task for task in tasks}
    queues = {job.id: read_plan(job.plan_folder).queue for job in by_job.values()}
    job_queues = {job: queue.folder if queue else "" for job, queue in queues.items()}
    with ExitStack() as opened:
        sources: dict[str, TaskSource] = {}

        def text_of(number: int) -> bytes:
            task = where[number]
            job = by_job[task.job]
            path = os.path.join(
                job.plan_folder, f"tasks_{job.first + task.element}.txt"
            )
            if job_queues[job.id]:
                path = os.path.join(job.folder, job_queues[job.id], QUEUE_TASKS)
            if path not in sources:
                sources[path] = TaskSource(path)
                opened.callback(sources[path].close)
            if task.seq > len(sources[path]):
                raise UsageError(f"{path} no longer has task {task.seq}")
            return sources[path].text(task.seq)

        plan_directory.write(folder, plan, text_of)
