"""Read what workflow tools measured: Nextflow and Snakemake.

Nextflow's ``trace.txt`` has the columns that its user chose, as text with units or
(raw) in bytes and milliseconds. Snakemake writes a benchmark as a table or as JSON
lines.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from weigh.units import DAY, HOUR, KIB, MIB, MINUTE, Bytes, Seconds

NEXTFLOW, SNAKEMAKE = "nextflow", "snakemake"
_TASK_COLUMNS = frozenset(("task_id", "hash", "native_id", "process", "name", "status"))
_TASK_FIGURES = frozenset(("peak_rss", "realtime", "rss", "peak_vmem", "%cpu"))
_BENCHMARK_COLUMNS = frozenset(("s", "max_rss", "max_pss"))
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)\s*([KMGTP]?)B?$", re.IGNORECASE)
_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|d|h|m|s)")
# seconds in each unit
_SPANS = {"ms": 0.001, "s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
_KILLED = 137  # 128 + SIGKILL
_QUICK, _QUICK_LOOKS, _SLOW = 0.5, 31, 30.0  # seconds between Snakemake's samples
_NONE = frozenset(("", "-", "NA", "None", "null"))  # cells without a value


class ToolTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One run as another tool measured it; ``problem`` is why it cannot be used.

    ``looks`` is how often memory was sampled, ``interval`` how far apart in the end;
    both are None if the figure is the kernel's own peak.
    """

    text: str
    number: int = 1  # of the line in its file
    problem: str | None = None
    name: str = ""  # of the process or rule
    state: str = "COMPLETED"
    exit_code: int | None = None
    # since the epoch
    started: Seconds | None = None
    wall_time: Seconds = 0.0
    cpu_time: Seconds | None = None
    memory: Bytes | None = None  # peak; None: not measured
    memory_asked: Bytes | None = None  # None: not requested
    cpus: int | None = None
    looks: int | None = None
    interval: Seconds | None = None
    job: str | None = None  # as the tool numbers it
    parameters: dict[str, int | float | str] = {}


def is_nextflow(trace_text: str) -> bool:
    """Return whether *trace_text* begins as Nextflow's trace file."""
    names = {*_header_line(trace_text).split("\t")}
    return len(names & _TASK_COLUMNS) > 1 and bool(names & _TASK_FIGURES)


def is_snakemake(trace_text: str) -> bool:
    """Return whether *trace_text* begins as a benchmark file of Snakemake."""
    line = _header_line(trace_text)
    if line.startswith("{"):
        return {*_json_object(line)} >= _BENCHMARK_COLUMNS
    return {*line.split("\t")} >= _BENCHMARK_COLUMNS


def read_nextflow(trace_text: str) -> Iterator[ToolTrace]:
    """Yield every task of a trace; a task from the cache ran before, and is none."""
    for number, line, row in _trace_table_rows(trace_text):
        if isinstance(row, str):
            yield ToolTrace(text=line, number=number, problem=row)
        elif row.get("status") == "CACHED":
            yield ToolTrace(text=line, number=number, problem="a task from the cache")
        else:
            yield _nextflow_trace(number, line, row)


def _nextflow_trace(
    line_number: int, trace_line: str, trace_row: Mapping[str, str]
) -> ToolTrace:
    wall_time = _trace_duration(trace_row.get("realtime")) or _trace_duration(
        trace_row.get("duration")
    )
    if wall_time is None:
        return ToolTrace(
            text=trace_line, number=line_number, problem="a task without a time"
        )
    code = _whole_number(trace_row.get("exit"))
    state = trace_row.get("status") or ("FAILED" if code else "COMPLETED")
    # Nextflow has no state for it, and only the exit code shows SIGKILL
    if state == "FAILED" and code == _KILLED:
        state = "OUT_OF_MEMORY"
    elif state == "ABORTED":
        state = "CANCELLED"
    elif state not in {"COMPLETED", "FAILED"}:
        state = "UNKNOWN"
    name = trace_row.get("process") or trace_row.get("name", "")
    # per cent of one CPU, over the run
    share = _finite_number(trace_row.get("%cpu", "").rstrip("% "))
    return ToolTrace(
        text=trace_line,
        number=line_number,
        # a task's name has its tag in parentheses: align (sample1)
        name=name.partition(" (")[0] or "task",
        state=state,
        exit_code=code,
        started=_trace_timestamp(trace_row.get("start"))
        or _trace_timestamp(trace_row.get("submit")),
        wall_time=wall_time,
        cpu_time=None if share is None else round(share / 100 * wall_time, 3),
        memory=_trace_size(trace_row.get("peak_rss"))
        or _trace_size(trace_row.get("rss")),
        memory_asked=_trace_size(trace_row.get("memory")),
        cpus=_whole_number(trace_row.get("cpus")),
    )


def read_snakemake(trace_text: str, benchmark_name: str) -> Iterator[ToolTrace]:
    """Yield every run of a benchmark.

    *benchmark_name* is of the rule, if the file has none.

    Only runs that completed are written. Memory is sampled each .5 s for 31 times, then
    each 30 s; max_pss counts shared pages once.
    """
    if _header_line(trace_text).startswith("{"):
        rows: Iterator[tuple[int, str, Mapping[str, Any] | str]] = (
            (number, line, _json_object(line) or "no JSON object")
            for number, line in enumerate(trace_text.splitlines(), 1)
            if line.strip()
        )
    else:
        rows = _trace_table_rows(trace_text)
    for number, line, row in rows:
        if isinstance(row, str):
            yield ToolTrace(text=line, number=number, problem=row)
        else:
            yield _snakemake_trace(number, line, row, benchmark_name)


