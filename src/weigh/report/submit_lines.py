"""A submitted job as lines: its id, what each element was promised, how to follow."""

from collections.abc import Iterator, Mapping

import msgspec

from weigh.dialect.slurm import format_time
from weigh.model.job import Submitted, Wanted
from weigh.model.plan import Plan
from weigh.report.printable import printable
from weigh.report.request_lines import WIDTH, folded
from weigh.units import format_size

SCHEMA = "weigh.submit/1"
_WORDS: Mapping[str, str] = {
    "slurm": "Slurm",
    "gridengine": "Grid Engine",
    "local": "this machine",
}


class Shipped(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted, or the script that would be.

    ``job`` is None after a dry run, ``more`` the rest of an array that was too long
    for one job; ``notes`` say what was decided for the user.
    """

    plan: Plan
    scheduler: str
    script: str
    text: str
    job: Submitted | None = None
    more: tuple[Submitted, ...] = ()
    notes: tuple[str, ...] = ()


def submitted_lines(answer: Shipped) -> Iterator[str]:
    """Write what was submitted, and what to do next."""
    job = answer.job
    if job is None:
        return
    what = _count(job.tasks, "task")
    if job.elements > 1:
        what = f"{_count(job.elements, 'element')}, {what}"
    at_once = job.wanted.throttle
    few = at_once is not None and at_once < job.elements
    most = f", {at_once} at a time" if few else ""
    where = _WORDS.get(job.scheduler, job.scheduler)
    text = f"submitted {printable(job.name)} to {where} as job {job.id}: {what}{most}"
    yield from (f"  {line}" for line in folded(text, WIDTH - 2))
    for part in answer.more:
        yield f"           and as job {part.id}: {_count(part.elements, 'element')}"
    yield f"  each     {asked_words(job.wanted)}"
    yield f"  script   {printable(job.script)}"
    yield f"  follow   weigh status {job.id}"


def dry_run_lines(answer: Shipped) -> Iterator[str]:
    """Write the script that would be submitted."""
    yield answer.text.removesuffix("\n")


def render_json(answer: Shipped) -> str:
    """Write all there is as one document."""
    document = {
        "schema": SCHEMA,
        "scheduler": answer.scheduler,
        "script": answer.script,
        "job": None if answer.job is None else msgspec.to_builtins(answer.job),
        "more": [msgspec.to_builtins(job) for job in answer.more],
        "notes": answer.notes,
        "text": answer.text,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def asked_words(wanted: Wanted) -> str:
    """Write what an element was promised."""
    parts = [_count(wanted.cpus, "CPU")]
    if wanted.memory is not None:
        parts.append(format_size(wanted.memory))
    if wanted.gpus:
        parts.append(f"{wanted.gpus} x {wanted.gpu_type or 'GPU'}")
    if wanted.time_limit is not None:
        parts.append(format_time(wanted.time_limit))
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
