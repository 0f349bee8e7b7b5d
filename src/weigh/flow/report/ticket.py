"""``weigh report --ticket``: one failure, with what the support staff need to know."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from weigh._version import __version__
from weigh.flow.follow.tasks import tail_of
from weigh.flow.here import Here
from weigh.flow.report.report import Material, gather, open_store_of
from weigh.model.mask import MASK
from weigh.model.report import Row
from weigh.render.printable import printable
from weigh.render.request_lines import folded
from weigh.review.failures import FAILED, way_of
from weigh.review.requested import Requested
from weigh.review.runs import Run
from weigh.schedulers import find_kind
from weigh.schedulers.dialect import Traits
from weigh.units import counted, format_duration, format_limit, format_size

_WIDTH = 80
_MARGIN = 12
_LINES = 20


class SupportTicket(msgspec.Struct, frozen=True):
    """The text of a ticket, and whether it is about a failure."""

    text: str
    is_failure: bool


def support_ticket(here: Here, name: str) -> SupportTicket:
    """Return a ticket on the most common failure of a job, or on its first task.

    Raises:
        UsageError: nothing was measured or submitted yet.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    found = gather(here, name, open_store_of(here, name))
    last = [run for run in found.runs if run.is_last]
    ways: dict[str, list[Run]] = {}
    for run in last:
        if run.row.state in FAILED:
            ways.setdefault(way_of(run.row), []).append(run)
    alike = max(ways.values(), key=len) if ways else last[:1]
    lines = [line for entry in _entries(found, alike) for line in _entry_lines(*entry)]
    tail = _output_tail(alike[0].row) if ways else ()
    if tail:
        lines += ["last lines of output:", *(f"  {printable(line)}" for line in tail)]
    return SupportTicket("\n".join(lines), is_failure=bool(ways))


def _entry_lines(title: str, text: str) -> Iterator[str]:
    for line in folded(printable(text), _WIDTH - _MARGIN) if text else ():
        yield f"{title:<{_MARGIN}}{line}"
        title = ""


def _entries(found: Material, alike: Sequence[Run]) -> Iterator[tuple[str, str]]:
    run = alike[0]
    row, record = run.row, run.record
    attempts = _attempts(found, run)
    is_task = row.task is not None and found.unit == "task"
    job = _element_name(found, row)
    yield "job", f"{job}  task {row.task}" if is_task else job
    yield "scheduler", found.scheduler or ""
    yield "node", row.node or "unknown"
    yield "ended", _ending_text(row)
    if row.started is not None:
        begun = datetime.fromtimestamp(row.started, UTC)
        lasted = format_duration(row.wall_time or 0.0)
        yield "when", f"{begun:%Y-%m-%d %H:%M:%S} UTC, for {lasted}"
    element = next((one for one in found.elements if run in one.runs), None)
    yield "requested", _request_text(element.requested if element else found.requested)
    yield "used", _usage_text(row)
    yield "command", row.command
    yield "folder", (record.cwd if record else None) or ""
    output = os.path.relpath(row.output) if row.output else ""
    yield "output", (row.output or "") if output.startswith("..") else output
    yield "attempts", str(max(1, len(attempts)))
    again = "weigh resume" if found.views else "weigh exec --resume-failed"
    again = f" ({again})" if row.task is not None else ""
    yield "reproduced", _reproduced_text(row, attempts, alike) or f"not retried{again}"
    if row.state in FAILED and len(alike) > 1:
        nodes = dict.fromkeys(other.row.node for other in alike if other.row.node)
        where = f", on {', '.join(list(nodes)[:5])}" if nodes else ""
        yield "the same", f"in {counted(len(alike) - 1, f'other {found.unit}')}{where}"
    yield "versions", _versions_text(run)


def _attempts(found: Material, run: Run) -> list[Run]:
    """Return all attempts at the task of *run*, also in jobs that resumed it."""
    if run.row.task is None:
        return [run]
    fields = ("task",) if found.views else ("job", "element", "task")
    place = [getattr(run.row, field) for field in fields]
    return [
        one
        for one in found.runs
        if one.row.started is not None
        and [getattr(one.row, field) for field in fields] == place
    ]


def _reproduced_text(row: Row, attempts: Sequence[Run], alike: Sequence[Run]) -> str:
    """Return whether a further attempt ended the same way; empty without one."""
    if row.state == "COMPLETED" and len(attempts) > 1:
        return f"no: attempt {len(attempts)} succeeded"
    if row.state not in FAILED:
        return "nothing failed"
    if len(attempts) > 1:
        ways = [(one.row.state, one.row.exit_code, one.row.signal) for one in attempts]
        same = ways.count((row.state, row.exit_code, row.signal))
        how = "yes" if same > 1 else "no"
        return f"{how}: {same} of {len(attempts)} attempts ended this way"
    if len(alike) > 1:
        return "not retried, but others ended the same way"
    return ""


def _element_name(found: Material, row: Row) -> str:
    """Return the id of the job or array element in the scheduler's syntax."""
    if row.job is None or found.scheduler is None:
        return row.record or found.title
    sizes = {view.job.id: view.job.elements for view in found.views}
    if row.element is None or sizes.get(row.job) == 1:
        return row.job
    kind = find_kind(found.scheduler)
    traits = Traits() if kind is None else kind.traits
    number = row.element + traits.first_element
    if found.unit != "task" and row.task is not None:
        number = row.task  # of a script: its own number of the element
    return traits.element_name.format(row.job, number)


def _ending_text(row: Row) -> str:
    how = f"signal {row.signal}" if row.signal else ""
    if not row.signal and row.exit_code is not None:
        how = f"exit code {row.exit_code}"
    reason = "" if row.reason is None or row.reason in how else row.reason
    return ", ".join(dict.fromkeys(word for word in (row.state, how, reason) if word))


def _request_text(requested: Requested) -> str:
    words = [
        "" if requested.memory is None else format_size(requested.memory),
        "" if requested.cpus is None else f"CPUs {requested.cpus}",
        f"GPUs {requested.gpus}" if requested.gpus else "",
        "" if requested.time_limit is None else format_limit(requested.time_limit),
    ]
    return ", ".join(word for word in words if word)


def _usage_text(row: Row) -> str:
    words = [
        "" if row.memory is None else format_size(row.memory),
        "" if row.cpus is None else f"{row.cpus:.2f} of a CPU",
        "" if row.gpu_memory is None else f"{format_size(row.gpu_memory)} of GPU",
    ]
    return ", ".join(word for word in words if word)


def _versions_text(run: Run) -> str:
    words = [f"weigh {__version__}"]
    provenance = run.record.provenance if run.record else None
    if provenance and provenance.python:
        words.append(f"Python {provenance.python}")
    if provenance and provenance.git_commit:
        words.append(f"commit {provenance.git_commit[:12]}")
    host = run.record.host if run.record else None
    if host and host.kernel:
        words.append(f"{host.system} {host.kernel}")
    return ", ".join(words)


def _output_tail(row: Row) -> tuple[str, ...]:
    """Return the last lines that a task printed."""
    if row.output is None or not os.path.isfile(row.output):
        return (row.error,) if row.error else ()
    lines = [line.rstrip() for line in tail_of(row.output).splitlines()]
    return tuple(MASK.line(line) for line in lines if line)[-_LINES:]