def _snakemake_trace(
    line_number: int, trace_line: str, trace_row: Mapping[str, Any], benchmark_name: str
) -> ToolTrace:
    wall_time = _finite_number(trace_row.get("s"))
    if wall_time is None:
        return ToolTrace(
            text=trace_line, number=line_number, problem="a run without a time"
        )
    # max_pss first, which counts shared pages once; 0 counts as not known
    sizes = [_finite_number(trace_row.get(key)) for key in ("max_pss", "max_rss")]
    memory = next((size for size in sizes if size), None)
    # seconds in which it was sampled rarely
    slow = max(0.0, wall_time - _QUICK * _QUICK_LOOKS)
    looks = min(_QUICK_LOOKS, int(wall_time / _QUICK)) + int(slow / _SLOW)
    resources = trace_row.get("resources")
    asked = None
    if isinstance(resources, dict):
        asked = _finite_number(resources.get("mem_mib")) or _finite_number(
            resources.get("mem_mb")
        )
    return ToolTrace(
        text=trace_line,
        number=line_number,
        name=str(trace_row.get("rule_name") or benchmark_name),
        wall_time=wall_time,
        cpu_time=_finite_number(trace_row.get("cpu_time")),
        memory=None if memory is None else round(memory * MIB),
        memory_asked=None if asked is None else round(asked * MIB),
        cpus=_whole_number(trace_row.get("threads")),
        looks=looks if memory is not None else 0,
        interval=_SLOW if slow else _QUICK,
        job=None if trace_row.get("jobid") is None else str(trace_row["jobid"]),
        parameters=_trace_parameters(trace_row),
    )


def _trace_parameters(trace_row: Mapping[str, Any]) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    sizes = trace_row.get("input_size_mb")
    if isinstance(sizes, dict):
        known = [
            size for one in sizes.values() if (size := _finite_number(one)) is not None
        ]
        if known:
            found["input_size_mb"] = round(sum(known), 6)
    elif (size := _finite_number(sizes)) is not None:
        found["input_size_mb"] = size
    for key in ("wildcards", "params"):
        values = trace_row.get(key)
        if isinstance(values, dict):
            found |= {
                str(name): value
                for name, value in values.items()
                # a bool is an int, and no size
                if isinstance(value, (int, float, str)) and not isinstance(value, bool)
            }
    return found


def _header_line(trace_text: str) -> str:
    return trace_text[
        : trace_text.find("\n") if "\n" in trace_text else len(trace_text)
    ].rstrip("\r")


def _json_object(trace_text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(trace_text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _trace_table_rows(
    trace_text: str,
) -> Iterator[tuple[int, str, Mapping[str, str] | str]]:
    """Yield (number, line, values by column), or what is wrong with a line."""
    header, *lines = trace_text.split("\n")
    names = header.rstrip("\r").split("\t")
    for number, line in enumerate(lines, 2):
        # the writer is still at work, or was killed
        if number == len(lines) + 1 and line:
            yield number, line, "incomplete: it has no newline at its end"
            continue
        values = line.rstrip("\r").split("\t")
        if line.strip() and line.rstrip("\r") != header.rstrip("\r"):
            fits = len(values) == len(names)
            row = dict(zip(names, map(str.strip, values), strict=False))
            yield number, line, row if fits else "not as many values as columns"


def _finite_number(trace_value: object) -> float | None:
    # float(True) would be 1
    if isinstance(trace_value, bool) or not isinstance(trace_value, (int, float, str)):
        return None
    try:
        number = float(trace_value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < math.inf else None


def _whole_number(trace_value: object) -> int | None:
    number = _finite_number(trace_value)
    return int(number) if number is not None and number == int(number) else None


def _trace_size(cell_text: str | None) -> Bytes | None:
    """Read ``1.2 GB``, by 1024, or raw bytes."""
    found = _SIZE.match((cell_text or "").strip())
    if found is None:
        return None
    power = "KMGTP".find(found[2].upper()) + 1 if found[2] else 0
    return round(float(found[1]) * KIB**power) or None


def _trace_duration(cell_text: str | None) -> Seconds | None:
    """Read ``3h 2m``, ``250ms``, or raw milliseconds."""
    cell_text = (cell_text or "").strip()
    if cell_text in _NONE:
        return None
    if cell_text.isdecimal():
        return int(cell_text) / 1000 if len(cell_text) < 16 else None  # noqa: PLR2004 - digits
    parts: Sequence[tuple[str, str]] = _SPAN.findall(cell_text)
    if not parts or _SPAN.sub("", cell_text).strip():
        return None
    return math.fsum(float(number) * _SPANS[unit] for number, unit in parts)


def _trace_timestamp(cell_text: str | None) -> Seconds | None:
    """Read a local time in ISO 8601, or raw milliseconds since the epoch."""
    cell_text = (cell_text or "").strip()
    # milliseconds since the epoch are read like those of a duration
    raw = _trace_duration(cell_text) if cell_text.isdecimal() else None
    if raw is not None or cell_text in _NONE:
        return raw
    try:
        return datetime.fromisoformat(cell_text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
