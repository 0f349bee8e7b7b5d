"""``weigh report --ticket``: one failure, with what the support staff need to know."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from weigh._version import __version__
from weigh.flow.follow.task_history import tail_of
from weigh.flow.here import Here
from weigh.flow.report.report import (
    ReportMaterial,
    gather_report_material,
    open_store_of,
)
from weigh.model.mask import MASK
from weigh.model.report import ReportRow
from weigh.render.printable import printable_text
from weigh.render.request_lines import folded_lines
from weigh.review.notes import FAILED, failure_text_without_numbers
from weigh.review.runs import ElementRequest, ReviewedRun
from weigh.schedulers import find_kind
from weigh.schedulers.dialect import DialectTraits
from weigh.units import count_with_noun, format_duration, format_limit, format_size

_WIDTH = 80
_MARGIN = 12  # columns of the titles
_LINES = 20  # lines of output that the ticket quotes


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
    found = gather_report_material(here, name, open_store_of(here, name))
    # only the last attempt shows how a task ended
    last = [run for run in found.runs if run.is_last]
    ways: dict[str, list[ReviewedRun]] = {}
    for run in last:
        if run.row.state in FAILED:
            ways.setdefault(failure_text_without_numbers(run.row), []).append(run)
    # the most common failure; without one, the first task
    alike = max(ways.values(), key=len) if ways else last[:1]
    lines = [line for entry in _entries(found, alike) for line in _entry_lines(*entry)]
    tail = _output_tail(alike[0].row) if ways else ()
    if tail:
        lines += [
            "last lines of output:",
            *(f"  {printable_text(line)}" for line in tail),
        ]
    return SupportTicket("\n".join(lines), is_failure=bool(ways))


def _entry_lines(title: str, text: str) -> Iterator[str]:
    for line in folded_lines(printable_text(text), _WIDTH - _MARGIN) if text else ():
        yield f"{title:<{_MARGIN}}{line}"
        title = ""


def _entries(
    report_material: ReportMaterial, alike: Sequence[ReviewedRun]
) -> Iterator[tuple[str, str]]:
    run = alike[0]
    row, record = run.row, run.record
    attempts = _attempts(report_material, run)
    is_task = row.task is not None and report_material.unit == "task"
    job = _element_name(report_material, row)
    yield "job", f"{job}  task {row.task}" if is_task else job
    yield "scheduler", report_material.scheduler or ""
    yield "node", row.node or "unknown"
    yield "ended", _ending_text(row)
    if row.started is not None:
        begun = datetime.fromtimestamp(row.started, UTC)
        lasted = format_duration(row.wall_time or 0.0)
        yield "when", f"{begun:%Y-%m-%d %H:%M:%S} UTC, for {lasted}"
    element = next((one for one in report_material.elements if run in one.runs), None)
    yield (
        "requested",
        _request_text(element.requested if element else report_material.requested),
    )
    yield "used", _usage_text(row)
    yield "command", row.command
    yield "folder", (record.cwd if record else None) or ""
    output = os.path.relpath(row.output) if row.output else ""
    # a path outside of the current folder is clearer as a whole
    yield "output", (row.output or "") if output.startswith("..") else output
    yield "attempts", str(max(1, len(attempts)))
    again = "weigh resume" if report_material.views else "weigh exec --resume-failed"
    again = f" ({again})" if row.task is not None else ""
    yield "reproduced", _reproduced_text(row, attempts, alike) or f"not retried{again}"
    if row.state in FAILED and len(alike) > 1:
        nodes = dict.fromkeys(other.row.node for other in alike if other.row.node)
        where = f", on {', '.join(list(nodes)[:5])}" if nodes else ""
        others = count_with_noun(len(alike) - 1, f"other {report_material.unit}")
        yield "the same", f"in {others}{where}"
    yield "versions", _versions_text(run)


def _attempts(
    report_material: ReportMaterial, reviewed_run: ReviewedRun
) -> list[ReviewedRun]:
    """Return all attempts at the task of a run, also in jobs that resumed it."""
    if reviewed_run.row.task is None:
        return [reviewed_run]
    # in a plan a task has one number over all jobs; else element and task name it
    fields = ("task",) if report_material.views else ("job", "element", "task")
    place = [getattr(reviewed_run.row, field) for field in fields]
    return [
        one
        for one in report_material.runs
        if one.row.started is not None
        and [getattr(one.row, field) for field in fields] == place
    ]


def _reproduced_text(
    report_row: ReportRow, attempts: Sequence[ReviewedRun], alike: Sequence[ReviewedRun]
) -> str:
    """Return whether a further attempt ended the same way; empty without one."""
    if report_row.state == "COMPLETED" and len(attempts) > 1:
        return f"no: attempt {len(attempts)} succeeded"
    if report_row.state not in FAILED:
        return "nothing failed"
    if len(attempts) > 1:
        ways = [(one.row.state, one.row.exit_code, one.row.signal) for one in attempts]
        # the attempt itself is one of them
        same = ways.count((report_row.state, report_row.exit_code, report_row.signal))
        how = "yes" if same > 1 else "no"
        return f"{how}: {same} of {len(attempts)} attempts ended this way"
    if len(alike) > 1:
        return "not retried, but others ended the same way"
    return ""


def _element_name(report_material: ReportMaterial, report_row: ReportRow) -> str:
    """Return the id of the job or array element in the scheduler's syntax."""
    if report_row.job is None or report_material.scheduler is None:
        return report_row.record or report_material.title
    sizes = {view.job.id: view.job.elements for view in report_material.views}
    if report_row.element is None or sizes.get(report_row.job) == 1:
        return report_row.job
    kind = find_kind(report_material.scheduler)
    traits = DialectTraits() if kind is None else kind.traits
    # schedulers count elements from different numbers
    number = report_row.element + traits.first_element
    if report_material.unit != "task" and report_row.task is not None:
        number = report_row.task  # of a script: its own number of the element
    return traits.element_name.format(report_row.job, number)


