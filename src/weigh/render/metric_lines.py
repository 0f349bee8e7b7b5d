"""A metric over the tasks of a job as text: who learns best, who learns nothing."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import fmean, stdev
from typing import Any

import msgspec

from weigh.model.report import JobReport, ReportRow
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import WIDTH, peak_text, printable_text, shortened_text
from weigh.render.words import (
    STATE_WORDS,
    held_hours,
    state_counts_text,
    task_parameters_text,
)
from weigh.sweep.diverse import read_parameters, varying_task_parameters
from weigh.task_metric import without_seeds
from weigh.units import HOUR, count_with_noun, duration_or_dash

_MOST_ROWS = 30  # on the screen; --json has all
_LARGEST = 1e300
# what needs a decision first
_URGENCY = ("diverged", "getting worse", "standing still", "improving")


class MetricGroup(msgspec.Struct, frozen=True):
    """Tasks that differ in nothing but their seed: the best value over them."""

    parameters: dict[str, int | float | str]
    tasks: int
    values: int
    """Of so many tasks a value is known."""
    diverged: int
    """Of so many the last value is NaN or inf."""
    mean: float
    spread: float | None
    """The standard deviation; None of one task."""


def metric_groups(report: JobReport) -> list[MetricGroup]:
    """Return the repeats of a sweep, the best first; none if no task has a seed."""
    together: dict[str, list[ReportRow]] = {}
    for row in report.rows:
        together.setdefault(repr(without_seeds(row.parameters)), []).append(row)
    if all(without_seeds(row.parameters) == row.parameters for row in report.rows):
        return []
    groups = []
    for rows in together.values():
        bests = [_metric_figure(row, "best") for row in rows]
        # sums of larger ones overflow
        finite = [one for one in bests if one is not None and abs(one) < _LARGEST]
        if finite:
            groups.append(
                MetricGroup(
                    without_seeds(rows[0].parameters),
                    len(rows),
                    len(finite),
                    sum(map(_is_diverged_row, rows)),
                    fmean(finite),
                    stdev(finite) if len(finite) > 1 else None,
                )
            )
    sign = 1 if report.lower_is_better else -1
    return sorted(groups, key=lambda one: (bool(one.diverged), sign * one.mean))


def metric_report_lines(report: JobReport) -> Iterator[str]:
    """Write the tasks by their best value with their cost, and the mean over seeds."""
    yield from _metric_title_lines(report, " ".join(next(held_hours(report), ())))
    rows = sorted(report.rows, key=lambda row: _badness(row, report))
    columns = (
        *_columns_of_tasks(rows),
        TableColumn("time", lambda row: duration_or_dash(row.wall_time)),
        TableColumn("memory", _memory_text, drop=2),
        TableColumn("GPU h", _gpu_hours_text, drop=1, optional=True),
    )
    yield from _first_rows(rows, columns)
    groups = metric_groups(report)
    if groups:
        yield ""
        yield from _first_rows(groups, _GROUP_COLUMNS)


def metric_status_lines(report: JobReport) -> Iterator[str]:
    """Write how each task learns, first those that need a decision."""
    yield from _metric_title_lines(report, "")
    rows = sorted(report.rows, key=_urgency)
    columns = (
        *_columns_of_tasks(rows),
        TableColumn("last", lambda row: _value_text(_metric_figure(row, "last"))),
        TableColumn("state", lambda row: STATE_WORDS[row.state], right=False),
    )
    yield from _first_rows(rows, columns)


def _metric_title_lines(report: JobReport, held: str) -> Iterator[str]:
    counts = count_with_noun(len(report.rows), report.unit)
    if report.states:
        counts += f", {state_counts_text(report)}"
    yield shortened_text(f"  {printable_text(report.title)}   {counts}", WIDTH)
    better = "less" if report.lower_is_better else "more"
    sentence = f"  {printable_text(report.metric or '')}: {better} is better"
    yield f"{sentence}{held:>{WIDTH - len(sentence)}}".rstrip() if held else sentence


def _columns_of_tasks(rows: Sequence[ReportRow]) -> Iterator[TableColumn]:
    differences = dict(zip(map(id, rows), _task_differences(rows), strict=True))
    yield TableColumn("task", lambda row: str(row.task or "-"))
    yield TableColumn(
        "parameters",
        lambda row: differences[id(row)],
        right=False,
        flexible=True,
        # what is left of a command differs in its end
        keeps_end=not any(row.parameters for row in rows),
    )
    yield TableColumn("best", lambda row: _value_text(_metric_figure(row, "best")))
    yield TableColumn("at", lambda row: str(_metric_figure(row, "best_at") or "-"))
    yield TableColumn(
        "trend", lambda row: _metric_figure(row, "trend") or "-", right=False
    )


def _metric_figure(row: ReportRow, field_name: str) -> Any:  # noqa: ANN401 - a field's
    """Return a figure of a row's metric; None without a metric."""
    return getattr(row.metric, field_name, None)


def _first_rows(
    rows: Sequence[ReportRow | MetricGroup], columns: Sequence[TableColumn]
) -> Iterator[str]:
    lines = list(table_lines(rows, columns))
    yield from islice(lines, _MOST_ROWS + 1)
    more = len(lines) - 1 - _MOST_ROWS
    if more > 0:
        yield f"  and {more:,} more (--json has them all)"


def _badness(row: ReportRow, report: JobReport) -> tuple[bool, float]:
    """Return what tasks are sorted by: the best first, then diverged ones."""
    best = _metric_figure(row, "best")
    if best is None:
        return True, math.inf
    return _is_diverged_row(row), best if report.lower_is_better else -best


def _is_diverged_row(row: ReportRow) -> bool:
    return bool(_metric_figure(row, "trend") == "diverged")


def _urgency(row: ReportRow) -> tuple[int, int]:
    trend = _metric_figure(row, "trend")
    place = _URGENCY.index(trend) if trend in _URGENCY else len(_URGENCY)
    return place, row.task or 0


def _task_differences(rows: Sequence[ReportRow]) -> tuple[str, ...]:
    """Return the parameters of each task, or the words in which its command differs."""
    given = [row.parameters for row in rows]
    if not any(given):
        words = [read_parameters(row.command) for row in rows]
        shown = varying_task_parameters(words)
        given = [{name: one[name] for name in shown if name in one} for one in words]
    return tuple(
        task_parameters_text(one) or printable_text(row.command or row.label)
        for one, row in zip(given, rows, strict=True)
    )


def _value_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _values_of_group_text(group: MetricGroup) -> str:
    all_known = group.values == group.tasks
    return str(group.tasks) if all_known else f"{group.values} of {group.tasks}"


_GROUP_COLUMNS = (
    TableColumn(
        "without the seed",
        lambda group: task_parameters_text(group.parameters) or "-",
        right=False,
        flexible=True,
    ),
    TableColumn("tasks", _values_of_group_text),
    TableColumn("mean", lambda group: _value_text(group.mean)),
    TableColumn("spread", lambda group: _value_text(group.spread)),
    TableColumn("diverged", lambda group: str(group.diverged or "-"), optional=True),
)


def _memory_text(row: ReportRow) -> str:
    return peak_text(row.memory, is_bound=row.memory_is_bound)


def _gpu_hours_text(row: ReportRow) -> str:
    if not row.gpus or row.wall_time is None:
        return "-"
    return f"{row.gpus * row.wall_time / HOUR:.2f}"
