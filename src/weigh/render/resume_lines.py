"""Text and JSON of ``weigh resume``: tasks that run again, and those that do not."""

import shlex
from collections.abc import Iterator
from itertools import islice

import msgspec

from weigh.model.job import OUTCOME_UNKNOWN, JobRequest, SubmittedJob
from weigh.render.printable import WIDTH, indented_json, printable_text, shortened_text
from weigh.render.request_lines import named_lines
from weigh.render.status_lines import NeededJob, next_command_lines
from weigh.render.words import element_request_text
from weigh.schedulers.words import format_ranges
from weigh.units import count_with_noun

SCHEMA = "weigh.resume/1"
_MOST_LEFT = 5  # reasons that are listed


class TaskLeftOut(msgspec.Struct, frozen=True):
    """A task that is not done and does not run again, and the reason."""

    task: int
    reason: str


class TasksRunAgain(msgspec.Struct, frozen=True):
    """Tasks that run again in one job; ``job`` is None after a dry run.

    ``more`` are further jobs, if the array was too long for one.
    """

    tasks: tuple[int, ...]
    reasons: tuple[str, ...]
    # keys of JSON documents stay as they were
    request: JobRequest = msgspec.field(name="wanted")
    elements: int
    job: SubmittedJob | None = None
    more: tuple[SubmittedJob, ...] = ()


class FollowingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits for the resumed one: it hangs on the jobs ``after`` now.

    ``was`` is its id before it was sent again. ``blocked`` are the jobs that it needs
    and that cannot succeed; ``trouble`` is why it could not be changed.
    """

    job: str
    name: str
    after: tuple[str, ...] = ()
    was: str | None = None
    blocked: tuple[NeededJob, ...] = ()
    trouble: str | None = None


class ResumedJob(msgspec.Struct, frozen=True):
    """What was resumed of a job, and what was not.

    ``stopped`` is why healing sends no further round; ``healer`` is the job that sends
    the next one. ``followers`` are the jobs that wait for it;
    ``replaced`` is the directory of its plan, if that was written again since, and
    ``way_out`` is what to do about a failed job that this one waits for.
    """

    job: SubmittedJob
    again: tuple[TasksRunAgain, ...]
    left: tuple[TaskLeftOut, ...]
    stopped: str | None = None
    healer: SubmittedJob | None = None
    followers: tuple[FollowingJob, ...] = ()
    replaced: str | None = None
    way_out: str | None = None

    @property
    def is_done(self) -> bool:
        """Return whether no task is left, or runs again."""
        return not (self.again or self.left)


def resumed_lines(answer: ResumedJob) -> Iterator[str]:
    """Write which tasks run again, with what request, and which do not."""
    name = printable_text(answer.job.name)
    # a healer that follows may still resume them
    if answer.left and not answer.again and answer.healer is None:
        yield f"  {name}: nothing resumed"
    for one in answer.again:
        what = "would resume" if one.job is None else "resumed"
        ids = [job.id for job in (one.job, *one.more) if job is not None]
        job = f" as job {', '.join(ids)}" if ids else ""
        tasks = count_with_noun(len(one.tasks), answer.job.unit)
        tasks = f"{what} {tasks} of {answer.job.name}{job}"
        text = f"{tasks}: {', '.join(one.reasons)}"
        yield from named_lines("", text, indent=2, name_width=0)
        yield from named_lines("each", element_request_text(one.request))
        yield from named_lines("not on", ", ".join(one.request.exclude))
    for title, text in _rows_of_resumption(answer):
        yield from named_lines(title, text)
    yield from _left_lines(answer)
    yield from next_command_lines(answer.way_out)
    if not answer.again and not answer.left:
        of = "" if answer.replaced is None else f" of job {answer.job.id}"
        yield f"  {name}: all tasks{of} are done"
    if answer.replaced is not None:
        yield "    replaced the plan was written again since; these are the old tasks"
        first = answer.job
        had_options = (first.staging, first.heal, first.request.extra)
        # a plan does not hold the options of its submission
        typed = "  # and the options you typed" if any(had_options) else ""
        folder = printable_text(shlex.quote(answer.replaced))
        yield f"    next     weigh submit {folder} --again{typed}"
    jobs = [one.job.id for one in answer.again if one.job]
    if jobs:
        yield f"    next     weigh status {jobs[-1]}"


def _rows_of_resumption(answer: ResumedJob) -> Iterator[tuple[str, str]]:
    yield "stopped", answer.stopped or ""
    if answer.healer is not None:
        yield "heals", f"job {answer.healer.id} follows when all elements have ended"
    for follower in answer.followers:
        yield "after", _follower_text(follower)


def _follower_text(following_job: FollowingJob) -> str:
    """Write what a job that waits for the resumed one does now."""
    name = f"{following_job.name} (job {following_job.job})"
    if following_job.trouble is not None:
        return f"{name} still waits for the earlier job: {following_job.trouble}"
    if following_job.blocked:
        why = ", ".join(
            f"{need.name} (job {need.job})" for need in following_job.blocked
        )
        return f"{name} starts when all tasks of {why} are done"
    if following_job.was is not None:
        name += f" was sent again instead of {following_job.was}, and"
    after = following_job.after
    if not after:
        return f"{name} starts now: all that it needs is done"
    noun, has = ("jobs", "have") if after[1:] else ("job", "has")
    return f"{name} starts when {noun} {', '.join(after)} {has} succeeded"


def _left_lines(answer: ResumedJob) -> Iterator[str]:
    """Write which tasks do not run again, and what would run them."""
    tasks_by_reason: dict[str, list[int]] = {}
    for rest in answer.left:
        tasks_by_reason.setdefault(rest.reason, []).append(rest.task)
    for reason, tasks in islice(tasks_by_reason.items(), _MOST_LEFT):
        noun = "task" if len(tasks) == 1 else "tasks"
        text = f"{noun} {format_ranges(tasks)}: {reason}"
        yield f"    left     {shortened_text(printable_text(text), WIDTH - 13)}"
    more = sum(map(len, islice(tasks_by_reason.values(), _MOST_LEFT, None)))
    if more > 0:
        yield f"             and {count_with_noun(more, 'task')} more"
    if any(rest.reason.startswith(("a bug", "failed")) for rest in answer.left):
        yield f"    fixed?   weigh resume {answer.job.id} --also bugs"
    if any(rest.reason.startswith(OUTCOME_UNKNOWN) for rest in answer.left):
        yield "    unknown  wait until the scheduler's accounting answers, or run them"
        yield f"             anyway: weigh resume {answer.job.id} --also unknown"


def resume_json(answer: ResumedJob) -> str:
    """Write the answer as one JSON document."""
    document = {"schema": SCHEMA, **msgspec.to_builtins(answer)}
    return indented_json(document)
