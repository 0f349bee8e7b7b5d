"""``--after JOB``: what a job needs, whether that has succeeded, and who waits for it.

A job waits for all tasks of another one, whichever of its rounds runs them. While a
healer decides on the next round, the job hangs on the healer, which succeeds only when
all tasks are done. Else it hangs on the jobs that run the tasks.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from weigh.errors import SchedulerError, StoreError, UsageError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.view import (
    SETTLING,
    JobView,
    latest_task_states,
    look,
    with_unsent,
)
from weigh.flow.here import Here
from weigh.flow.submit.rounds import rounds_of_plan
from weigh.model.job import ACTIVE, FAILED_STATES, NOT_STARTED, SubmittedJob, TaskState
from weigh.model.record import State
from weigh.render.resume_lines import FollowingJob
from weigh.render.status_lines import NeededJob
from weigh.render.words import STATE_WORDS
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store import jobs as jobs_file
from weigh.units import Seconds

_KEEPS_BACK: frozenset[State] = FAILED_STATES | {"CANCELLED"}
# between two looks while a need settles
_PAUSE: Seconds = 2.0
SendAnew = Callable[[SubmittedJob], SubmittedJob | None]


class AwaitedJobs(msgspec.Struct, frozen=True):
    """What a job waits for: ``needs`` are the jobs, by token, or by id if unknown here.

    ``ids`` are the scheduler's jobs to hang on; ``blocked`` are the needs that cannot
    succeed as things are.
    """

    needs: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    blocked: tuple[NeededJob, ...] = ()


def needs_of(
    names: Sequence[str], scheduler: str, known_jobs: Sequence[SubmittedJob]
) -> tuple[str, ...]:
    """Return the tokens of the jobs called *names*; unknown ids are kept as they are.

    Raises:
        UsageError: there is no such job, or it runs at another scheduler.
    """
    needs: dict[str, None] = {}
    for name in names:
        # this machine has no jobs that weigh did not start
        if scheduler != LOCAL and is_stranger(name, known_jobs):
            needs[name] = None
            continue
        job = jobs_file.find_jobs(known_jobs, name)[-1]
        if job.scheduler != scheduler:
            raise UsageError(
                f"job {job.id} runs at {job.scheduler}: a job of {scheduler} cannot "
                "wait for it"
            )
        # by token, since schedulers use ids again
        needs[job.token or job.id] = None
    return tuple(needs)


def jobs_to_await(
    here: Here, needs: Sequence[str], known_jobs: Sequence[SubmittedJob]
) -> AwaitedJobs:
    """Return what a job with these *needs* has to wait for at this moment.

    Raises:
        UsageError: there is no such job.
    """
    found = [needed(here, need, known_jobs) for need in needs]
    return AwaitedJobs(
        needs=tuple(
            need for need, one in zip(needs, found, strict=True) if not one.is_done
        ),
        ids=tuple(dict.fromkeys(job for one in found for job in one.ids)),
        blocked=tuple(one for one in found if one.is_blocked),
    )


def await_jobs(
    here: Here, names: Sequence[str], scheduler: str, *, are_new: bool = False
) -> AwaitedJobs:
    """Return what a new job waits for that starts after the jobs called *names*.

    Jobs that *are_new*, parts of one plan, were sent just now, and may have failed
    already: it waits all the same, until they are resumed.

    Raises:
        UsageError: there is no such job, or it cannot succeed as things are.
    """
    known = jobs_file.read_jobs(here.root)
    needs = needs_of(names[:1] if are_new else names, scheduler, known)
    wait = jobs_to_await(here, needs, known)
    if are_new:
        return replace(wait, ids=wait.ids or tuple(names)) if wait.needs else wait
    for one in wait.blocked:
        is_strange = is_stranger(one.job, known)
        again = f"run {one.job} again" if is_strange else f"weigh resume {one.job}"
        raise UsageError(
            f"--after: {one.name} (job {one.job}) cannot succeed: {one.words} "
            f"({again}, then submit this)"
        )
    return wait


def needed(here: Here, need: str, known_jobs: Sequence[SubmittedJob]) -> NeededJob:
    """Return the state of the job that another one needs.

    Raises:
        UsageError: there is no such job.
        SchedulerError: its scheduler does not answer.
    """
    healers = list[SubmittedJob]()
    if is_stranger(need, known_jobs):
        # weigh did not submit it: the scheduler's answer is all that is known
        try:
            chain = named_jobs(here, known_jobs, need, of_others=True)
        except UsageError:  # it has forgotten it, and decides
            words = "not submitted from here"
            return NeededJob(name=need, job=need, ids=(need,), words=words)
        known_jobs = with_foreign(known_jobs, chain)
    else:
        # all rounds: a later one may have done what this one left
        job = jobs_file.find_jobs(known_jobs, need)[-1]
        chain = jobs_file.chain_of(known_jobs, job)
    if any(job.heal is not None for job in chain):
        healers = rounds_of_plan(here, chain[0].folder).healers()[-1:]
    views = list(look(here, chain, [*known_jobs, *healers], fresh=True))
    return _needed_of(views, healers)


def is_stranger(need: str, known_jobs: Sequence[SubmittedJob]) -> bool:
    """Return whether *need* is the id of a job that weigh did not submit here."""
    return need.isdecimal() and not any(job.id == need for job in known_jobs)


def _needed_of(views: Sequence[JobView], healers: Sequence[SubmittedJob]) -> NeededJob:
    # tasks that were never sent are not done either
    tasks = latest_task_states(with_unsent(views)).values()
    last, snapshot = views[-1].job, views[-1].snapshot
    left = [task for task in tasks if task.state != "COMPLETED"]
    healer = [one for one in healers if _goes_on(one, snapshot.of(one, 0).state)]
    by_id = {view.job.id: view.job for view in views}
    live = [
        view.job
        for view in views
        if any(_goes_on(view.job, state.state) for state in view.elements)
    ]
    # tasks that nothing runs: without a healer only a person can go on
    stuck = [task for task in left if not _goes_on(by_id[task.job], task.state)]
    if snapshot.trouble is not None:  # what it answers counts, not that it is silent
        live, stuck = [view.job for view in views if view.job.round == last.round], []
    words = _unfinished_tasks_text(stuck or left, len(tasks))
    if not left:
        ids: tuple[str, ...] = ()
    elif healer:
        ids = (healer[-1].id,)
    else:
        # the jobs that go on may succeed while those tasks stay undone
        ids = () if stuck else tuple(job.id for job in live)
    return NeededJob(
        name=last.name,
        job=last.id,
        ids=ids,
        words=words,
        is_done=not left,
        is_blocked=bool(left) and not ids,
        # a task that is only lost or unknown may still turn out to be done
        has_failed=any(task.state in _KEEPS_BACK for task in stuck),
    )


def _goes_on(submitted_job: SubmittedJob, state: State) -> bool:
    """Return whether a part of the job waits or runs, or is too new to be listed."""
    is_new = time.time() - submitted_job.submitted < SETTLING
    return state in ACTIVE or (state == "UNKNOWN" and is_new)


def _unfinished_tasks_text(left: Sequence[TaskState], total: int) -> str:
    """Write how many tasks are in which state, e.g. '1 of 4 tasks failed'."""
    states = Counter(task.state for task in left)
    parts = [f"{number:,} {STATE_WORDS[state]}" for state, number in states.items()]
    noun = "task" if total == 1 else "tasks"
    if len(states) == 1:
        number, _, word = parts[0].partition(" ")
        return f"{number} of {total:,} {noun} {word}"
    return f"of {total:,} {noun} {', '.join(parts)}" if parts else "all tasks are done"


def why_not_yet(here: Here, needs: Sequence[str]) -> list[str]:
    """Return why a job with these *needs* may not start; nothing if it may.

    A node sees what other nodes wrote some seconds later, and accounting lists an end
    later still: only a task that has failed decides at once.
    """
    root = here.root
    end = time.monotonic() + SETTLING
    while True:
        known = jobs_file.read_jobs(root)
        found = [needed(here, need, known) for need in needs]
        not_yet = [one for one in found if not one.is_done]
        has_failed = any(one.has_failed for one in not_yet)
        if not not_yet or has_failed or time.monotonic() > end:
            return [
                f"{one.name} (job {one.job}) has not succeeded: {one.words}"
                for one in not_yet
            ]
        time.sleep(_PAUSE)


def is_kept_back(task_state: TaskState) -> bool:
    """Return whether a task did not start because a job that it needs has failed."""
    return task_state.state == "FAILED" and NOT_STARTED in (task_state.reason or "")


def lead_on(
    here: Here, chain: Sequence[SubmittedJob], send_anew: SendAnew
) -> Iterator[FollowingJob]:
    """Let the jobs that wait for a job of *chain* wait for its last round.

    Those that have ended because it had not succeeded are sent again. Yields what was
    done; a follower that cannot be changed is named with the reason.
    """
    tokens = {job.token or job.id for job in chain}
    known = jobs_file.read_jobs(here.root)
    for job in known:
        if tokens.isdisjoint(job.needs) or job in chain:
            continue
        # only the last round of a follower can still wait
        if jobs_file.chain_of(known, job)[-1].id != job.id:
            continue
        try:
            done = _led_on(here, job, known, send_anew)
        except (SchedulerError, StoreError, UsageError) as error:
            done = FollowingJob(job=job.id, name=job.name, trouble=str(error))
        if done is not None:
            yield done


def await_last_rounds(here: Here, submitted_jobs: Iterable[SubmittedJob]) -> None:
    """Let jobs that were sent just now wait for the last round of what they need.

    A healer that sent it meanwhile did not know them, so it has not led them on.
    """
    known = jobs_file.read_jobs(here.root)
    for job in submitted_jobs:
        try:
            if job.needs:
                _led_on(here, job, known, lambda _: None)
        except (SchedulerError, StoreError, UsageError) as error:
            here.notify(f"job {job.id} may wait for an earlier round: {error}")


def _led_on(
    here: Here,
    submitted_job: SubmittedJob,
    known_jobs: Sequence[SubmittedJob],
    send_anew: SendAnew,
) -> FollowingJob | None:
    view = next(iter(look(here, [submitted_job], known_jobs, fresh=True)))
    waits = any(state.state == "PENDING" for state in view.elements)
    is_over = all(state.is_final for state in view.elements)
    # its own script ended it, see check_needs in schedulers/job_script.py
    was_kept = is_over and any(map(is_kept_back, view.tasks))
    if not (waits or was_kept):
        return None
    wait = jobs_to_await(here, submitted_job.needs, known_jobs)
    if wait.blocked:
        return FollowingJob(
            job=submitted_job.id, name=submitted_job.name, blocked=wait.blocked
        )
    # where it hangs on them already there is nothing to change
    if waits and wait.ids != submitted_job.request.after:
        view.scheduler.set_awaited_jobs(submitted_job, wait.ids)
        request = replace(submitted_job.request, after=wait.ids)
        jobs_file.append_job(here.root, replace(submitted_job, request=request))
    if waits:
        return FollowingJob(
            job=submitted_job.id, name=submitted_job.name, after=wait.ids
        )
    again = send_anew(submitted_job)
    if again is None:
        return None
    return FollowingJob(
        job=again.id, name=submitted_job.name, after=wait.ids, was=submitted_job.id
    )
