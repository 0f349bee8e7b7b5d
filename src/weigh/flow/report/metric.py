"""``--metric NAME``: what became of a metric, task by task, joined with the report."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.flow.follow.logs import output_paths_of_tasks
from weigh.flow.here import Here
from weigh.flow.records.records import open_store
from weigh.flow.report.report import gather_report_material, report_of_material
from weigh.model.report import JobReport, MetricSummary, ReportRow
from weigh.regular_file import only_regular
from weigh.store.lines import read_tail
from weigh.task_metric import (
    MetricReader,
    TaskMetric,
    metric_summary,
    printed_names,
)
from weigh.units import MIB, Bytes, Seconds

_PIECE = 4 * MIB  # bytes read at once
_MOST_READ: Bytes = 256 * MIB  # of one file, its end: an output may have any size
_TAIL: Bytes = 1 << 16  # of an output whose metrics are named
_TABLES = (".csv", ".tsv", ".jsonl", ".json", ".log", ".txt")
_CLOCK_STEP: Seconds = 0.02  # a file system's clock may be that much behind
_MOST_NAMED = 8  # metrics that the tasks do print


def build_metric_report(here: Here, name: str, metric: TaskMetric) -> JobReport:
    """Report on the job, plan or task file *name*, each row with its *metric*.

    Raises:
        UsageError: nothing is called *name*, or none of its tasks has the metric.
        StoreError: the store cannot be read.
    """
    store = open_store(here.cwd, here.env)
    material = gather_report_material(here, name, store)
    report = report_of_material(material, store)
    folder = material.views[-1].job.cwd if material.views else here.cwd
    outputs = output_paths_of_tasks(material.views) if material.views else {}
    rows = tuple(
        replace(row, metric=_metric_of_row(row, outputs, folder, metric))
        for row in report.rows
    )
    if all(row.metric is None for row in rows):
        raise UsageError(_words_without_metric(report, outputs, metric))
    return replace(
        report, rows=rows, metric=metric.name, lower_is_better=metric.lower_is_better
    )


def _metric_of_row(
    row: ReportRow,
    outputs: Mapping[int, Sequence[str]],
    folder: str,
    metric: TaskMetric,
) -> MetricSummary | None:
    """Return what became of the metric in the output, or in a file the task wrote."""
    printed = _outputs_of(row, outputs)
    values = read_metric(printed, metric)
    if not values:
        values = read_metric(_files_written_by(row, folder, printed), metric)
    return metric_summary(values, lower_is_better=metric.lower_is_better)


def _outputs_of(row: ReportRow, outputs: Mapping[int, Sequence[str]]) -> Sequence[str]:
    known = [] if row.task is None else outputs.get(row.task, [])
    return known or ([] if row.output is None else [row.output])


def _files_written_by(
    row: ReportRow, folder: str, printed: Sequence[str]
) -> Iterator[str]:
    if row.started is None:
        return iter(())
    words = [*row.command.split(), *map(str, row.parameters.values())]
    # a program that builds the path itself often prints it: saved runs/3/history.csv
    for path in printed:
        text = read_tail(path, _TAIL).decode("utf-8", "replace")
        bare = (word.strip("\"'.,:;()") for word in text.split())
        words += (word for word in bare if word.endswith(_TABLES))
    return tables_named_by(words, folder, row.started)


def tables_named_by(words: Iterable[str], folder: str, since: Seconds) -> Iterator[str]:
    """Yield the tables that a command names, or that are in a folder that it names.

    What was there before *since* is an input, and not what the task learned.
    """
    for word in dict.fromkeys(words):
        named = os.path.join(folder, word.rpartition("=")[2].strip("\"'"))
        paths = [named]
        with suppress(OSError):
            paths = [os.path.join(named, name) for name in sorted(os.listdir(named))]
        for path in paths:
            with suppress(OSError):
                changed = os.stat(path).st_mtime + _CLOCK_STEP
                if path.endswith(_TABLES) and changed >= since:
                    yield path


def read_metric(
    paths: Sequence[str] | Iterator[str], metric: TaskMetric
) -> list[float]:
    """Return the values of a metric in files, in order; one that is gone has none."""
    reader = MetricReader(metric)
    for path in paths:
        with suppress(OSError), open(path, "rb", opener=only_regular) as file:
            file.seek(max(0, os.stat(path).st_size - _MOST_READ))
            while piece := file.read(_PIECE):
                reader.feed(piece)
            reader.end()
    return reader.values


def _words_without_metric(
    report: JobReport, outputs: Mapping[int, Sequence[str]], metric: TaskMetric
) -> str:
    """Write that no task has the metric, and which ones the first output has."""
    line = f"no {report.unit} of {report.title} printed {metric.name}"
    paths = [path for row in report.rows for path in _outputs_of(row, outputs)]
    for path in paths[:1]:
        names = printed_names(read_tail(path, _TAIL).decode("utf-8", "replace"))
        if names:
            return f"{line}; printed are: {', '.join(names[:_MOST_NAMED])}"
        return f"{line} or named a table with it (see weigh logs)"
    return f"{line}: no output of it is kept"
