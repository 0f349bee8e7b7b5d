"""``weigh resume``: submit unfinished tasks again, with a larger request if needed."""

import math
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import SchedulerError, SubmissionUnknownError, UsageError, WeighError
from weigh.flow.follow.dependency import (
    AwaitedJobs,
    await_last_rounds,
    is_kept_back,
    is_stranger,
    jobs_to_await,
    lead_on,
)
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.task_history import tail_of
from weigh.flow.follow.tasks import goes_on
from weigh.flow.follow.view import (
    NOT_SENT,
    JobView,
    ScriptWork,
    can_never_start,
    latest_task_states,
    look,
    never_sent,
)
from weigh.flow.here import Here, here_of
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import replaced_since
from weigh.flow.submit import own_script
from weigh.flow.submit.checks import (
    ScriptToCheck,
    check_request,
    excluding_if_others_fit,
    imports_torch,
    script_to_check,
    why_needs_have_failed,
    with_queues_that_take,
)
from weigh.flow.submit.job_request import (
    elements_this_machine_holds,
    parse_gpus,
    refuse_absent,
)
from weigh.flow.submit.rounds import (
    StoppedHealer,
    SubmissionRound,
    SubmissionRounds,
    TakenError,
    rounds_of_plan,
    settle_all,
)
from weigh.flow.submit.staging import continued
from weigh.flow.submit.submit_script import (
    JobOrigin,
    make_numbered,
    programs_of,
    send_healer,
    ship,
    split_into_job_parts,
    without_healer,
)
from weigh.model.element_time import NOT_STARTED, reserved_time
from weigh.model.job import (
    ANY_QUEUE,
    CANCELLING,
    RESUME,
    HealLimits,
    JobRequest,
    JobScript,
    SubmittedJob,
    TaskState,
)
from weigh.model.plan import Plan
from weigh.planning.queue_order import least_limit, units_of
from weigh.planning.resume_policy import (
    BUGGY_STATES,
    Chosen,
    EarlierRounds,
    LastRequest,
    ResumeChoice,
    ResumeOptions,
    TaskEvidence,
    choices_kept_together,
    cpu_hours,
    decide_resumption,
    enlarged_request,
    group_by_request,
    healer_stop_reason,
    is_bug,
    narrowed_request,
    plan_of_round,
    previous_task_place,
    request_change_text,
)
from weigh.render.resume_lines import ResumedJob, TaskLeftOut, TasksRunAgain
from weigh.request import round_time
from weigh.runner.shared_queue import OwnClaims, QueueOwner
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store import jobs as jobs_file
from weigh.store.identity import new_id, process_identity, this_machine
from weigh.units import Seconds

_TO_END = 60.0  # seconds that a cancelled job may take to end
_PAUSE = 1.0
# several per round: one that started while elements went on sends another
_MOST_HEALERS = 3  # per round that is allowed
_TO_HEAL = 480.0  # seconds: a healer's time limit is longer
_TO_ACCOUNT = 300.0  # seconds within which accounting shows an end
_NEVER_STARTS = "can never start"
Notify = Callable[[str], None]


def resume_unfinished_tasks(
    here: Here, name: str, options: ResumeOptions
) -> ResumedJob:
    """Submit the unfinished tasks of a plan, with one job per request.

    ``here.notify`` receives the outcome of an earlier submission that had no answer,
    and what resume waits for. To heal, it waits for another sender, whose round then
    counts.

    Raises:
        UsageError: there is no such job, or another process is resuming it, or its
            scheduler has no queues to choose from.
        SchedulerError: the scheduler refuses or does not answer.
    """
    until = time.monotonic() + _TO_HEAL
    waited = ""
    while True:
        try:
            return ResumeRound(here, name, options, until=until).carry_out()
        except (TakenError, SubmissionUnknownError) as error:
            # a person can call again; a healer is the only one who goes on
            if not options.heal or time.monotonic() > until:
                raise
            if str(error) != waited:
                waited = str(error)
                here.notify(waited)
            time.sleep(_PAUSE)