def _ending_text(report_row: ReportRow) -> str:
    how = f"signal {report_row.signal}" if report_row.signal else ""
    if not report_row.signal and report_row.exit_code is not None:
        how = f"exit code {report_row.exit_code}"
    reason = (
        ""
        if report_row.reason is None or report_row.reason in how
        else report_row.reason
    )
    return ", ".join(
        dict.fromkeys(word for word in (report_row.state, how, reason) if word)
    )


def _request_text(requested: ElementRequest) -> str:
    words = [
        "" if requested.memory is None else format_size(requested.memory),
        "" if requested.cpus is None else f"CPUs {requested.cpus}",
        f"GPUs {requested.gpus}" if requested.gpus else "",
        "" if requested.time_limit is None else format_limit(requested.time_limit),
    ]
    return ", ".join(word for word in words if word)


def _usage_text(report_row: ReportRow) -> str:
    words = [
        "" if report_row.memory is None else format_size(report_row.memory),
        "" if report_row.cpus is None else f"{report_row.cpus:.2f} of a CPU",
        ""
        if report_row.gpu_memory is None
        else f"{format_size(report_row.gpu_memory)} of GPU",
    ]
    return ", ".join(word for word in words if word)


def _versions_text(reviewed_run: ReviewedRun) -> str:
    words = [f"weigh {__version__}"]
    provenance = reviewed_run.record.provenance if reviewed_run.record else None
    if provenance and provenance.python:
        words.append(f"Python {provenance.python}")
    if provenance and provenance.git_commit:
        words.append(f"commit {provenance.git_commit[:12]}")
    host = reviewed_run.record.host if reviewed_run.record else None
    if host and host.kernel:
        words.append(f"{host.system} {host.kernel}")
    return ", ".join(words)


def _output_tail(report_row: ReportRow) -> tuple[str, ...]:
    """Return the last lines that a task printed."""
    if report_row.output is None or not os.path.isfile(report_row.output):
        return (report_row.error,) if report_row.error else ()
    lines = [line.rstrip() for line in tail_of(report_row.output).splitlines()]
    # the output may hold secrets, and a ticket goes to others
    return tuple(MASK.line(line) for line in lines if line)[-_LINES:]
