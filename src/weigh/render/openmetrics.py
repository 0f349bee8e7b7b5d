"""A report as OpenMetrics text, which Prometheus and its textfile collector read.

Bytes, seconds, joules and ratios in base units, names as the specification wants them.
"""

from collections.abc import Iterator, Mapping, Sequence

from weigh.model.report import Measure, Report, Row

_OF_TASKS = (
    ("wall_time_seconds", "seconds", "wall_time", "how long a task ran"),
    ("cpu_time_seconds", "seconds", "cpu_time", "CPU time of a task"),
    ("memory_bytes", "bytes", "memory", "peak memory, as if it ran alone"),
    ("gpu_memory_bytes", "bytes", "gpu_memory", "peak memory on its fullest GPU"),
    ("gpu_busy_ratio", "ratio", "gpu_utilization", "mean GPU utilisation"),
    ("energy_joules", "joules", "energy", "energy of its GPUs"),
)
_NAMES = {
    "memory": "memory_bytes",
    "gpu_memory": "gpu_memory_bytes",
    "cpus": "cpus",
    "time": "wall_time_seconds",
    "gpu_utilization": "gpu_busy_ratio",
}
_HELD = (
    ("gpu_hours", "GPUs asked for x hours"),
    ("cpu_hours", "CPUs asked for x hours"),
    ("memory_hours", "GiB asked for x hours"),
)


def render_openmetrics(report: Report) -> str:
    """Write gauges of the job and of each task, ending in ``# EOF``."""
    return "\n".join((*_lines(report), "# EOF"))


def _lines(report: Report) -> Iterator[str]:
    of = {"job": report.job or report.title}
    for one in report.measures:
        yield from _measure(one, of)
    yield from _family("weigh_tasks", None, "tasks by state")
    for state, number in report.states.items():
        yield _sample("weigh_tasks", of | {"state": state}, number)
    for name, words in _HELD:
        value = getattr(report, name)
        if value is not None:
            yield from _family(f"weigh_{name}", None, words)
            yield _sample(f"weigh_{name}", of, value)
    for name, unit, field, words in _OF_TASKS:
        yield from _tasks(report.rows, f"weigh_task_{name}", unit, field, words, of)


def _measure(measure: Measure, of: Mapping[str, str]) -> Iterator[str]:
    name = f"weigh_{_NAMES[measure.name]}"
    unit = {"bytes": "bytes", "seconds": "seconds", "share": "ratio"}.get(measure.unit)
    yield from _family(name, unit, f"{measure.name} of an element, by figure")
    figures = (
        ("asked", measure.asked),
        ("median", measure.median),
        ("most", measure.most),
    )
    for figure, value in figures:
        if value is not None:
            yield _sample(name, {**of, "figure": figure}, value)


def _tasks(  # noqa: PLR0913, PLR0917 - a row of the table above
    rows: Sequence[Row],
    name: str,
    unit: str,
    field: str,
    words: str,
    of: Mapping[str, str],
) -> Iterator[str]:
    known = [(row, value) for row in rows if (value := getattr(row, field)) is not None]
    if known:
        yield from _family(name, unit, words)
    for row, value in known:
        yield _sample(name, {**of, **_labels(row)}, value)


def _labels(row: Row) -> dict[str, str]:
    numbers = {"task": row.task, "element": row.element, "record": row.record}
    named = {name: str(value) for name, value in numbers.items() if value is not None}
    return {**named, "state": row.state, **({"node": row.node} if row.node else {})}


def _family(name: str, unit: str | None, words: str) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    if unit is not None:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {words}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    """Escape a label's value; what is no text of one line stands with backslashes."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