class _ResumeGroup(msgspec.Struct, frozen=True):
    """Tasks that go into one job, or into several if the array would be too long.

    Without a ``plan`` they are elements of a user's own script.
    """

    before: SubmittedJob  # had the first task last: its request is the one that grows
    tasks: tuple[TaskState, ...]
    again: TasksRunAgain
    plan: Plan | None = None


class ResumeRound:
    """What is left of a plan, and the round that sends it again."""

    def __init__(
        self,
        here: Here,
        name: str,
        options: ResumeOptions,
        *,
        until: Seconds = math.inf,
    ) -> None:
        self.here = here
        self.options = options
        self.views: Sequence[JobView] = ()
        self.choices: list[Chosen] = []
        self.groups: list[_ResumeGroup] = []
        self.stopped: str | None = None  # why there is no further round
        self._name = name
        self._until = until  # no wait goes on later, by the monotonic clock
        self._limits: HealLimits | None = None  # None: no healer follows
        self._wait = AwaitedJobs()
        self._may_ask = False  # the cluster, which a screen does not

    def carry_out(self) -> ResumedJob:
        """Submit what is left, and lead on the jobs that wait for it."""
        answer = self._carry_out()
        if self.options.dry_run:
            return answer
        followers = lead_on(self.here, self._chain(), self._anew)
        return replace(answer, followers=tuple(followers))

    def _anew(self, submitted_job: SubmittedJob) -> SubmittedJob | None:
        """Send a job again that ended because this one had not succeeded."""
        there = here_of(submitted_job.cwd, self.here.env, self.here.notify)
        # by its token: ids are used again
        again = ResumeRound(there, submitted_job.token, ResumeOptions())
        return next((one.job for one in again.carry_out().again), None)

    def _carry_out(self) -> ResumedJob:
        """Decide on each unfinished task; submit the round, and the healer after it."""
        self._may_ask = True
        settle_all(self.here)
        folder = self._chain()[0].folder
        sendings = rounds_of_plan(self.here, folder)
        # before the jobs are read, so that none sent meanwhile is missed
        number = sendings.next_number(self.here.notify)
        healers = sendings.healers()
        self.look(self._ended_views(healers[-1:]))
        self._check()
        if self.options.dry_run:
            return self._answer()
        # while elements go on a later healer decides once more
        if self.stopped is not None and not self._live():
            self._end(self.stopped, sendings)
        if not (self.groups or self._needs_healer(healers)):
            return self._answer()
        with sendings.begin(number, heal_limits=self._limits) as sending:
            return self._send(sending)

    def look(self, views: Sequence[JobView]) -> None:
        """Decide on each task of *views*, and whether there is a further round."""
        self.views = views
        last = views[-1].job
        # a job that was to be healed still is after a resume by hand
        self._limits = last.heal or (HealLimits() if self.options.heal else None)
        # a person who resumes is not bound by the limits
        limits = self._limits if self.options.heal else None
        self.options = replace(self.options, limits=limits)
        if last.needs:
            known = jobs_file.read_jobs(self.here.root)
            self._wait = jobs_to_await(self.here, last.needs, known)
        self.choices = [*self._unfinished(), *self._waiting()]
        for need in self._wait.blocked[:1]:
            reason = f"waits for {need.name} (job {need.job}): {need.words}"
            kept_back = ResumeChoice(run=False, reason=reason)
            self.choices = [(task, kept_back) for task, _ in self.choices]
        # a new element copies back what its one earlier element left on the node, so
        # its tasks stay together
        if any(view.job.staging is not None for view in views):
            self.choices = list(choices_kept_together(self.choices))
        self.groups = self._grouped()
        goes = any(goes_on(state) for view in views for state in view.elements)
        # while elements go on and nothing is to be sent there is nothing to decide
        if limits is not None and (self.groups or not goes):
            self.stopped = self._why_stop(limits)
        if self.stopped is not None:
            self.groups = []

    @property
    def _way_on(self) -> str | None:
        """Return what ends that these tasks are kept back; None if nothing does."""
        if not self._wait.blocked:
            kept = [
                task.job for task, one in self.choices if one.reason == _NEVER_STARTS
            ]
            return f"weigh cancel {kept[0]}" if kept else None
        need, known = self._wait.blocked[0].job, jobs_file.read_jobs(self.here.root)
        if is_stranger(need, known):  # it has another id when it runs again
            return f"run job {need} again, and submit this with --after its new id"
        return command_for_need(self.here, need, known)

    def _chain(self) -> list[SubmittedJob]:
        """Return the jobs of the plan, in the order in which they were sent."""
        known = jobs_file.read_jobs(self.here.root)
        job = named_jobs(self.here, known, self._name)[-1]
        return jobs_file.chain_of(with_foreign(known, [job]), job)

    def _ended_views(self, healer: Sequence[SubmittedJob]) -> list[JobView]:
        """Return the current views; wait briefly for jobs that are being cancelled.

        A healer that runs was started because all jobs have ended: it waits until the
        scheduler shows that too, and accounting how elements ended that left the queue.
        """
        begun, said = time.monotonic(), ""
        chain = self._chain()
        known = [*with_foreign(jobs_file.read_jobs(self.here.root), chain), *healer]
        while True:
            views = list(look(self.here, chain, known, fresh=True))
            shown = views[-1].snapshot
            heals = any(shown.of(one, 0).state == "RUNNING" for one in healer)
            ending, silent = list[str](), list[str]()
            for view in views:
                # a signal was sent: what the element leaves is only complete at its end
                if any(s.reason == CANCELLING for s in view.elements) or (
                    heals and any(map(goes_on, view.elements))
                ):
                    ending.append(view.job.id)
                if self.options.heal and any(
                    s.state == "UNKNOWN" for s in view.elements
                ):
                    silent.append(view.job.id)
            now = time.monotonic()
            past = now - begun
            # a healer waits in several calls: all of them have one time limit
            is_late = self.options.heal and now > self._until
            if is_late or not (
                (ending and past < _TO_END) or (silent and past < _TO_ACCOUNT)
            ):
                return views
            if not said:
                said = f"waiting for cancelled job {', '.join(ending)} to end"
                said = "waiting for all elements to end" if heals else said
                if silent:
                    said = f"waiting for accounting of job {', '.join(silent)}"
                self.here.notify(said)
            time.sleep(_PAUSE)

    def _unfinished(self) -> Iterator[Chosen]:
        """Yield the decision on each task that is not done."""
        by_job = {view.job.id: view for view in self.views}
        root = self.here.root
        forecasts = {job: _whole_times(view, root) for job, view in by_job.items()}
        # over all rounds: what failed twice is left to a person
        failures = Counter(
            task.task
            for view in self.views
            for task in view.tasks
            if task.state in BUGGY_STATES and not is_kept_back(task)
        )
        with ExitStack() as opened:
            lines = dict[str, Callable[[int], bytes]]()
            for job, view in by_job.items():
                with suppress(WeighError):  # a plan or a script that is gone
                    lines[job] = view.work.lines(opened)
            # sorted, so that a round has its tasks in the order of the plan
            for _, task in sorted(latest_task_states(self.views).items()):
                if task.state == "COMPLETED":
                    continue
                view = by_job[task.job]
                if can_never_start(view.elements[task.element], view.job):
                    yield task, ResumeChoice(run=False, reason=_NEVER_STARTS)
                    continue
                forecast = forecasts[task.job].get((task.element, task.seq))
                needs = task.needs or forecast
                words = tail_of(task.output) if task.output else ""
                command = b""
                # which memory ran out may depend on the command, such as java -Xmx
                if words and task.state == "OUT_OF_MEMORY":
                    with suppress(WeighError, LookupError):
                        command = lines[task.job](task.task)
                # a task of unknown fate may still run where the scheduler does not
                # answer
                answered = view.snapshot.trouble is None
                options = self.options
                evidence = TaskEvidence(
                    view.elements[task.element],
                    last_output=words,
                    command=command.decode("utf-8", "replace"),
                    failures=failures[task.task],
                )
                choice = decide_resumption(
                    replace(task, needs=needs),
                    evidence,
                    LastRequest(view.job.request, view.work.together, view.job.round),
                    replace(options, unknown=options.unknown and answered),
                )
                yield task, choice

    def _waiting(self) -> list[Chosen]:
        """Return the decisions on the tasks of the plan that were not submitted.

        They are those of later parts of a long array, after one was refused.
        """
        left = never_sent(self.views)
        return [(one, ResumeChoice(run=True, reason=NOT_SENT)) for one in left]

    def _grouped(self) -> list[_ResumeGroup]:
        """Return the tasks that run again, by what is requested for them.

        Raises:
            UsageError: weigh did not submit the job.
        """
        last = self.views[-1].job
        # its script and flags are only known in part
        if last.is_foreign:
            failed = [task.task for task, choice in self.choices if choice.run]
            raise UsageError(ScriptWork(last).by_hand(failed))
        requests = {view.job.id: view.job.request for view in self.views}
        return [
            self._group(chosen)
            for chosen in group_by_request(self.choices, requests, self.options)
        ]

    def _group(self, chosen: Sequence[Chosen]) -> _ResumeGroup:
        tasks = tuple(task for task, _ in chosen)
        choices = [choice for _, choice in chosen]
        view = self._view_of(tasks[0].job)
        before = view.job
        gpu_type, gpus = parse_gpus(self.options.gpus)
        request = enlarged_request(before.request, choices, self.options)
        if self._may_ask:
            request = excluding_if_others_fit(self.here, request, before.scheduler)
        request = replace(request, after=self._wait.ids, gpus=gpus or request.gpus)
        if gpus:
            request = replace(request, gpu_type=gpu_type)
        plan, elements = None, len(tasks)
        if not before.is_script:
            plan = self._plan(tasks, choices[0], before)
            elements = len(plan.elements)
            # alike in a group, see group_by_request
            most = choices[0].at_once(before.request.memory)
            request = narrowed_request(request, plan, most)
            request = self._with_time_to_start(request, plan, tasks)
            # this machine holds fewer elements that are larger
            if request.memory != before.request.memory and before.scheduler == LOCAL:
                fitting = elements_this_machine_holds(request)
                request = replace(request, throttle=fitting)
        again = TasksRunAgain(
            tasks=tuple(task.task for task in tasks),
            reasons=tuple(dict.fromkeys(choice.reason for choice in choices)),
            request=request,
            elements=elements,
        )
        return _ResumeGroup(before, tasks, again, plan)

    def _choose_queues(self) -> None:
        """Choose the queues of each request that any may take: ``--queue auto``.

        Raises:
            UsageError: none does, or the script is the user's own.
        """
        scheduler = self.views[-1].scheduler
        for place, group in enumerate(self.groups):
            if group.again.request.queue != ANY_QUEUE:
                continue
            if group.plan is None:
                raise UsageError("--queue auto is for jobs of a plan: name the queue")
            script = self._script(group, group.plan, group.before.folder)
            request, line = with_queues_that_take(
                self.here.in_folder(script.cwd),
                scheduler,
                group.again.request,
                partial(script_to_check, scheduler, script),
            )
            self.here.notify(line)
            again = replace(group.again, request=request)
            self.groups[place] = replace(group, again=again)

    def _with_time_to_start(
        self, job_request: JobRequest, plan: Plan, task_states: Sequence[TaskState]
    ) -> JobRequest:
        """Return the request with a time limit in which each task may start.

        Where an element left tasks because time was too short, the limit grows: it was
        enough by the plan, so something else took time (a slow start, a busy machine).
        """
        job = self.views[-1].job
        reserved = reserved_time(job.staging, requeue=job.requeue)
        limit = job_request.time_limit
        if limit is None or plan.queue is None:
            return job_request
        # elements of a queue start a task only if it can end before their limit
        least = least_limit(plan, reserved) or 0
        is_repeated = any(NOT_STARTED in (task.reason or "") for task in task_states)
        if is_repeated and self.options.time is None:
            least = max(least, round_time(2 * limit))
        if self.options.limits is not None and self.options.limits.max_time:
            least = min(least, self.options.limits.max_time)
        return replace(job_request, time_limit=max(limit, least))

    def _plan(
        self,
        task_states: Sequence[TaskState],
        choice: ResumeChoice,
        before: SubmittedJob,
    ) -> Plan:
        plan = self.views[0].work.plan  # the first one has all tasks
        places = {}
        for task in task_states:
            view = self._view_of(task.job)
            element = view.job.first + task.element
            places[task.task] = previous_task_place(view.work.plan, element, task.seq)
        if plan.queue is not None:
            queue = replace(plan.queue, folder=f"queue_{new_id()}")
            plan = replace(plan, queue=queue)
        at_once = choice.at_once(before.request.memory)
        keeps = self.views[0].job.staging is not None
        return plan_of_round(plan, places, choice, at_once, keeps=keeps)

    def _view_of(self, name: str) -> JobView:
        return next(view for view in reversed(self.views) if view.job.id == name)

    def _why_stop(self, limits: HealLimits) -> str | None:
        """Return why there is no further round, by the rounds so far."""
        jobs = [view.job for view in self.views]
        rounds = max(job.round for job in jobs)
        last = {
            task.task
            for view in self.views
            for task in view.tasks
            if view.job.round == rounds and task.state == "COMPLETED"
        }
        later = [job for job in jobs if job.round > 1]
        next_ = [group.again for group in self.groups]
        before = EarlierRounds(
            rounds=rounds,
            finished=len(last),
            hours=_sum_of_hours(later),
        )
        hours = _sum_of_hours(next_)
        return healer_stop_reason(
            [choice for _, choice in self.choices], before, hours, limits
        )

    def _live(self) -> list[SubmittedJob]:
        """Return the jobs with an element that waits or runs."""
        return [view.job for view in self.views if any(map(goes_on, view.elements))]

    def _needs_healer(self, healers: Sequence[SubmittedJob]) -> bool:
        """Return whether elements go on that no healer waits for.

        Healers that start too early would follow each other endlessly.
        """
        limits, snapshot = self._limits, self.views[-1].snapshot
        if limits is None or not self._live():
            return False
        if len(healers) > _MOST_HEALERS * limits.max_rounds:
            return False
        return not healers or snapshot.of(healers[-1], 0).state != "PENDING"

    def _answer(self) -> ResumedJob:
        left = tuple(
            TaskLeftOut(task.task, choice.reason)
            for task, choice in self.choices
            if self.stopped is not None or not choice.run
        )
        again = tuple(group.again for group in self.groups)
        first = self.views[0].job
        replaced = replaced_since(first)
        if replaced is not None and not os.path.relpath(replaced).startswith(".."):
            # a path upwards is longer than the absolute one, and harder to read
            replaced = os.path.relpath(replaced)
        job = self.views[-1].job
        return ResumedJob(
            job,
            again,
            left,
            self.stopped,
            replaced=replaced,
            way_out=self._way_on,
        )

    def _check(self) -> None:
        """Compare the requests with the cluster's limits.

        Raises:
            UsageError: a job would be refused, or never start.
        """
        first, last = self.views[0].job, self.views[-1].job
        if self.options.queue is not None:
            refuse_absent(JobRequest(queue=self.options.queue), last.scheduler)
        work = self.views[-1].work
        for line in work.changes(self.here, first) if self.groups else ():
            self.here.notify(line)
        if self.options.dry_run:
            return
        # weigh status also decides as this does, and must not ask for queues
        self._choose_queues()
        scheduler = self.views[-1].scheduler
        for group in self.groups:
            before = group.before
            if group.plan is not None and before.setup.checks:
                script = self._script(group, group.plan, before.folder)
                to_check = script_to_check(scheduler, script, script.request)
                check_request(self.here.in_folder(script.cwd), to_check)
            if group.plan is not None:
                continue
            # a script would wait again for a job that its ``--dependency`` names
            text = ScriptWork(before).draft(self.here, ()).text_with_flags
            to_check = ScriptToCheck(
                text=text, request=before.request, scheduler=before.scheduler
            )
            failed = why_needs_have_failed(self.here, to_check)
            if failed is not None:
                raise UsageError(
                    f"{before.name}: {failed} (run that job again, then submit this "
                    "with its new id)"
                )

    def _end(self, why: str, sendings: SubmissionRounds) -> None:
        """Keep why there is no further round."""
        reasons = [one.reason for one in self._answer().left]
        reasons = ["a bug" if is_bug(one) else one for one in reasons]
        stopped = StoppedHealer(
            round=max(view.job.round for view in self.views),
            why=why,
            time=round(time.time(), 3),
            # tasks on hold did not fail
            left=dict(Counter(reasons)),
        )
        sendings.note_stop(stopped)

    def _send(self, sending: SubmissionRound) -> ResumedJob:
        """Submit the round, and the healer that follows it."""
        first, count = self.views[0].job, len(self.choices)
        if self.groups:
            self.choices = list(self._claimed(sending.number))
            if len(self.choices) < count:
                self.groups = self._grouped()
                self._choose_queues()
        again = tuple(self._submit(group, sending) for group in self.groups)
        sent = [job for one in again for job in (one.job, *one.more) if job is not None]
        await_last_rounds(self.here, sent)
        answer = replace(self._answer(), again=again)
        if self._limits is None:
            return answer
        try:
            # the healer waits for all that goes on, not only for this round
            jobs = [*self._live(), *sent]
            healer = send_healer(self.here, self.views[-1].scheduler, jobs, sending)
        except SchedulerError as error:
            self.here.notify(without_healer(str(error), first.name))
            return answer
        return replace(answer, healer=healer)

    def _claimed(self, number: int) -> Iterator[Chosen]:
        """Yield the choices without tasks that other runs took from their queue.

        The round of this *number* claims the others there, so that nobody else runs
        them.
        """
        yield from (one for one in self.choices if not one[1].run)
        for view in self.views:
            job, plan = view.job, view.work.known_plan
            ours = [one for one in self.choices if one[1].run and one[0].job == job.id]
            # without a queue nobody else could take a task
            if plan is None or plan.queue is None or not ours:
                yield from ours
                continue
            queue = os.path.join(job.folder, plan.queue.folder)
            owner = QueueOwner(
                # without a joblog: the tasks run in a queue of their own
                name=f"round_{number}",
                joblog="",
                run="",
                machine=this_machine(),
                process=process_identity(os.getpid()),
                folder=queue,
            )
            claims = OwnClaims(queue, owner)
            claims.enter()
            units = units_of(plan.queue, plan.kinds)
            unit_of = {seq: at for at, one in enumerate(units) for seq in one.tasks}
            wanted = {unit_of[task.seq]: task.claims for task, _ in ours}
            # `past` claims were seen: a further one by somebody else makes ours fail
            won = {unit for unit, past in wanted.items() if claims.take(unit, past)}
            yield from (one for one in ours if unit_of[one[0].seq] in won)

    def _submit(self, group: _ResumeGroup, sending: SubmissionRound) -> TasksRunAgain:
        """Submit the tasks of a group, or the elements of a user's own script."""
        first, last = self.views[0].job, self.views[-1]
        before, again = group.before, group.again
        words = request_change_text(before.request, again.request)
        reason = "; ".join(again.reasons) + (f": {words}" if words else "")
        newest = max(view.job.round for view in self.views)
        origin = JobOrigin(last.job.id, reason, round=1 + newest)
        jobs = []
        if group.plan is None:
            work = ScriptWork(before)
            for flags in work.flags_again(again.tasks, again.request):
                draft = work.draft(self.here, flags)
                # other flags would mean another directory, but it is a round of the
                # first job
                draft = replace(draft, folder=first.folder)
                jobs.append(
                    own_script.send_script(
                        draft, last.scheduler, sending, origin=origin
                    )
                )
        else:
            # each job of a round has a plan of its own, with its logs
            folder = make_numbered(first.folder, RESUME)
            self._write(folder, group.plan, group.tasks)
            script = self._script(group, group.plan, folder)
            limit = last.scheduler.ask(
                last.scheduler.questions.array_limit(script.elements)
            )
            jobs += [
                ship(last.scheduler, part, group.plan, sending, origin=origin)
                for part in split_into_job_parts(script, limit)
            ]
        return replace(again, job=jobs[0], more=tuple(jobs[1:]))

    def _write(self, folder: str, plan: Plan, task_states: Sequence[TaskState]) -> None:
        """Write the plan, and its task files with the lines of the earlier ones."""
        job_of = {task.task: task.job for task in task_states}
        with ExitStack() as opened:
            # a task's line is in the files of the job that had it last
            texts = {
                name: self._view_of(name).work.lines(opened)
                for name in set(job_of.values())
            }
            plan_directory.write(folder, plan, lambda one: texts[job_of[one]](one))

    def _script(self, group: _ResumeGroup, plan: Plan, folder: str) -> JobScript:
        first, before = self.views[0].job, group.before
        jobs = [view.job for view in self.views]
        return JobScript(
            name=first.name,
            folder=folder,
            cwd=first.cwd,  # paths in task lines start there
            store=self.here.root,
            python=sys.executable,
            elements=len(plan.elements),
            together=plan.together,
            queue=plan.queue.folder if plan.queue else "",
            request=group.again.request,
            setup=before.setup,
            programs=programs_of(plan),
            imports_torch=imports_torch(plan, first.cwd, group.again.request),
            staging=continued(before.staging, group.tasks, jobs),
            requeue=before.requeue,
            needs=self._wait.needs,
            version=__version__,
        )


