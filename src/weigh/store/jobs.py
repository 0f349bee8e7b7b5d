"""The submitted jobs: ``jobs.jsonl`` in the store, one line per job."""

import os
import shlex
from collections.abc import Sequence

import msgspec

from weigh.errors import UsageError
from weigh.model.job import RESUME, SubmittedJob
from weigh.store.lines import read_documents
from weigh.store.location import make_folder
from weigh.store.shards import append_line

FILE = "jobs.jsonl"
LAST = "last"


def append_job(root: str, submitted_job: SubmittedJob) -> None:
    """Append a job.

    Raises:
        StoreError: it cannot be written.
    """
    make_folder(root)
    append_line(os.path.join(root, FILE), msgspec.json.encode(submitted_job))


def read_jobs(root: str) -> list[SubmittedJob]:
    """Read all jobs, the oldest first; lines that do not parse are skipped.

    A job that was recorded again, when it was found or changed, counts once, as last
    recorded.

    Raises:
        StoreError: they exist, but cannot be read.
    """
    found: dict[tuple[str, str, str] | int, SubmittedJob] = {}
    for job in read_documents(os.path.join(root, FILE), SubmittedJob):
        # the token too, as schedulers use ids again; without one each line is a job
        one = (job.scheduler, job.id, job.token)
        found[one if job.token else len(found)] = job
    return list(found.values())


def find_jobs(
    submitted_jobs: Sequence[SubmittedJob], job_name: str
) -> list[SubmittedJob]:
    """Return the job with that id, or all jobs of the newest plan of that name.

    The token of a submission means its job: schedulers may use ids again. ``last`` is
    the last submitted one. The name of a plan is its name or its folder; the jobs that
    resumed it belong to it, in order.

    Raises:
        UsageError: there is none; lists the latest jobs.
    """
    if not submitted_jobs:
        refuse_unsent(job_name)
        if job_name == LAST:
            raise UsageError("no job was submitted from here: weigh submit PLAN")
        raise UsageError(
            f"no job {job_name}: none was submitted from here (weigh submit PLAN)"
        )
    if job_name == LAST:
        return [submitted_jobs[-1]]
    found = jobs_called(submitted_jobs, job_name)
    if not found:
        refuse_unsent(job_name)
        recent = ", ".join(f"{job.id} ({job.name})" for job in submitted_jobs[:-4:-1])
        raise UsageError(f"no such job: {job_name} (the latest: {recent})")
    return found


def jobs_called(
    submitted_jobs: Sequence[SubmittedJob], job_name: str
) -> list[SubmittedJob]:
    """Return the job with that id or token, or those of the newest such plan."""
    by_id = [job for job in submitted_jobs if job_name in {job.id, job.token}]
    if by_id:
        return [by_id[-1]]
    folder = os.path.abspath(job_name)
    called = [
        job for job in submitted_jobs if job.is_called(job_name) or job.is_of(folder)
    ]
    return chain_of(submitted_jobs, called[-1]) if called else []


def refuse_unsent(job_name: str) -> None:
    """Refuse the name of a plan that was not submitted.

    Raises:
        UsageError: it is one.
    """
    for folder in (job_name, os.path.join("plan", job_name)):
        if job_name != LAST and os.path.isfile(os.path.join(folder, "plan.json")):
            way_out = f"weigh submit {shlex.quote(folder)}"
            if os.path.isdir(os.path.join(folder, "sent")):
                project = os.path.dirname(os.path.dirname(os.path.abspath(folder)))
                if os.path.samefile(project, os.curdir):
                    way_out += " --again"  # its store is gone, or another user's
                else:
                    way_out = f"cd {shlex.quote(project)}"
            raise UsageError(f"{job_name} was not submitted from here: {way_out}")


def chain_of(
    submitted_jobs: Sequence[SubmittedJob], submitted_job: SubmittedJob
) -> list[SubmittedJob]:
    """Return the first job of the plan of *submitted_job*, and all that resumed it.

    Ids alone do not show that: a scheduler that is installed again counts from 1, and a
    controller that was killed may use the last ones again.
    """
    by_id: dict[tuple[str, str], list[SubmittedJob]] = {}
    for one in submitted_jobs:
        by_id.setdefault((one.scheduler, one.id), []).append(one)
    first, seen = submitted_job, {submitted_job.id}
    # an id that was used again could otherwise make this a circle
    while first.resumes and first.resumes not in seen:
        same = by_id.get((first.scheduler, first.resumes), [])
        before = [one for one in same if _are_of_one_plan(first, one)]
        if not before:
            break
        # the newest of that id
        first = before[-1]
        seen.add(first.id)
    chain = {first.id}
    found = []
    for one in submitted_jobs:
        resumes = one.resumes in chain and one.scheduler == first.scheduler
        if one is first or (resumes and _are_of_one_plan(one, first)):
            chain.add(one.id)
            found.append(one)
    return found


def _are_of_one_plan(submitted_job: SubmittedJob, other_job: SubmittedJob) -> bool:
    """Return whether two jobs ran tasks of the same plan, the first time or again."""
    # a round's directory is below that of its plan
    above, below = sorted((submitted_job.folder, other_job.folder), key=len)
    return _plan_folder(above) == _plan_folder(below) or below.startswith(f"{above}/")


def _plan_folder(folder: str) -> str:
    above, _, name = folder.rpartition("/")
    is_resumed = name.startswith(RESUME) and name.removeprefix(RESUME).isdecimal()
    return above if is_resumed else folder
