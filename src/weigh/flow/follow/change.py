"""``weigh change``: change the request of a job that waits, where users may."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import SchedulerError, UsageError
from weigh.flow.follow.named import is_foreign, named_jobs, with_foreign
from weigh.flow.follow.view import look
from weigh.flow.submit.job_request import ids_to_await
from weigh.flow.submit.rounds import settle_all
from weigh.model.job import ElementState, JobRequest, Submitted
from weigh.schedulers import find_kind
from weigh.schedulers.protocol import Argv, Change
from weigh.store import jobs as jobs_file
from weigh.store import location


class Changed(msgspec.Struct, frozen=True):
    """A job that was changed, its new request, and the commands that did."""

    job: Submitted
    request: JobRequest
    argvs: tuple[Argv, ...]
    waiting: int


def change(
    name: str,
    wanted: Change,
    *,
    cwd: str,
    env: Mapping[str, str],
    notify: Callable[[str], None] = lambda _: None,
) -> Changed:
    """Change the job called *name*, and note what the scheduler then has.

    Raises:
        UsageError: there is no such job, none of it waits, or its scheduler cannot.
        SchedulerError: the scheduler refuses it or does not answer.
    """
    root = location.locate(cwd, env)
    settle_all(root, env, notify)
    known = jobs_file.read_jobs(root)
    job = named_jobs(known, name, root=root, env=env)[-1]
    _refuse_absent(job, wanted)
    if wanted.after:
        ids = ids_to_await(wanted.after, job.scheduler, known)
        wanted = msgspec.structs.replace(wanted, after=ids)
    every = with_foreign(known, [job])
    view = next(look([job], every, root=root, env=env, fresh=True))
    waiting = sum(state.state == "PENDING" for state in view.elements)
    if not waiting and not _may_run(wanted, view.elements):
        if all(state.is_final for state in view.elements):
            raise UsageError(f"job {job.id} has ended: nothing to change")
        raise UsageError(f"job {job.id} runs: {_way_out(job, wanted)}")
    try:
        argvs = view.scheduler.change(job, wanted)
    except SchedulerError as error:
        hint = _way_out(job, wanted)
        raise SchedulerError(f"job {job.id}: {error} ({hint})") from error
    request = _changed(job, wanted)
    if not is_foreign(job) and not (job.own and job.own.part) and job.token:
        jobs_file.append(root, msgspec.structs.replace(job, request=request))
    return Changed(job, request, argvs, waiting)


def _refuse_absent(job: Submitted, wanted: Change) -> None:
    """Refuse what the scheduler cannot change.

    Raises:
        UsageError: names the command that may.
    """
    typed = {
        name for name in wanted.__struct_fields__ if getattr(wanted, name) is not None
    }
    if not typed:
        raise UsageError("nothing to change: weigh change JOB --time 4h")
    kind = find_kind(job.scheduler)
    if kind is None:
        raise UsageError(f"job {job.id} runs on this machine: nothing to change")
    missing = sorted(typed - kind.traits.changes)
    if missing:
        raise UsageError(
            f"--{missing[0]}: weigh cannot change it in {kind.title} "
            f"({kind.traits.changed_by} {job.id})"
        )
    if wanted.throttle is not None and job.elements == 1 and not _is_array(job):
        raise UsageError(f"--throttle: job {job.id} has one element")


def _is_array(job: Submitted) -> bool:
    return job.own is not None and bool(job.own.indices)


def _may_run(wanted: Change, elements: Sequence[ElementState]) -> bool:
    """Return whether the change can be for running elements: a shorter time limit."""
    runs = any(state.state == "RUNNING" for state in elements)
    return runs and wanted.time is not None


def _way_out(job: Submitted, wanted: Change) -> str:
    """Return what to do instead of a change."""
    if wanted.time is not None:
        return "no user may raise a running job's limit, or exceed the queue's"
    if wanted.priority is not None:
        return "users can only lower it"
    return f"weigh cancel {job.id}, then submit it with the new request"


def _changed(job: Submitted, wanted: Change) -> JobRequest:
    """Return the job's request after the change."""
    virtual = job.request.virtual_memory
    memory = job.request.memory
    if wanted.memory is not None:
        kind = find_kind(job.scheduler)
        if kind is not None and kind.traits.address_space:
            virtual = wanted.memory
            memory = None if memory is None else min(memory, wanted.memory)
        else:
            memory = wanted.memory
    return msgspec.structs.replace(
        job.request,
        memory=memory,
        virtual_memory=virtual,
        time_limit=job.request.time_limit if wanted.time is None else wanted.time,
        throttle=wanted.throttle or job.request.throttle,
        queue=wanted.queue or job.request.queue,
        after=job.request.after if wanted.after is None else wanted.after,
    )