def _whole_times(job_view: JobView, root: str) -> dict[tuple[int, int], Seconds]:
    """Return the forecast time of tasks, if one ran out of time without saying it."""
    # records are many: they are read only where they decide
    late = (one for one in job_view.tasks if one.state == "TIMEOUT")
    if all(one.needs is not None for one in late):
        return {}
    return job_view.history.whole_times(root)


def _sum_of_hours(jobs: Sequence[SubmittedJob | TasksRunAgain]) -> float | None:
    hours = [cpu_hours(one.request, one.elements) for one in jobs]
    # one job without a time limit makes the sum unknown
    return None if None in hours else sum(one or 0.0 for one in hours)


# the mildest first: what runs with no flag needs none
_WAYS = (
    ((), ResumeOptions()),
    (("--also", "bugs"), ResumeOptions(bugs=True)),
    (("--also", "unknown"), ResumeOptions(unknown=True)),
)


def command_for_rest(here: Here, views: Sequence[JobView]) -> str | None:
    """Return the command that runs what is left of a job that is over, if one does."""
    job = views[-1].job
    if job.is_foreign:
        failed = [one.task for one in views[-1].tasks if one.state != "COMPLETED"]
        return ScriptWork(job).command_again(failed)
    for flags, options in _WAYS:
        # decided as resume does, so that the command printed does what it promises
        found = ResumeRound(here_of(job.cwd, here.env), job.id, options)
        with suppress(WeighError):  # a plan that was deleted
            found.look(views)
        if found.groups:
            return shlex.join(("weigh", "resume", job.id, *flags))
    return None


def command_for_need(
    here: Here, name: str, known_jobs: Sequence[SubmittedJob]
) -> str | None:
    """Return the command for a job that another one needs, or for what that needs."""
    if is_stranger(name, known_jobs):
        return None  # weigh knows no line that runs it
    chain = jobs_file.chain_of(known_jobs, jobs_file.find_jobs(known_jobs, name)[-1])
    # what is at the bottom of a chain of needs has to run first
    for above in jobs_to_await(here, chain[-1].needs, known_jobs).blocked:
        return command_for_need(here, above.job, known_jobs)
    return command_for_rest(here, list(look(here, chain, known_jobs)))
