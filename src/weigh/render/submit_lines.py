"""Text and JSON of ``weigh submit``: checks, job id, request, how to follow."""

import shlex
import time
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.job import Heal, JobRequest, Submitted
from weigh.render.printable import indented_json, padded, printable, three
from weigh.render.request_lines import WIDTH, folded
from weigh.units import HOUR, Seconds, counted, format_limit, format_size

SCHEMA = "weigh.submit/1"
_WIDEST = 24
_SHOWN = 3
_HEAD = len("  checked   ")
_AT_ONCE = 60.0


class Check(msgspec.Struct, frozen=True):
    """One check before a job is submitted, and its result."""

    what: str
    verdict: str
    detail: str = ""


class Most(msgspec.Struct, frozen=True):
    """The GPU and CPU hours that jobs can use at most."""

    gpu: float = 0.0
    cpu: float = 0.0


class SubmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted, or the script that would be.

    ``job`` is None after a dry run, ``more`` the rest of an array that was too long
    for one job; ``notes`` are choices made for the user, ``commands`` those that a dry
    run leaves out. ``now`` is the time in seconds since the epoch. ``healer`` is
    a job that follows. ``held`` tasks wait until the healer has sized them.
    """

    scheduler: str
    script: str
    text: str
    job: Submitted | None = None
    more: tuple[Submitted, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    now: Seconds = 0.0
    healer: Submitted | None = None
    held: int = 0

    @property
    def most(self) -> Most | None:
        """Return what all jobs of this submission can use at most; None if unknown."""
        return None if self.job is None else most_hours((self.job, *self.more))


def submitted_lines(answer: SubmitAnswer) -> Iterator[str]:
    """Write what was checked and submitted, and the next command."""
    yield from check_lines(answer.checks)
    job = answer.job
    if job is None:
        return
    # the parts of a plan with a shared queue have all of its tasks each
    is_pulled = job.tasks > 1 and any(part.tasks == job.tasks for part in answer.more)
    what = counted(job.elements, "element") if is_pulled else _what(job)
    text = f"submitted {what} as job {job.id}{_at_once(job)}"
    if job.scheduler == "local":
        text += ", on this machine"
    if job.expected is not None:
        text += f"; starts {moment(job.expected, answer.now)}"
    yield from (f"  {line}" for line in folded(text, WIDTH - 2))
    yield from _more(answer.more)
    yield f"  each      {request_words(job.request)}"
    yield from _cost(answer)
    if answer.healer is not None and answer.held:
        text = f"job {answer.healer.id} sizes and sends the other {answer.held:,} tasks"
        yield f"  then      {text if answer.held > 1 else text[:-1]}"
    if answer.healer is not None and job.heal is not None:
        yield f"  heals     job {answer.healer.id} follows: {heal_words(job.heal)}"
    yield f"  script    {printable(job.script)}"
    yield f"  follow    weigh status {job.id}"


def heal_words(heal: Heal) -> str:
    """Write the limits of healing."""
    parts = [f"at most {heal.max_rounds} rounds"]
    if heal.max_memory is not None:
        parts.append(format_size(heal.max_memory))
    if heal.max_time is not None:
        parts.append(format_limit(heal.max_time))
    if heal.max_hours is not None:
        parts.append(f"{heal.max_hours:g} CPU hours")
    return ", ".join(parts)


def most_hours(jobs: Sequence[Submitted]) -> Most | None:
    """Return the hours that jobs use if each runs to its limit; None without limits.

    On exclusive nodes it may be more: all of a node counts.
    """
    total = Most()
    for job in jobs:
        asked = job.request
        if asked.time_limit is None or job.scheduler == "local":
            return None
        hours = job.elements * asked.nodes * asked.time_limit / HOUR
        each = Most(gpu=asked.gpus * hours, cpu=max(1, asked.cpus) * hours)
        total = Most(gpu=total.gpu + each.gpu, cpu=total.cpu + each.cpu)
    return total


def _cost(answer: SubmitAnswer) -> Iterator[str]:
    """Write what the jobs can use at most."""
    job, most = answer.job, answer.most
    if job is None or most is None:
        return
    parts = [(most.gpu, "GPU"), (most.cpu, "CPU")]
    words = [f"{three(hours)} {unit} hours" for hours, unit in parts if hours]
    again = " per attempt" if job.requeue else ""
    yield f"  at most   {', '.join(words)}{again}"


def _more(parts: Sequence[Submitted]) -> Iterator[str]:
    """Write the further jobs of the same array."""
    shown = parts[:_SHOWN] if len(parts) > _SHOWN + 1 else parts
    for part in shown:
        why = f": {part.reason}" if part.reason and len(parts) == 1 else ""
        line = f"and {_what(part)} as job {part.id}{why}"
        yield from (f"            {row}" for row in folded(line, WIDTH - 12))
    if len(shown) < len(parts):
        yield f"            and {len(parts) - len(shown)} more, to job {parts[-1].id}"


def check_lines(checks: Sequence[Check]) -> Iterator[str]:
    """Write one line per check."""
    width = min(_WIDEST, max((len(printable(one.what)) for one in checks), default=0))
    for number, one in enumerate(checks):
        head = "checked" if number == 0 else ""
        first = f"  {head:<8}  {padded(printable(one.what), width)}  {one.verdict:<7}  "
        rows = list(folded(printable(one.detail), max(20, WIDTH - len(first))))
        yield (first + (rows[0] if rows else "")).rstrip()
        room = " " * (_HEAD + width + len("  default  "))
        yield from (room + row for row in rows[1:])


def _what(job: Submitted) -> str:
    if job.own is not None:
        named = f"{job.name}" if job.elements == 1 else f"{job.name}, "
        return named + (counted(job.elements, "element") if job.elements > 1 else "")
    if job.elements == 1:
        return counted(job.tasks, "task")
    words = counted(job.elements, "element")
    more = f" with {counted(job.tasks, 'task')}" if job.tasks != job.elements else ""
    return words + more


def _at_once(job: Submitted) -> str:
    most = job.request.throttle
    few = most is not None and most < job.elements
    return f", up to {most} at a time" if few else ""


def moment(then: Seconds, now: Seconds) -> str:
    """Write a start time, without the date if it is today."""
    if then <= now + _AT_ONCE:
        return "now"
    begin, today = time.localtime(then), time.localtime(now)
    clock = time.strftime("%H:%M", begin)
    if begin[:3] == today[:3]:
        return f"about {clock}"
    return f"about {time.strftime('%Y-%m-%d', begin)} {clock}"


def command_lines(answer: SubmitAnswer) -> Iterator[str]:
    """Write the commands that would be run, one per line."""
    most = len(answer.commands)
    shown = answer.commands[:_SHOWN] if most > _SHOWN + 1 else answer.commands
    yield from (f"would run {shlex.join(argv)}" for argv in shown)
    if len(shown) < most:
        yield f"and {most - len(shown)} more, one per part of the array"


def dry_run_lines(answer: SubmitAnswer) -> Iterator[str]:
    """Write the script that would be submitted."""
    yield answer.text.removesuffix("\n")


def render_json(answer: SubmitAnswer) -> str:
    """Write the submission as one JSON document."""
    document = {
        "schema": SCHEMA,
        "scheduler": answer.scheduler,
        "script": answer.script,
        "job": None if answer.job is None else msgspec.to_builtins(answer.job),
        "more": [msgspec.to_builtins(job) for job in answer.more],
        "checks": [msgspec.to_builtins(one) for one in answer.checks],
        "notes": answer.notes,
        "commands": answer.commands,
        "at_most_hours": None
        if answer.most is None
        else {"gpu": answer.most.gpu, "cpu": answer.most.cpu},
        "healer": None if answer.healer is None else answer.healer.id,
        "held": answer.held,
        "text": answer.text,
    }
    return indented_json(document)


def request_words(wanted: JobRequest) -> str:
    """Write the request of one element."""
    parts = [counted(wanted.cpus, "CPU")]
    if wanted.memory is not None:
        parts.append(format_size(wanted.memory))
    elif wanted.virtual_memory is not None:
        parts.append(f"{format_size(wanted.virtual_memory)} of address space")
    if wanted.gpus:
        parts.append(f"{wanted.gpus} x {wanted.gpu_type or 'GPU'}")
    if wanted.time_limit is not None:
        parts.append(format_limit(wanted.time_limit))
    return with_ranks(", ".join(parts), wanted.nodes, wanted.ntasks)


def with_ranks(words: str, nodes: int, ntasks: int) -> str:
    """Write the request of each node, *words*, with the nodes and ranks if several."""
    if ntasks:
        return f"{counted(ntasks, 'rank')} on {counted(nodes, 'node')} with {words}"
    return f"{nodes} nodes with {words}" if nodes > 1 else words
