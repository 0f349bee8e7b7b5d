"""``weigh cancel``: end jobs, or only those of their elements that still wait."""

from collections.abc import Sequence

import msgspec

from weigh.errors import SchedulerError, SubmissionUnknownError, UsageError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.here import Here
from weigh.flow.site import schedulers
from weigh.flow.submit.rounds import rounds_of_plan, settle_all
from weigh.model.job import STUCK, ElementState, SubmittedJob
from weigh.store import jobs as jobs_file

ALL = "all"


class CancelledJob(msgspec.Struct, frozen=True):
    """A job that was cancelled, and how many of its elements had not ended."""

    job: SubmittedJob
    count: int


def cancel_jobs(
    here: Here,
    names: Sequence[str],
    *,
    keep: Sequence[str] = (),
    only_waiting: bool = False,
    dry_run: bool = False,
) -> tuple[CancelledJob, ...]:
    """Cancel the jobs called *names* except those called *keep*.

    ``all`` means all jobs that have not ended. With *only_waiting* elements that
    run go on, and so does the healer. ``here.notify`` receives the outcome of
    submissions that had no answer.

    Raises:
        UsageError: there is no such job.
        SchedulerError: a scheduler refuses or does not answer.
        SubmissionUnknownError: a job may exist whose id is not known yet.
    """
    still = settle_all(here)
    known = jobs_file.read_jobs(here.root)
    # the name may be that of the very job whose id is not known yet
    if still and not _has_all(names, known):
        raise SubmissionUnknownError(still[0])
    named = _jobs_to_cancel(here, names, known)
    known = with_foreign(known, named)
    # the name of a plan keeps all of its rounds
    rounds = (jobs_file.find_jobs(known, name) for name in keep)
    kept = {*keep, *(job.id for jobs in rounds for job in jobs)}
    chosen_jobs = [job for job in named if kept.isdisjoint({job.id, job.name})]
    done, refusals = [], []
    for scheduler_name in dict.fromkeys(job.scheduler for job in chosen_jobs):
        scheduler = schedulers.reach(here, scheduler_name)
        ours = [job for job in known if job.scheduler == scheduler_name]
        chosen_here = [job for job in chosen_jobs if job.scheduler == scheduler_name]
        healers = [] if only_waiting else _healers(here, chosen_here, known)
        # an older answer would miss elements that have just started
        snapshot = scheduler.states([*ours, *healers], fresh=True)
        # healers first: else one could start before its jobs are gone
        for job in (*healers, *chosen_here):
            alive = [
                number
                for number in range(job.elements)
                if _is_there(snapshot.of(job, number))
                and (not only_waiting or snapshot.of(job, number).state == "PENDING")
            ]
            if not alive:
                continue
            # None: the whole job in one call, also elements that start meanwhile
            chosen = tuple(alive) if only_waiting else None
            try:
                if not dry_run:
                    scheduler.cancel(job, chosen)
            except SchedulerError as error:
                refusals.append(error)  # cancel the other jobs first
            else:
                done.append(CancelledJob(job, len(alive)))
    if refusals:
        raise _refusals_as_one_error(refusals, done) from refusals[0]
    # some job may exist that was not cancelled: that must not pass as success
    if still and (ALL in names or not done):
        raise _refusals_as_one_error(
            [SubmissionUnknownError(line) for line in still], done
        )
    return tuple(done)


def _healers(
    here: Here,
    chosen: Sequence[SubmittedJob],
    known_jobs: Sequence[SubmittedJob],
) -> list[SubmittedJob]:
    """Return the last healers of each plan that has one of the *chosen* jobs."""
    folders = {
        chain[0].folder
        for job in chosen
        if job.heal is not None and (chain := jobs_file.chain_of(known_jobs, job))
    }
    return [
        healer
        for folder in sorted(folders)
        for healer in rounds_of_plan(here, folder).healers()[-1:]
    ]


def _refusals_as_one_error(
    refusals: Sequence[SchedulerError], done: Sequence[CancelledJob]
) -> SchedulerError:
    """Return one error for all refusals; it also names the cancelled jobs."""
    cancelled = ", ".join(one.job.id for one in done)
    reasons = "; ".join(dict.fromkeys(map(str, refusals)))
    return SchedulerError(
        f"{reasons} (cancelled: {cancelled})" if cancelled else reasons
    )


def _has_all(names: Sequence[str], known_jobs: Sequence[SubmittedJob]) -> bool:
    """Return whether each name has a job."""
    try:
        return bool(known_jobs) and all(
            name == ALL or jobs_file.find_jobs(known_jobs, name) for name in names
        )
    except UsageError:
        return False


def _is_there(element_state: ElementState) -> bool:
    """Return whether the scheduler still holds an element."""
    return not element_state.is_final or element_state.reason == STUCK


def _jobs_to_cancel(
    here: Here, names: Sequence[str], known_jobs: Sequence[SubmittedJob]
) -> list[SubmittedJob]:
    if not names:
        raise UsageError("which job? weigh cancel JOB, or weigh cancel all")
    if ALL in names:
        if not known_jobs:
            jobs_file.find_jobs(known_jobs, jobs_file.LAST)  # refuses
        return list(known_jobs)
    found = [job for name in names for job in named_jobs(here, known_jobs, name)]
    return list({(job.scheduler, job.id): job for job in found}.values())
