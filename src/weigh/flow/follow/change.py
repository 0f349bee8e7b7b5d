"""``weigh change``: change the request of a job that waits, where users may."""

import msgspec

from weigh.errors import SchedulerError, UsageError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.view import look
from weigh.flow.here import Here
from weigh.flow.submit.rounds import settle_all
from weigh.model.job import JobRequest, SubmittedJob
from weigh.schedulers import find_kind
from weigh.schedulers.protocol import WaitingJobChange
from weigh.store import jobs as jobs_file


def change_request(
    here: Here, name: str, wanted: WaitingJobChange
) -> tuple[SubmittedJob, JobRequest]:
    """Change the job called *name*; return it, and what it requests now.

    Raises:
        UsageError: there is no such job, none of it waits, or its scheduler cannot.
        SchedulerError: the scheduler refuses it or does not answer.
    """
    if wanted == WaitingJobChange():
        raise UsageError("nothing to change: weigh change JOB --time 4h")
    root = here.root
    settle_all(here)
    known = jobs_file.read_jobs(root)
    job = named_jobs(here, known, name)[-1]
    kind = find_kind(job.scheduler)
    if kind is None or not kind.traits.can_change:
        if kind is None:
            raise UsageError(
                f"job {job.id} on this machine cannot be changed (weigh cancel "
                f"{job.id}, then weigh resume {job.id} --time TIME)"
            )
        other = f"{kind.traits.changed_by} {job.id}"
        raise UsageError(f"job {job.id}: weigh cannot change it ({other})")
    view = next(look(here, [job], with_foreign(known, [job]), fresh=True))
    states = {element.state for element in view.elements}
    if all(element.is_final for element in view.elements):
        raise UsageError(f"job {job.id} has ended: nothing to change")
    way_out = f"weigh cancel {job.id}, then submit it with the new request"
    # schedulers let users lower the limit of a running job, but not raise it
    if wanted.time is not None:
        way_out = "no user may raise a running job's limit, or exceed the queue's"
    elif "PENDING" not in states:
        raise UsageError(f"job {job.id} runs: {way_out}")
    try:
        view.scheduler.change(job, wanted)
    except SchedulerError as error:
        raise SchedulerError(f"job {job.id}: {error} ({way_out})") from error
    request = _changed_request(
        job.request, wanted, is_virtual=bool(kind.traits.address_space)
    )
    # the last line of a job in the store counts; without a token it would be one more
    # job, and a part has only some of the job's elements
    if not job.is_foreign and not job.is_part and job.token:
        jobs_file.append_job(root, msgspec.structs.replace(job, request=request))
    return job, request


def _changed_request(
    job_request: JobRequest, wanted: WaitingJobChange, *, is_virtual: bool
) -> JobRequest:
    """Return *job_request* with what was changed.

    *is_virtual*: it limits address space.
    """
    memory, virtual = job_request.memory, job_request.virtual_memory
    if wanted.memory is not None and is_virtual:
        virtual = wanted.memory
        # less address space leaves less memory
        memory = None if memory is None else min(memory, wanted.memory)
    elif wanted.memory is not None:
        memory = wanted.memory
    return msgspec.structs.replace(
        job_request,
        memory=memory,
        virtual_memory=virtual,
        time_limit=wanted.time or job_request.time_limit,
        throttle=wanted.throttle or job_request.throttle,
    )
