"""The command that runs what is left of a job, as `weigh status` prints it."""

import shlex
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from weigh.errors import WeighError
from weigh.flow.follow.dependency import needed
from weigh.flow.follow.resume import ResumeRound
from weigh.flow.follow.view import JobView, ScriptWork, look
from weigh.flow.here import Here, here_of
from weigh.model.job import SubmittedJob
from weigh.planning.resume_policy import ResumeOptions
from weigh.render.status_lines import JobStanding
from weigh.store import jobs as jobs_file

# the mildest first: what runs with no flag needs none
_WAYS = (
    ((), ResumeOptions()),
    (("--bugs",), ResumeOptions(bugs=True)),
    (("--unknown",), ResumeOptions(unknown=True)),
)


def with_way_out(
    here: Here,
    job_standing: JobStanding,
    views: Sequence[JobView],
    known_jobs: Sequence[SubmittedJob],
) -> JobStanding:
    """Return a standing with the jobs that it needs, and what runs what is left."""
    if job_standing.is_done:
        return job_standing
    needs = [needed(here, need, known_jobs) for need in job_standing.job.needs]
    job_standing = replace(
        job_standing, needs=tuple(need for need in needs if not need.is_done)
    )
    blocked = next((need for need in needs if need.is_blocked), None)
    if blocked is not None:
        return replace(
            job_standing, way_out=_command_for_needed_job(here, blocked.job, known_jobs)
        )
    if (
        needs and not job_standing.needs and job_standing.is_stuck
    ):  # an element failed, and no task
        return replace(job_standing, way_out=f"weigh resume {needs[0].job}")
    if not job_standing.is_over:
        return job_standing
    return replace(job_standing, way_out=_of_views(here, views))


def _command_for_needed_job(
    here: Here, name: str, known_jobs: Sequence[SubmittedJob]
) -> str | None:
    """Return the command for a job that another one needs, or for what that needs."""
    chain = jobs_file.chain_of(known_jobs, jobs_file.find_jobs(known_jobs, name)[-1])
    # what is at the bottom of a chain of needs has to run first
    for need in chain[-1].needs:
        above = needed(here, need, known_jobs)
        if above.is_blocked:
            return _command_for_needed_job(here, above.job, known_jobs)
    views = list(look(here, chain, known_jobs))
    return _of_views(here, views)


def _of_views(here: Here, views: Sequence[JobView]) -> str | None:
    """Return the command that runs what is left of a job that is over, if one does."""
    job = views[-1].job
    if job.is_foreign:
        failed = [one.task for one in views[-1].tasks if one.state != "COMPLETED"]
        return ScriptWork(job).command_again(failed)
    for flags, options in _WAYS:
        # decided by resume itself, so that the command printed does what it promises
        found = ResumeRound(here_of(job.cwd, here.env), job.id, options)
        with suppress(WeighError):  # a plan that was deleted
            found.look(views)
        if found.groups:
            return shlex.join(("weigh", "resume", job.id, *flags))
    return None
