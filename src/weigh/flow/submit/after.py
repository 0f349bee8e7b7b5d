"""Which jobs ``--after`` means: all that have to be over before the next one begins."""

from collections.abc import Sequence

from weigh.errors import UsageError
from weigh.model.job import Submitted
from weigh.store.jobs import chain_of, find_jobs


def ids_to_await(
    names: Sequence[str], scheduler: str, known: Sequence[Submitted]
) -> tuple[str, ...]:
    """Give the ids of the jobs to come after; those of others go through as they are.

    Raises:
        UsageError: a job is another scheduler's, which would wait for nothing.
    """
    ids: dict[str, None] = {}
    for name in names:
        if name.isdecimal() and not any(job.id == name for job in known):
            ids[name] = None
            continue
        job = find_jobs(known, name)[-1]
        if job.scheduler != scheduler:
            raise UsageError(
                f"job {job.id} is with {job.scheduler}: a job of {scheduler} cannot "
                "wait for it"
            )
        ids |= dict.fromkeys(one.id for one in submitted_with(job, known))
    return tuple(ids)


def submitted_with(job: Submitted, known: Sequence[Submitted]) -> list[Submitted]:
    """Give all that one call submitted: the parts of an array, or what was resumed.

    They lie in one folder, if in none other; and where several were resumed, they go
    on from the same.
    """
    return [
        one
        for one in chain_of(known, job)
        if one.id == job.id
        or one.folder == job.folder
        or (job.resumes is not None and one.resumes == job.resumes)
    ]
