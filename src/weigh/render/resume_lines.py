"""Text and JSON of ``weigh resume``: tasks that run again, and those that do not."""

from collections.abc import Iterator

import msgspec

from weigh.model.job import OUTCOME_UNKNOWN, JobRequest, Submitted
from weigh.render.printable import printable, shortened
from weigh.render.request_lines import WIDTH, folded
from weigh.render.submit_lines import request_words

SCHEMA = "weigh.resume/1"
_MOST_LEFT = 5


class Left(msgspec.Struct, frozen=True):
    """A task that is not done and does not run again, and the reason."""

    task: int
    reason: str


class Again(msgspec.Struct, frozen=True):
    """Tasks that run again in one job; ``job`` is None after a dry run.

    ``more`` are further jobs, if the array was too long for one.
    """

    tasks: tuple[int, ...]
    reasons: tuple[str, ...]
    request: JobRequest = msgspec.field(name="wanted")
    elements: int
    job: Submitted | None = None
    more: tuple[Submitted, ...] = ()


class Resumed(msgspec.Struct, frozen=True):
    """What was resumed of a job, and what was not.

    ``stopped`` is why healing sends no further round; ``healer`` is the job that sends
    the next one.
    """

    job: Submitted
    again: tuple[Again, ...]
    left: tuple[Left, ...]
    stopped: str | None = None
    healer: Submitted | None = None


def resumed_lines(answer: Resumed) -> Iterator[str]:
    """Write which tasks run again, with what request, and which do not."""
    if answer.left and not answer.again:
        yield f"  nothing resumed of {printable(answer.job.name)}"
    for one in answer.again:
        what = "would resume" if one.job is None else "resumed"
        ids = [job.id for job in (one.job, *one.more) if job is not None]
        job = f" as job {', '.join(ids)}" if ids else ""
        noun = "task" if answer.job.own is None else "element"
        noun += "" if len(one.tasks) == 1 else "s"
        text = (
            f"{what} {len(one.tasks):,} {noun} of {printable(answer.job.name)}{job}: "
            f"{', '.join(one.reasons)}"
        )
        yield from (f"  {line}" for line in folded(printable(text), WIDTH - 2))
        yield f"    each     {request_words(one.request)}"
        if one.request.exclude:
            yield f"    not on   {printable(', '.join(one.request.exclude))}"
    if answer.stopped:
        yield from (f"    {line}" for line in _titled("stopped", answer.stopped))
    if answer.healer is not None:
        text = f"job {answer.healer.id} follows when all elements have ended"
        yield from (f"    {line}" for line in _titled("heals", text))
    yield from _left_lines(answer)
    if not answer.again and not answer.left:
        yield f"  {printable(answer.job.name)}: all tasks are done"
    jobs = [one.job.id for one in answer.again if one.job]
    if jobs:
        yield f"    follow   weigh status {jobs[-1]}"


def _left_lines(answer: Resumed) -> Iterator[str]:
    """Write which tasks do not run again, and what would run them."""
    for rest in answer.left[:_MOST_LEFT]:
        text = f"task {rest.task}: {rest.reason}"
        yield f"    left     {shortened(printable(text), WIDTH - 13)}"
    more = len(answer.left) - _MOST_LEFT
    if more > 0:
        yield f"             and {more:,} more"
    if any(rest.reason.startswith(("a bug", "failed")) for rest in answer.left):
        yield f"    fixed?   weigh resume {answer.job.id} --bugs"
    if any(rest.reason.startswith(OUTCOME_UNKNOWN) for rest in answer.left):
        yield "    unknown  wait until the scheduler's accounting answers, or run them"
        yield f"             anyway: weigh resume {answer.job.id} --unknown"


def _titled(title: str, text: str) -> Iterator[str]:
    for number, line in enumerate(folded(printable(text), WIDTH - 13)):
        yield f"{title if number == 0 else '':<9}{line}"


def render_json(answer: Resumed) -> str:
    """Write the answer as one JSON document."""
    document = {"schema": SCHEMA, **msgspec.to_builtins(answer)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
