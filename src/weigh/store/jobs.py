"""The submitted jobs: ``jobs.jsonl`` in the store, one line per job."""

import os
import shlex
from collections.abc import Sequence

import msgspec

from weigh.errors import UsageError
from weigh.model.job import RESUME, Submitted
from weigh.store.known_stores import remember_store
from weigh.store.lines import read_documents
from weigh.store.location import make_folder
from weigh.store.shards import append_line

FILE = "jobs.jsonl"
LAST = "last"


def append(root: str, job: Submitted) -> None:
    """Append a job.

    Raises:
        StoreError: it cannot be written.
    """
    make_folder(root)
    append_line(os.path.join(root, FILE), msgspec.json.encode(job))
    remember_store(root, os.environ)


def read_jobs(root: str) -> list[Submitted]:
    """Read all jobs, the oldest first; lines that do not parse are skipped.

    A job that was recorded again, when it was found or changed, counts once, as last
    recorded.

    Raises:
        StoreError: they exist, but cannot be read.
    """
    found: dict[tuple[str, str, str] | int, Submitted] = {}
    for job in read_documents(os.path.join(root, FILE), Submitted):
        one = (job.scheduler, job.id, job.token)
        found[one if job.token else len(found)] = job
    return list(found.values())


def find_jobs(jobs: Sequence[Submitted], name: str) -> list[Submitted]:
    """Return the job with the id *name*, or all jobs of the newest plan of that name.

    The token of a submission means its job: schedulers may use ids again. ``last`` is
    the last submitted one. The name of a plan is its name or its folder; the jobs that
    resumed it belong to it, in order.

    Raises:
        UsageError: there is none; lists the latest jobs.
    """
    if not jobs:
        _refuse_unsent(name)
        if name == LAST:
            raise UsageError("no job was submitted from here: weigh submit PLAN")
        raise UsageError(
            f"no job {name}: none was submitted from here (weigh submit PLAN)"
        )
    if name == LAST:
        return [jobs[-1]]
    found = jobs_called(jobs, name)
    if not found:
        _refuse_unsent(name)
        recent = ", ".join(f"{job.id} ({job.name})" for job in jobs[:-4:-1])
        raise UsageError(f"no such job: {name} (the latest: {recent})")
    return found


def jobs_called(jobs: Sequence[Submitted], name: str) -> list[Submitted]:
    """Return the job with the id or token *name*, or those of the newest such plan."""
    by_id = [job for job in jobs if name in {job.id, job.token}]
    if by_id:
        return [by_id[-1]]
    folder = os.path.abspath(name)
    called = [job for job in jobs if job.is_called(name) or job.is_of(folder)]
    return chain_of(jobs, called[-1]) if called else []


def _refuse_unsent(name: str) -> None:
    """Refuse the name of a plan that was not submitted.

    Raises:
        UsageError: it is one.
    """
    for folder in (name, os.path.join("plan", name)):
        if name != LAST and os.path.isfile(os.path.join(folder, "plan.json")):
            way_out = f"weigh submit {shlex.quote(folder)}"
            raise UsageError(f"{name} was not submitted from here: {way_out}")


def chain_of(jobs: Sequence[Submitted], job: Submitted) -> list[Submitted]:
    """Return the first job of the plan of *job*, and all that resumed it.

    Ids alone do not show that: a scheduler that is installed again counts from 1, and a
    controller that was killed may use the last ones again.
    """
    by_id: dict[tuple[str, str], list[Submitted]] = {}
    for one in jobs:
        by_id.setdefault((one.scheduler, one.id), []).append(one)
    first, seen = job, {job.id}
    while first.resumes and first.resumes not in seen:
        same = by_id.get((first.scheduler, first.resumes), [])
        before = [one for one in same if _are_of_one_plan(first, one)]
        if not before:
            break
        first = before[-1]
        seen.add(first.id)
    chain = {first.id}
    found = []
    for one in jobs:
        resumes = one.resumes in chain and one.scheduler == first.scheduler
        if one is first or (resumes and _are_of_one_plan(one, first)):
            chain.add(one.id)
            found.append(one)
    return found


def _are_of_one_plan(one: Submitted, other: Submitted) -> bool:
    """Return whether two jobs ran tasks of the same plan, the first time or again."""
    above, below = sorted((one.folder, other.folder), key=len)
    return _plan_of(above) == _plan_of(below) or below.startswith(f"{above}/")


def _plan_of(folder: str) -> str:
    above, _, name = folder.rpartition("/")
    is_resumed = name.startswith(RESUME) and name.removeprefix(RESUME).isdecimal()
    return above if is_resumed else folder
