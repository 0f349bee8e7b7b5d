"""Text and JSON of ``weigh submit``: job id, request, how to follow."""

import shlex
import time
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.job import HealLimits, SubmittedJob
from weigh.render.printable import indented_json, three_digit_text
from weigh.render.request_lines import named_lines
from weigh.render.words import element_request_text
from weigh.units import HOUR, Seconds, count_with_noun, format_limit, format_size

SCHEMA = "weigh.submit/1"
_SHOWN = 3  # further jobs, or commands, that are listed
_AT_ONCE = 60.0  # seconds; a start that near is "now"


class MostHours(msgspec.Struct, frozen=True):
    """The GPU and CPU hours that jobs can use at most."""

    gpu: float = 0.0  # hours
    cpu: float = 0.0  # hours


class SubmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted, or the script that would be.

    ``job`` is None after a dry run, ``more`` the rest of an array that was too long
    for one job; ``notes`` are choices made for the user, ``commands`` those that a dry
    run leaves out. ``has_free_nodes``: nodes have room for an element now. ``now`` is
    the time in seconds since the epoch. ``healer`` is a job that follows.
    """

    scheduler: str
    script: str
    text: str
    job: SubmittedJob | None = None
    more: tuple[SubmittedJob, ...] = ()
    notes: tuple[str, ...] = ()
    has_free_nodes: bool = False
    commands: tuple[tuple[str, ...], ...] = ()
    now: Seconds = 0.0
    healer: SubmittedJob | None = None
    then: SubmittedJob | None = None
    without_cluster: tuple[str, ...] = ()
    """The commands of the schedulers that were tried before, and reach no cluster."""

    @property
    def most(self) -> MostHours | None:
        """Return what all jobs of this submission can use at most; None if unknown."""
        return None if self.job is None else most_hours((self.job, *self.more))


def submitted_lines(answer: SubmitAnswer) -> Iterator[str]:
    """Write what was submitted, and the next command."""
    job = answer.job
    if job is None:
        return
    # the parts of a plan with a shared queue have all of its tasks each
    is_pulled = job.tasks > 1 and any(part.tasks == job.tasks for part in answer.more)
    elements = count_with_noun(job.elements, "element")
    what = elements if is_pulled else _job_contents_text(job)
    text = f"submitted {what} as job {job.id}{_throttle_text(job)}"
    if job.scheduler == "local":
        text += ", on this machine"
    text += _without_cluster_text(answer)
    # sbatch --test-only also predicts a later start where nodes are free, and is wrong
    is_soon = job.expected is not None and job.expected <= answer.now + _AT_ONCE
    if job.request.after:  # of which the scheduler's forecast knows nothing
        noun = "job" if len(job.request.after) == 1 else "jobs"
        text += f"; starts after {noun} {', '.join(job.request.after)}"
    elif job.expected is not None and (is_soon or not answer.has_free_nodes):
        text += f"; starts {start_time_text(job.expected, answer.now)}"
    yield from named_lines("", text, indent=2, name_width=0)
    for name, row in _rows_of_submission(answer, job):
        yield from named_lines(name, row, indent=2, name_width=10)


def _rows_of_submission(
    answer: SubmitAnswer, job: SubmittedJob
) -> Iterator[tuple[str, str]]:
    """Yield the further jobs of the same array, the request, and what follows."""
    more = answer.more
    # "and 1 more" would take as much room as the job itself
    shown = more[:_SHOWN] if len(more) > _SHOWN + 1 else more
    for part in shown:
        why = f": {part.reason}" if part.reason and len(more) == 1 else ""
        yield "", f"and {_job_contents_text(part)} as job {part.id}{why}"
    if len(shown) < len(more):
        yield "", f"and {len(more) - len(shown)} more, to job {more[-1].id}"
    # "each" of 8 tasks in one element would read as what a task has
    title = "request" if job.elements == 1 and not more else "each"
    yield title, f"{element_request_text(job.request)}{_most_hours_text(answer, job)}"
    if answer.healer is not None and job.heal is not None:
        yield "heals", f"job {answer.healer.id} follows: {heal_words(job.heal)}"
    if answer.then is not None:
        yield "then", f"job {answer.then.id} ({answer.then.name}), when all are done"
    yield "next", f"weigh status {job.id}"


def _most_hours_text(answer: SubmitAnswer, job: SubmittedJob) -> str:
    """Write what the jobs can use at most, behind a semicolon; empty if unknown."""
    most = answer.most or MostHours()
    parts = [(most.gpu, "GPU"), (most.cpu, "CPU")]
    hours = [f"{three_digit_text(held)} {unit} h" for held, unit in parts if held]
    again = " per attempt" if job.requeue else ""
    return f"; at most {', '.join(hours)}{again}" if hours else ""


def heal_words(heal_limits: HealLimits) -> str:
    """Write the limits of healing."""
    parts = [f"at most {count_with_noun(heal_limits.max_rounds, 'round')}"]
    if heal_limits.max_memory is not None:
        parts.append(format_size(heal_limits.max_memory))
    if heal_limits.max_time is not None:
        parts.append(format_limit(heal_limits.max_time))
    if heal_limits.max_hours is not None:
        parts.append(f"{heal_limits.max_hours:g} CPU hours")
    return ", ".join(parts)


def most_hours(submitted_jobs: Sequence[SubmittedJob]) -> MostHours | None:
    """Return the hours that jobs use if each runs to its limit; None without limits.

    On exclusive nodes it may be more: all of a node counts.
    """
    gpu = cpu = 0.0
    for job in submitted_jobs:
        asked = job.request
        # without a limit there is no bound; on this machine nothing is charged
        if asked.time_limit is None or job.scheduler == "local":
            return None
        hours = job.elements * asked.nodes * asked.time_limit / HOUR
        gpu += asked.gpus * hours
        cpu += max(1, asked.cpus) * hours
    return MostHours(gpu, cpu)


def _job_contents_text(submitted_job: SubmittedJob) -> str:
    elements = count_with_noun(submitted_job.elements, "element")
    tasks = count_with_noun(submitted_job.tasks, "task")
    is_alone = submitted_job.elements == 1
    if submitted_job.is_script:
        return submitted_job.name + ("" if is_alone else f", {elements}")
    if is_alone:
        return tasks
    is_same = submitted_job.tasks == submitted_job.elements
    return elements if is_same else f"{elements} with {tasks}"


def _without_cluster_text(answer: SubmitAnswer) -> str:
    tried = ", ".join(answer.without_cluster)
    return f" (no cluster: {tried})" if tried else ""


def _throttle_text(submitted_job: SubmittedJob) -> str:
    most = submitted_job.request.throttle
    few = most is not None and most < submitted_job.elements
    return f", up to {most} at a time" if few else ""


def start_time_text(then: Seconds, current_time: Seconds) -> str:
    """Write a start time, without the date if it is today."""
    if then <= current_time + _AT_ONCE:
        return "now"
    begin, today = time.localtime(then), time.localtime(current_time)
    clock = time.strftime("%H:%M", begin)
    if begin[:3] == today[:3]:
        return f"about {clock}"
    return f"about {time.strftime('%Y-%m-%d', begin)} {clock}"


def command_lines(answer: SubmitAnswer) -> Iterator[str]:
    """Write the commands that would be run, one per line."""
    is_tried = answer.job is None and answer.without_cluster
    if is_tried and answer.scheduler == "local":
        yield f"would run on this machine{_without_cluster_text(answer)}"
    most = len(answer.commands)
    shown = answer.commands[:_SHOWN] if most > _SHOWN + 1 else answer.commands
    yield from (f"would run {shlex.join(argv)}" for argv in shown)
    if len(shown) < most:
        yield f"and {most - len(shown)} more, one per part of the array"


def dry_run_lines(answer: SubmitAnswer) -> Iterator[str]:
    """Write the script that would be submitted."""
    yield answer.text.removesuffix("\n")


def submission_json(answer: SubmitAnswer) -> str:
    """Write the submission as one JSON document."""
    document = {
        "schema": SCHEMA,
        "scheduler": answer.scheduler,
        "script": answer.script,
        "job": answer.job,
        "more": answer.more,
        "notes": answer.notes,
        "commands": answer.commands,
        "at_most_hours": answer.most,
        "healer": answer.healer and answer.healer.id,
        "then": answer.then and answer.then.id,
        "text": answer.text,
    }
    return indented_json(document)
