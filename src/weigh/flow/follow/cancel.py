"""``weigh cancel``: end jobs, or those of their elements that run or wait."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import SchedulerError, SubmissionUnknownError, UsageError
from weigh.flow.site import schedulers
from weigh.flow.submit.once import settle_all
from weigh.model.job import STUCK, ElementState, Submitted
from weigh.model.record import State
from weigh.store import jobs as jobs_file
from weigh.store import location

ALL = "all"


class Cancelled(msgspec.Struct, frozen=True):
    """A job that was told to end; ``elements`` are which of it, None for all."""

    job: Submitted
    elements: tuple[int, ...] | None = None


def cancel(  # noqa: C901, PLR0913 - keyword-only past the first
    names: Sequence[str],
    *,
    keep: Sequence[str] = (),
    only: State | None = None,
    dry_run: bool = False,
    cwd: str,
    env: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Cancelled, ...]:
    """End the jobs called *names* but those called *keep*, or their *only* elements.

    ``all`` are those that have not ended. *say* is called with what became of
    submissions that got no answer.

    Raises:
        UsageError: there is no such job.
        SchedulerError: a scheduler refuses or does not answer.
        SubmissionUnknownError: a job may be there that has no id yet.
    """
    root = location.locate(cwd, env)
    still = settle_all(root, env, say)
    known = jobs_file.read_jobs(root)
    if still and not _has_all(names, known):
        raise SubmissionUnknownError(still[0])
    kept = {job.id for name in keep for job in jobs_file.find_jobs(known, name)}
    wanted = [
        job for job in _named(names, known) if job.id not in kept and name_is(job, keep)
    ]
    done, refusals = [], []
    for scheduler_name in dict.fromkeys(job.scheduler for job in wanted):
        scheduler = schedulers.reach(scheduler_name, root=root, env=env)
        ours = [job for job in known if job.scheduler == scheduler_name]
        snapshot = scheduler.states(ours, fresh=True)
        for job in wanted:
            if job.scheduler != scheduler_name:
                continue
            alive = [
                number
                for number in range(job.elements)
                if _is_there(snapshot.of(job, number))
                and only in {None, snapshot.of(job, number).state}
            ]
            if not alive:
                continue
            chosen = None if only is None else tuple(alive)
            try:
                if not dry_run:
                    scheduler.cancel(job, chosen)
            except SchedulerError as error:
                refusals.append(error)  # that is no reason to let the others run
            else:
                done.append(Cancelled(job, chosen))
    if refusals:
        raise _refused(refusals, done) from refusals[0]
    if still and (ALL in names or not done):
        raise _refused([SubmissionUnknownError(line) for line in still], done)
    return tuple(done)


def _refused(
    refusals: Sequence[SchedulerError], done: Sequence[Cancelled]
) -> SchedulerError:
    """Say what could not be cancelled, and what was all the same."""
    there = ", ".join(one.job.id for one in done)
    said = "; ".join(dict.fromkeys(map(str, refusals)))
    return SchedulerError(f"{said} (cancelled: {there})" if there else said)


def _has_all(names: Sequence[str], known: Sequence[Submitted]) -> bool:
    """Return whether there is a job of each name."""
    try:
        return bool(known) and bool(_named(names, known))
    except UsageError:
        return False


def name_is(job: Submitted, keep: Sequence[str]) -> bool:
    """Return whether *job* is none of those to keep."""
    return job.id not in keep and job.name not in keep


def _is_there(state: ElementState) -> bool:
    """Return whether the scheduler still holds an element."""
    return not state.is_final or state.reason == STUCK


def _named(names: Sequence[str], known: Sequence[Submitted]) -> list[Submitted]:
    if not names:
        raise UsageError("which job? weigh cancel JOB, or weigh cancel all")
    if ALL in names:
        return list(known)
    found = [job for name in names for job in jobs_file.find_jobs(known, name)]
    return list({(job.scheduler, job.id): job for job in found}.values())
