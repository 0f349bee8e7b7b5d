"""``weigh resume``: submit unfinished tasks again, with a larger request if needed."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec
from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import SchedulerError, SubmissionUnknownError, UsageError, WeighError
from weigh.flow.follow import resume_script
from weigh.flow.follow.first_tasks import never_sent, uses_of
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.notification import mail_end, notify_end, notify_once
from weigh.flow.follow.tasks import goes_on, tail_of
from weigh.flow.follow.view import View, look, merged
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import plan_of, tasks_of
from weigh.flow.site import schedulers
from weigh.flow.submit.checks import check_request
from weigh.flow.submit.healer import send_following, without_healer
from weigh.flow.submit.job_parts import Origin, parts_of
from weigh.flow.submit.job_request import parse_gpus, refuse_absent
from weigh.flow.submit.rounds import (
    Round,
    Sendings,
    Stopped,
    TakenError,
    reaching,
    settle_all,
)
from weigh.flow.submit.staging import staged
from weigh.flow.submit.submit_script import make_numbered, programs_of, ship
from weigh.model.job import (
    CANCELLING,
    OUTCOME_UNKNOWN,
    RESUME,
    Heal,
    JobRequest,
    JobScript,
    Submitted,
    TaskState,
)
from weigh.model.plan import SCHEMA_OF_QUEUES, Element, Item, Kind, Plan, Queue
from weigh.planning.first_tasks import is_rest, kinds_of, rest_choices
from weigh.planning.queue_order import size_of_round, units_of
from weigh.planning.resume_policy import (
    Before,
    Choice,
    ResumeOptions,
    at_once,
    change_words,
    choose,
    continued,
    cpu_hours,
    enlarged,
    fitted,
    in_granted,
    is_bug,
    is_held,
    keep_together,
    why_stop,
    with_largest_need,
)
from weigh.render.resume_lines import Again, Left, Resumed
from weigh.runner.shared_queue import OwnClaims, Owner
from weigh.runner.task_source import TaskSource
from weigh.store import jobs as jobs_file
from weigh.store import location
from weigh.store.identity import new_id, process, this_machine

_TO_END = 60.0  # seconds that a cancelled job may take to end
_PAUSE = 1.0
_MOST_HEALERS = 3  # per round that is allowed
_TO_HEAL = 480.0  # seconds: a healer's time limit is longer
_TO_ACCOUNT = 300.0  # seconds within which accounting shows an end
# factors for memory and time, memory and tasks of an element, tasks before, the request
_Alike = tuple[int, int, int | None, int, int, JobRequest]
Chosen = Sequence[tuple[TaskState, Choice]]
Notify = Callable[[str], None]


def resume(  # noqa: PLR0913 - keyword-only past the second
    name: str,
    options: ResumeOptions,
    *,
    cwd: str,
    env: Mapping[str, str],
    notify: Notify = lambda _: None,
    own: Submitted | None = None,
) -> Resumed:
    """Submit the unfinished tasks of a plan, with one job per request.

    Nothing is submitted where *own*, an array that was sent ahead, takes what fits in
    it: that is then the next round, under its id. *notify* receives the outcome
    of an earlier submission that had no answer, and what resume waits for. To heal, it
    waits for another sender, whose round then counts.

    Raises:
        UsageError: there is no such job, or another process is resuming it, or its
            scheduler has no queues to choose from.
        SchedulerError: the scheduler refuses or does not answer.
    """
    until = time.monotonic() + _TO_HEAL
    waited = ""
    while True:
        try:
            return _resume(name, options, cwd=cwd, env=env, notify=notify, own=own)
        except (TakenError, SubmissionUnknownError) as error:
            if not options.heal or time.monotonic() > until:
                raise
            if str(error) != waited:
                waited = str(error)
                notify(waited)
            time.sleep(_PAUSE)


def _resume(  # noqa: PLR0913 - as resume
    name: str,
    options: ResumeOptions,
    *,
    cwd: str,
    env: Mapping[str, str],
    notify: Notify,
    own: Submitted | None,
) -> Resumed:
    root = location.locate(cwd, env)
    settle_all(root, env, notify)
    chain = chain_of_plan(name, root, env)
    sendings = Sendings(chain[0].folder, root=root, reach=reaching(root, env))
    number = sendings.next_number(notify)
    chain = chain_of_plan(
        name, root, env
    )  # again: jobs were settled or sent by others meanwhile
    healers = sendings.healers()
    healer = own or (healers[-1] if healers else None)
    known = with_foreign(jobs_file.read_jobs(root), chain)
    known += [] if healer is None else [healer]
    views = _ended_views(
        chain,
        known,
        healer,
        heals=own is not None,
        to_heal=options.heal,
        root=root,
        env=env,
        notify=notify,
    )
    if options.heal and not options.dry_run:
        _notify_of(views, notify)
    if options.queue is not None:
        refuse_absent(JobRequest(queue=options.queue), chain[-1].scheduler)
    case = _Case.of(views, options, root=root, env=env, own=own)
    if case.groups and chain[-1].own is not None:
        for line in resume_script.changes(chain[-1], views, root, env):
            notify(line)
    for one in () if options.dry_run or own is not None else case.groups:
        one.check(views, root=root, env=env)
    if options.dry_run:
        return case.answer
    if case.stopped is not None and not case.live:
        _end(case, case.stopped, sendings, notify)
    follow = own is None and case.needs_healer(healers)
    if not (case.groups or follow):
        return case.answer
    sending = sendings.begin(number, heal=case.limits)
    try:
        return _send(case, sending, env=env, notify=notify)
    finally:
        sending.close()


class _Case(msgspec.Struct, frozen=True):
    """The decisions on the unfinished tasks of a plan.

    ``limits`` are those of healing, if a healer follows; ``strict`` are the same where
    they apply to this round. ``stopped`` is why there is no further round, ``own`` the
    job that runs the round itself.
    """

    views: Sequence[View]
    options: ResumeOptions
    limits: Heal | None
    strict: Heal | None
    choices: Chosen
    groups: "Sequence[_Group | resume_script.ScriptGroup]"
    stopped: str | None
    own: Submitted | None = None

    @classmethod
    def of(
        cls,
        views: Sequence[View],
        options: ResumeOptions,
        *,
        root: str,
        env: Mapping[str, str],
        own: Submitted | None = None,
    ) -> "_Case":
        """Decide on each task, and whether there is a further round."""
        limits = views[-1].job.heal or (Heal() if options.heal else None)
        strict = limits if options.heal else None
        choices: Chosen = [
            *_choices(views, options, strict),
            *_waiting(views, options, root),
        ]
        if any(view.job.staging is not None for view in views):
            choices = list(keep_together(choices))
        groups: Sequence[_Group | resume_script.ScriptGroup]
        if views[0].job.own is None:
            groups = _groups(choices, views, options, strict, own)
        else:
            groups = resume_script.script_groups(
                choices, views, options, strict, root=root, env=env
            )
        stopped = None
        goes = any(goes_on(state) for view in views for state in view.elements)
        if strict is not None and (groups or not goes):
            stopped = _why_stop(choices, groups, views, strict)
        groups = groups if stopped is None else []
        return cls(views, options, limits, strict, choices, groups, stopped, own)

    def needs_healer(self, healers: Sequence[Submitted]) -> bool:
        """Return whether elements go on that no healer waits for."""
        if self.limits is None or not self.live:
            return False
        if len(healers) > _MOST_HEALERS * self.limits.max_rounds:
            return (
                False  # healers that start too early would follow each other endlessly
            )
        snapshot = self.views[-1].snapshot
        return not healers or snapshot.of(healers[-1], 0).state != "PENDING"

    @property
    def live(self) -> list[Submitted]:
        """Return the jobs with an element that waits or runs."""
        return [view.job for view in self.views if any(map(goes_on, view.elements))]

    @property
    def answer(self) -> Resumed:
        """Return the answer before anything is submitted."""
        left = tuple(
            Left(task.task, choice.reason)
            for task, choice in self.choices
            if self.stopped is not None or not choice.run
        )
        again = tuple(one.again for one in self.groups)
        return Resumed(self.views[-1].job, again, left, self.stopped)


def _send(
    case: _Case, sending: Round, *, env: Mapping[str, str], notify: Notify
) -> Resumed:
    """Submit the round, and the healer that follows it."""
    views, groups = case.views, case.groups
    kept = case.choices
    if groups and views[0].job.own is None:
        kept = _claimed(case.choices, views, sending.number)
    if len(kept) < len(case.choices):
        groups = _groups(kept, views, case.options, case.strict, case.own)
    again = tuple(one.submit(views, sending) for one in groups)
    answer = replace(case.answer, again=again)
    if case.limits is None or case.own is not None:
        return answer
    sent = [job for one in again for job in (one.job, *one.more) if job is not None]
    try:
        healer, ahead = send_following(
            views[-1].scheduler,
            [*case.live, *sent],
            None if views[0].job.own else plan_of(views[0].job),
            sending,
            env=env,
        )
    except SchedulerError as error:
        notify(without_healer(str(error), views[0].job.name, held=0))
        return answer
    return replace(answer, healer=healer, ahead=ahead)


def _groups(
    choices: Chosen,
    views: Sequence[View],
    options: ResumeOptions,
    strict: Heal | None,
    own: Submitted | None = None,
) -> list["_Group"]:
    if own is not None:
        hads = {view.job.id: view.job.request for view in views}
        fitting = in_granted(choices, hads, own.request)
        return [_Group.ahead(fitting, views, own)] if fitting else []
    alike = _alike(choices, views, options, strict)
    return [_Group.of(chosen, views, options, strict) for chosen in alike]


def _why_stop(
    choices: Chosen,
    groups: Sequence["_Group | resume_script.ScriptGroup"],
    views: Sequence[View],
    heal: Heal,
) -> str | None:
    """Return why there is no further round, by the rounds so far."""
    rounds = max(view.job.round for view in views)
    last = {
        task.task
        for view in views
        for task in view.tasks
        if view.job.round == rounds and task.state == "COMPLETED"
    }
    healed = [
        cpu_hours(view.job.request, view.job.elements)
        for view in views
        if view.job.round > 1 and not is_rest(view.job)
    ]
    next_ = [
        cpu_hours(one.again.request, one.again.elements)
        for one in groups
        if not one.sized
    ]
    rounds -= any(is_rest(view.job) for view in views)
    before = Before(rounds=rounds, finished=len(last), hours=_sum(healed))
    return why_stop([choice for _, choice in choices], before, _sum(next_), heal)


def _sum(hours: Sequence[float | None]) -> float | None:
    known = [one for one in hours if one is not None]
    return sum(known) if len(known) == len(hours) else None


def _end(case: _Case, why: str, sendings: Sendings, notify: Notify) -> None:
    """Keep why there is no further round, and send a summary, once."""
    stopped, before = _stop_of(case, why), sendings.stopped()
    sendings.note_stop(stopped)
    job = case.views[-1].job
    if before is not None and before.round == stopped.round:
        return
    done = sum(task.state == "COMPLETED" for task in merged(case.views).values())
    for target, send in (
        (job.request.notify, notify_end),
        (job.request.mail, mail_end),
    ):
        try:
            if target is not None:
                send(target, job, stopped, done)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            notify(f"the notification failed: {error}")


def _notify_of(views: Sequence[View], notify: Notify) -> None:
    """Notify of the end of jobs that were killed before they could."""
    for view in views:
        try:
            if view.job.request.notify is not None:
                notify_once(view, view.job.request.notify)
        except (OSError, subprocess.SubprocessError) as error:
            notify(f"the notification failed: {error}")


def _stop_of(case: _Case, why: str) -> Stopped:
    causes = Counter(
        "a bug" if is_bug(one.reason) else one.reason
        for one in case.answer.left
        if not is_held(one.reason)
    )
    return Stopped(
        round=max(view.job.round for view in case.views),
        why=why,
        time=round(time.time(), 3),
        left=dict(causes),
    )


def _ended_views(  # noqa: PLR0913 - keyword-only past the second
    chain: Sequence[Submitted],
    known: Sequence[Submitted],
    healer: Submitted | None,
    *,
    heals: bool,
    to_heal: bool,
    root: str,
    env: Mapping[str, str],
    notify: Notify,
) -> list[View]:
    """Return the current views; wait briefly for jobs that are being cancelled.

    A healer that runs, or *heals* here, was started because all jobs have ended: it
    waits until the scheduler shows that too. Who decides *to_heal* waits until
    accounting has shown how elements ended that left the queue.
    """
    begun = time.monotonic()
    waited = False
    while True:
        views = list(look(chain, known, root=root, env=env, fresh=True))
        heals = heals or (
            healer is not None and views[-1].snapshot.of(healer, 0).state == "RUNNING"
        )
        ending = [
            view.job.id
            for view in views
            if any(
                state.reason == CANCELLING or (heals and goes_on(state))
                for state in view.elements
            )
        ]
        silent = [
            view.job.id
            for view in views
            if to_heal and any(state.state == "UNKNOWN" for state in view.elements)
        ]
        past = time.monotonic() - begun
        if not (ending and past < _TO_END) and not (silent and past < _TO_ACCOUNT):
            return views
        if not waited:
            if silent:
                notify(f"waiting for accounting of job {', '.join(silent)}")
            elif heals:
                notify("waiting for all elements to end")
            else:
                notify(f"waiting for cancelled job {', '.join(ending)} to end")
        waited = True
        time.sleep(_PAUSE)


def chain_of_plan(name: str, root: str, env: Mapping[str, str]) -> list[Submitted]:
    """Return the jobs of the plan of *name*, in the order in which they were sent.

    Raises:
        UsageError: there is no such job.
    """
    known = jobs_file.read_jobs(root)
    job = named_jobs(known, name, root=root, env=env)[-1]
    return jobs_file.chain_of(with_foreign(known, [job]), job)


def _alike(
    choices: Sequence[tuple[TaskState, Choice]],
    views: Sequence[View],
    options: ResumeOptions,
    heal: Heal | None = None,
) -> list[Chosen]:
    """Group the tasks to run by what is requested for them."""
    requests = {view.job.id: _plain(view.job.request) for view in views}
    groups: dict[_Alike, list[tuple[TaskState, Choice]]] = {}
    for task, choice in choices:
        if choice.run:
            had = requests[task.job]
            more = enlarged(had, [choice], options, heal)
            kind = (
                choice.memory,
                choice.time,
                None if choice.need is None else more.memory,
                at_once(choice, had.memory),
                choice.together,
                had,
            )
            groups.setdefault(kind, []).append((task, choice))
    return [with_largest_need(chosen) for chosen in groups.values()]


def _plain(request: JobRequest) -> JobRequest:
    """Return the request without dependencies, excluded nodes and throttle."""
    return replace(request, after=(), exclude=(), throttle=None)


def _choices(
    views: Sequence[View], options: ResumeOptions, heal: Heal | None = None
) -> list[tuple[TaskState, Choice]]:
    """Return the decision on each task that is not done."""
    by_job = {view.job.id: view for view in views}
    failures = Counter(
        task.task for view in views for task in view.tasks if task.state == "FAILED"
    )
    together = {view.job.id: _together(view.job) for view in views}
    choices = []
    with ExitStack() as opened:
        lines = _Lines([view.job for view in views], opened)
        for _, task in sorted(merged(views).items()):
            if task.state == "COMPLETED":
                continue
            view = by_job[task.job]
            element = view.elements[task.element]
            words = tail_of(task.output) if task.output else ""
            is_short = task.state == "OUT_OF_MEMORY" and bool(words)
            has_lines = is_short and view.job.own is None
            command = lines.command(task) if has_lines else ""
            failed = failures[task.task]
            choice = choose(task, element, words, failures=failed, command=command)
            answered = view.snapshot.trouble is None
            if options.unknown and task.state == "UNKNOWN" and answered:
                choice = replace(choice, run=True, reason=OUTCOME_UNKNOWN)
            if options.bugs and task.state == "FAILED":
                choice = replace(choice, run=True)
            had, count = view.job.request, together[task.job]
            choice = fitted(
                choice,
                task,
                had,
                options,
                together=count,
                rounds=view.job.round,
                heal=heal,
            )
            choices.append((task, choice))
    return choices


def _together(job: Submitted) -> int:
    try:
        return plan_of(job).together
    except WeighError:
        return 1


def _waiting(
    views: Sequence[View], options: ResumeOptions, root: str
) -> list[tuple[TaskState, Choice]]:
    """Return the decisions on the tasks of the plan that were not submitted.

    Those that wait for the first tasks are sized from what these used. A healer sends
    them only if every first task was measured; a person who resumes does anyway.
    """
    left = [] if views[0].job.own is not None else list(never_sent(views))
    if not left:
        return []
    plan = plan_of(views[0].job)
    if not plan.held:
        choice = Choice(run=True, reason="was not submitted")
        return [(task, choice) for task in left]
    uses, kinds = uses_of(views, root), kinds_of(plan)
    choices = rest_choices(
        uses, [kinds[one.task] for one in left], plan.together, strict=options.heal
    )
    return list(zip(left, choices, strict=True))


class _Group(msgspec.Struct, frozen=True):
    """Tasks that go into one job, or into several if the array would be too long."""

    before: Submitted
    plan: Plan
    tasks: tuple[TaskState, ...]
    again: Again
    sized: bool = False
    own: Submitted | None = None

    @classmethod
    def of(
        cls,
        chosen: Chosen,
        views: Sequence[View],
        options: ResumeOptions,
        heal: Heal | None = None,
    ) -> "_Group":
        """Return the group of these tasks, with its plan and request."""
        tasks = tuple(task for task, _ in chosen)
        before = _job_of(tasks[0], views)
        choices = [choice for _, choice in chosen]
        request = _request(before, choices, options, heal)
        had = before.request.memory
        plan = plan_of(views[0].job)
        if plan.rest is not None:  # its tasks are pulled, but for the first ones
            pulls = choices[0].sized or plan_of(before).queue is not None
            plan = replace(plan, queue=plan.rest) if pulls else plan
        if plan.queue is not None:
            made = _pulled(tasks, chosen, plan, views, before)
            request = _narrowed(request, made, at_once(choices[0], had))
            again = _again(tasks, chosen, request, made)
            return cls(before, made, tasks, again, choices[0].sized)
        more = choices[0]
        most = at_once(more, had) if more.need else None
        elements = tuple(_elements(tasks, plan, views, most))
        if more.memory > 1:  # the plan underestimated
            elements = tuple(replace(element, kinds=()) for element in elements)
        made = replace(plan, elements=elements, left_out=(), held=0, rest=None)
        if more.sized:
            made = replace(made, kinds=tuple(_grown(kind, more) for kind in plan.kinds))
        request = _narrowed(request, made, at_once(more, had))
        return cls(
            before, made, tasks, _again(tasks, chosen, request, made), more.sized
        )

    @classmethod
    def ahead(
        cls, alike: Sequence[Chosen], views: Sequence[View], own: Submitted
    ) -> "_Group":
        """Return the group of the tasks that run in *own*, whose request is granted.

        Tasks that are not *alike* are in different elements; where these are too few,
        all pull from one queue if they did before, else some wait for the next round.
        """
        chosen = [one for some in alike for one in some]
        tasks = [task for task, _ in chosen]
        before = _job_of(tasks[0], views)
        asked, plan = before.request, plan_of(views[0].job)
        request = replace(
            own.request, after_end=(), notify=asked.notify, mail=asked.mail
        )
        found = [
            element
            for some in alike
            for element in _elements(
                [task for task, _ in some],
                plan,
                views,
                at_once(some[0][1], request.memory),
            )
        ]
        if plan.queue is not None and len(found) > own.elements:
            granted = replace(before, request=request)
            made = _pulled(tasks, with_largest_need(chosen), plan, views, granted)
            made = replace(made, elements=made.elements[: own.elements])
        else:
            elements = tuple(
                replace(element, file=f"tasks_{number}.txt", kinds=())
                for number, element in enumerate(found[: own.elements])
            )
            there = {task for element in elements for task in element.tasks}
            tasks = [task for task in tasks if task.task in there]
            made = replace(
                plan, elements=elements, left_out=(), held=0, rest=None, queue=None
            )
        again = _again(tasks, chosen, request, made)
        return cls(before, made, tuple(tasks), again, own=own)

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
        folder = make_numbered(views[0].job.folder, RESUME)
        _write_plan(folder, self.plan, self.tasks, views)
        script = self._script(views, folder, root=sending.sender.store)
        scheduler = views[-1].scheduler
        words = change_words(self.before.request, self.again.request)
        reasons = "; ".join(self.again.reasons)
        origin = Origin(
            views[-1].job.id,
            f"{reasons}: {words}" if words else reasons,
            round=1 + max(view.job.round for view in views),
        )
        limit = None if self.own else scheduler.array_limit(script.elements)
        jobs = [
            ship(scheduler, part, self.plan, sending, origin=origin, own=self.own)
            for part in parts_of(script, limit)
        ]
        return replace(self.again, job=jobs[0], more=tuple(jobs[1:]))

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
            mps=self.plan.mps,
            request=self.again.request,
            setup=before.setup,
            runner=before.runner,
            programs=programs_of(self.plan),
            staging=continued(before.staging, self.tasks, [view.job for view in views]),
            requeue=before.requeue,
            version=__version__,
        )
        return staged(script, schedulers.kind_of(views[-1].job.scheduler))


def _job_of(task: TaskState, views: Sequence[View]) -> Submitted:
    return next(view.job for view in reversed(views) if view.job.id == task.job)


def _again(
    tasks: Sequence[TaskState], chosen: Chosen, request: JobRequest, plan: Plan
) -> Again:
    reasons = tuple(dict.fromkeys(choice.reason for _, choice in chosen))
    numbers = tuple(task.task for task in tasks)
    return Again(numbers, reasons, request, len(plan.elements))


def _pulled(
    tasks: Sequence[TaskState],
    chosen: Chosen,
    plan: Plan,
    views: Sequence[View],
    before: Submitted,
) -> Plan:
    """Return a plan whose elements pull these tasks from a queue of their own.

    What a task needs grows as the request does.
    """
    more = chosen[0][1]
    plans = {view.job.id: plan_of(view.job) for view in views}
    firsts = {view.job.id: view.job.first for view in views}
    kinds: list[Kind] = []
    places: list[int] = []
    for task in tasks:
        old = plans[task.job]
        queue, first = old.queue, firsts[task.job]
        place = queue.kinds[task.seq - 1] if queue else _kind(task, old, first)
        kind = _grown(old.kinds[place or 0], more)
        if kind not in kinds:
            kinds.append(kind)
        places.append(kinds.index(kind))
    most = at_once(more, before.request.memory)
    long = more.time > 1 and plan.gpu is None  # tasks may share a GPU
    elements = plan.held or len(plan.elements)
    count, slots = size_of_round(len(tasks), most, elements, long=long)
    grown = replace(plan.elements[0], tasks=(), kinds=())
    if more.sized:
        grown = replace(grown, memory=slots * max(one.item.memory for one in kinds))
    else:
        grown = replace(grown, memory=grown.memory * more.memory)
    return replace(
        plan,
        schema=SCHEMA_OF_QUEUES,
        held=0,
        rest=None,
        kinds=tuple(kinds),
        elements=tuple(
            replace(element, file=f"tasks_{number}.txt")
            for number, element in enumerate((grown,) * count)
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
        memory = item.memory * more.memory if more.need is None else more.need
        return replace(item, memory=memory, time=time)

    item, used = grown(kind.item), grown(kind.used)
    return replace(kind, item=item, used=used, notes=())


def _claimed(
    choices: Sequence[tuple[TaskState, Choice]], views: Sequence[View], number: int
) -> list[tuple[TaskState, Choice]]:
    """Return the choices without tasks that other runs took from their queue meanwhile.

    The round of this *number* claims the others there, so that nobody else runs them.
    """
    kept = [one for one in choices if not one[1].run]
    for view in views:
        job, plan = view.job, plan_of(view.job)
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
    before: Submitted,
    choices: Sequence[Choice],
    options: ResumeOptions,
    heal: Heal | None = None,
) -> JobRequest:
    """Return the earlier request, with more of what was too small."""
    request = enlarged(before.request, choices, options, heal)
    gpu_type, gpus = parse_gpus(options.gpus)
    return replace(
        request,
        gpus=gpus or request.gpus,
        gpu_type=gpu_type if gpus else request.gpu_type,
        after=(),
    )


def _narrowed(request: JobRequest, plan: Plan, most: int) -> JobRequest:
    """Return the request with fewer CPUs where fewer tasks than *most* run at once."""
    alike = len({kind.item.cpus for kind in plan.kinds}) <= 1
    if plan.together >= most or not alike:
        return request
    return replace(request, cpus=-(-request.cpus * plan.together // most))


def _elements(
    tasks: Sequence[TaskState], plan: Plan, views: Sequence[View], most: int | None
) -> Iterator[Element]:
    """Yield elements with the tasks grouped as before: they fitted together then.

    If all tasks need the same, the elements are filled up, with *most* tasks each.
    """
    plans = {view.job.id: plan_of(view.job) for view in views}
    firsts = {view.job.id: view.job.first for view in views}
    alike = most is not None or len(plan.kinds) <= 1
    alike = alike and views[0].job.staging is None
    most = most or max(len(element.tasks) for element in plan.elements)
    most = -(-len(tasks) // -(-len(tasks) // most))  # in equal parts
    bins: list[tuple[Element, list[TaskState]]] = []
    keys: dict[tuple[str, int] | int, int] = {}
    for place, task in enumerate(tasks):
        key = place // most if alike else (task.job, task.element)
        if key not in keys:
            keys[key] = len(bins)
            element = plans[task.job].elements[firsts[task.job] + task.element]
            bins.append((element, []))
        bins[keys[key]][1].append(task)
    for number, (element, members) in enumerate(bins):
        kinds = [_kind(task, plans[task.job], firsts[task.job]) for task in members]
        yield replace(
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


class _Lines:
    """The lines of tasks in the task files of *jobs*; *opened* closes the files."""

    def __init__(self, jobs: Sequence[Submitted], opened: ExitStack) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._opened = opened
        self._sources: dict[str, TaskSource] = {}
        self._queues: dict[str, str] = {}

    def text(self, task: TaskState) -> bytes:
        """Return the line of a task.

        Raises:
            UsageError: its task file no longer has it.
        """
        path = self._path(self._jobs[task.job], task.element)
        if path not in self._sources:
            self._sources[path] = TaskSource(path)
            self._opened.callback(self._sources[path].close)
        if task.seq > len(self._sources[path]):
            raise UsageError(f"{path} no longer has task {task.seq}")
        return self._sources[path].text(task.seq)

    def command(self, task: TaskState) -> str:
        """Return the line as text; empty if it cannot be read."""
        try:
            return self.text(task).decode("utf-8", "replace")
        except WeighError:
            return ""

    def _path(self, job: Submitted, element: int) -> str:
        if job.id not in self._queues:
            queue = plan_of(job).queue
            self._queues[job.id] = tasks_of(job, queue) if queue else ""
        if self._queues[job.id]:
            return self._queues[job.id]
        return os.path.join(job.plan_folder, f"tasks_{job.first + element}.txt")


def _write_plan(
    folder: str, plan: Plan, tasks: Sequence[TaskState], views: Sequence[View]
) -> None:
    """Write the task files, with the lines copied from the earlier task files."""
    where = {task.task: task for task in tasks}
    with ExitStack() as opened:
        lines = _Lines([view.job for view in views], opened)
        plan_directory.write(folder, plan, lambda number: lines.text(where[number]))
