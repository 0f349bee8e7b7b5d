"""``weigh resume`` of a job whose script is the user's own: only its failed indices."""

import shlex
from collections.abc import Sequence

from weigh.flow.here import Here
from weigh.flow.site import schedulers
from weigh.flow.submit.own_script import (
    ScriptDraft,
    ScriptOptions,
    changed_since,
    draft_of,
    reads_whole_array,
)
from weigh.model.job import JobRequest, OwnScript, SubmittedJob
from weigh.schedulers import KINDS
from weigh.schedulers.protocol import Argv
from weigh.schedulers.words import format_ranges


def draft(here: Here, submitted_job: SubmittedJob, more: Argv) -> ScriptDraft:
    """Return the script of *submitted_job* with *more* flags, to be submitted again."""
    own = submitted_job.own or OwnScript()
    options = ScriptOptions(
        script=submitted_job.script,
        flags=(*own.flags, *more),
        arguments=own.arguments,
        measure=own.measured,
    )
    return draft_of(here.in_folder(submitted_job.cwd), options, submitted_job.scheduler)


def flags_again(
    submitted_job: SubmittedJob, indices: Sequence[int], job_request: JobRequest
) -> list[Argv]:
    """Return the flags of each job that runs *indices* with this *job_request*."""
    scripts = KINDS[
        schedulers.kind_of_cluster_name(submitted_job.scheduler)
    ].user_scripts
    # the script's own directives request the rest as before
    names = ("time_limit", "queue", "exclude")
    changed = [
        n for n in names if getattr(job_request, n) != getattr(submitted_job.request, n)
    ]
    # which of the two is limited depends on the scheduler: one flag stands for both
    had = submitted_job.request.memory, submitted_job.request.virtual_memory
    if (job_request.memory, job_request.virtual_memory) != had:
        changed.append("memory")
    more = scripts.raised(job_request, changed)
    own = submitted_job.own or OwnScript()
    # Grid Engine takes one range with one step: then it is several jobs
    parts = list(scripts.only(indices, job_request.throttle)) if own.indices else [()]
    return [(*more, *part) for part in parts]


def changes(here: Here, first: SubmittedJob, submitted_job: SubmittedJob) -> list[str]:
    """Return what differs from the *first* time, in words."""
    found = []
    if changed_since(submitted_job):
        found.append(f"{submitted_job.script} was changed since job {submitted_job.id}")
    if first.own is not None and first.own.indices:
        kind = schedulers.kind_of_cluster_name(submitted_job.scheduler)
        name = reads_whole_array(draft(here, submitted_job, ()), kind)
        if name is not None:
            found.append(f"the script reads {name}: it differs in a part of the array")
    return found


def by_hand(submitted_job: SubmittedJob, failed: Sequence[int]) -> str:
    """Return how to submit the *failed* indices of a job that weigh did not submit."""
    own = submitted_job.own or OwnScript()
    if not failed:
        return f"nothing to resume of job {submitted_job.id}"
    command = command_again(submitted_job, failed)
    if command is None:
        what = f"indices {format_ranges(failed)}" if own.indices else "it"
        flags = " and with ".join(
            filter(None, map(shlex.join, _flags_of_parts(submitted_job, failed)))
        )
        command = f"submit its script again for {what}"
        command += f" with {flags}" if flags else ""
    return f"weigh did not submit job {submitted_job.id}: {command}"


def command_again(submitted_job: SubmittedJob, failed: Sequence[int]) -> str | None:
    """Return the line that submits these indices again; None without the script.

    It has all that was typed, quoted for the shell; a comment names what is missing.
    """
    own = submitted_job.own or OwnScript()
    if not (submitted_job.script and failed):
        return None
    arguments = ("--", *own.arguments) if own.arguments else ()
    line = " && ".join(
        shlex.join(("weigh", "submit", submitted_job.script, *flags, *arguments))
        for flags in _flags_of_parts(submitted_job, failed)
    )
    return line if own.is_line_known else f"{line}  # and the other options you typed"


def _flags_of_parts(submitted_job: SubmittedJob, failed: Sequence[int]) -> list[Argv]:
    """Return the flags of each job that runs the *failed* indices.

    They are those that were typed, or what the scheduler knows of them.
    """
    own = submitted_job.own or OwnScript()
    scripts = KINDS[
        schedulers.kind_of_cluster_name(submitted_job.scheduler)
    ].user_scripts
    # without the array, which only the failed part replaces
    flags = scripts.flags_to_repeat(own.flags)
    # what was typed is lost: the request as the scheduler recorded it
    if not own.is_line_known:
        flags = scripts.raised(submitted_job.request, ("memory", "time_limit", "queue"))
    is_array = own.indices and not own.components  # its parts only run together
    # Grid Engine takes one range with one step: then it is several jobs
    parts = (
        list(scripts.only(failed, submitted_job.request.throttle)) if is_array else []
    )
    return [(*flags, *part) for part in parts or [()]]
