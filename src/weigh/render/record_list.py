"""Lists of records: as CSV, as text of at most 80 columns, and as JSON."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import msgspec

from weigh.model.gpu import GpuUsage, job_peak
from weigh.model.record import LAUNCHER_FLOOR, Record, Usage
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import (
    NARROWEST,
    WIDTH,
    csv_cell,
    local_time,
    padded_text,
    peak_text,
    printable_text,
    quoted_command_line,
    short_command,
    shortened_from_start,
    shortened_text,
    width_of,
)
from weigh.store.index import RecordHead, UsageHead
from weigh.units import count_with_noun, duration_or_dash, format_size, size_or_dash

_OF_RECORD = ("id", "label", "state", "started", "ended", "exit_code", "signal", "cwd")
_OF_USAGE = (
    "wall_time",
    "cpu_time",
    "user_time",
    "system_time",
    "cpus_used",
    "max_process_memory",
    "virtual_memory",
    "cgroup_peak",
    "read_bytes",
    "write_bytes",
    "processes",
    "growing",
)
_OF_PEAK = ("value", "low", "high", "anonymous", "shared", "file", "source")
_OF_GPUS = ("peak_memory", "process_peak_memory", "utilization_mean", "energy")
HEADER = (
    *_OF_RECORD,
    "host",
    "command",
    *_OF_USAGE,
    *("peak_memory" if name == "value" else f"peak_memory_{name}" for name in _OF_PEAK),
    "gpus",
    *(f"gpu_{name}" for name in _OF_GPUS),
)


def write_csv(
    records: Iterable[Record], parameters: Sequence[str], csv_file: BinaryIO
) -> None:
    """Write a header and one row per record; parameters come last, as ``param:NAME``.

    For several GPUs the largest value is written, and the sum of energies. Values
    that were not measured are empty.
    """
    text = io.TextIOWrapper(csv_file, "utf-8", "backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*HEADER, *(f"param:{name}" for name in parameters)])
    for record in records:
        values = [record.parameters.get(name) for name in parameters]
        writer.writerow(
            [csv_cell(value) for value in (*_record_csv_cells(record), *values)]
        )
    # the wrapper would close the file of the caller when it is collected
    text.flush()
    text.detach()


def _record_csv_cells(record: Record) -> list[object]:
    usage = record.usage
    peak = usage.peak_memory if usage else None
    return [
        *_attribute_values(record, _OF_RECORD),
        record.host.name if record.host else None,
        quoted_command_line(record.command),
        *_attribute_values(usage, _OF_USAGE),
        *_attribute_values(peak, _OF_PEAK),
        *_gpu_columns_of_usage(usage),
    ]


def _attribute_values(source: object, names: Sequence[str]) -> list[object]:
    return [getattr(source, name, None) for name in names]


def _gpu_columns_of_usage(usage: Usage | None) -> list[object]:
    gpus = usage.gpus if usage else ()
    return [len(gpus), *(_sum_or_largest_over_gpus(gpus, name) for name in _OF_GPUS)]


def _sum_or_largest_over_gpus(
    gpu_usages: Sequence[GpuUsage], field_name: str
) -> float | None:
    known = [
        value for gpu in gpu_usages if (value := getattr(gpu, field_name)) is not None
    ]
    if not known:
        return None
    # energies of several GPUs add up; a peak is that of the fullest
    return float(sum(known)) if field_name == "energy" else max(known)


SCHEMA = "weigh.records/1"
_SINGLE = "*"
_FOOTNOTE = f"{_SINGLE} of the largest single process, not of all processes"


class RecordRow(msgspec.Struct, frozen=True):
    """One record of a list; ``stale``: on another machine, long without an update."""

    head: RecordHead
    stale: bool = False


class RecordListing(msgspec.Struct, frozen=True, kw_only=True):
    """Records, newest first.

    ``rows`` are those shown; ``matching`` and ``total`` count records; ``id_length``
    letters of an id are unique; ``newer`` (id to schema), ``torn`` (lines) and
    ``closed`` (files of another user) could not be read.
    """

    rows: list[RecordRow]
    matching: int
    total: int
    id_length: int
    newer: dict[str, str]
    torn: int
    closed: Sequence[str] = ()


def record_table_text(listing: RecordListing, *, year: str) -> str:
    """Write a list as a table; dates of *year* are written without it."""
    if not listing.rows:
        return "no records match" if listing.total else "no records yet"
    columns = (
        TableColumn(
            *("run", lambda row: printable_text(row.head.id[: listing.id_length])),
            right=False,
        ),
        TableColumn(
            *("started", lambda row: _short_start_time(row.head.started, year)),
            right=False,
        ),
        TableColumn("state", _record_state_text, right=False),
        TableColumn("time", lambda row: duration_or_dash(_usage_of(row).wall_time)),
        TableColumn("memory", _record_memory_text),
        TableColumn("GPU", _largest_gpu_memory_text, optional=True),
    )
    # what is left is for the commands, which are shortened together
    figures = [line[2:] for line in table_lines(listing.rows, columns)]
    taken = max(map(width_of, figures)) + 2
    heads = [row.head for row in listing.rows]
    commands = ["command", *commands_within(heads, WIDTH - taken)]
    lines = [
        f"{padded_text(start, taken)}{command}".rstrip()
        for start, command in zip(figures, commands, strict=True)
    ]
    return "\n".join([*lines, *_list_footer_lines(listing)])


def record_list_json(listing: RecordListing) -> bytes:
    """Write a list as one JSON document, with the keys of records."""
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "total": listing.total,
            "matching": listing.matching,
            "records": [_record_row_document(row) for row in listing.rows],
            "newer": listing.newer,
            "torn_lines": listing.torn,
        }
    )


def skipped_record_warnings(listing: RecordListing) -> list[str]:
    """Return a warning for each kind of record that could not be read."""
    texts = [
        f"records skipped: {printable_text(path)} belongs to another user: chown it"
        for path in listing.closed
    ]
    if listing.torn:
        texts.append(f"{count_with_noun(listing.torn, 'line')} skipped: damaged")
    for schema in sorted(set(listing.newer.values())):
        number = sum(one == schema for one in listing.newer.values())
        writer = f"written by a newer weigh ({printable_text(schema)})"
        texts.append(f"{count_with_noun(number, 'record')} skipped: {writer}")
    return texts


def commands_within(heads: Sequence[RecordHead], room: int) -> list[str]:
    """Write label, command, and the parameters that differ in *room* columns."""
    names = _differing_names([head.parameters for head in heads])
    of_label = Counter(head.label for head in heads)
    texts = []
    for head in heads:
        label = printable_text(f"{head.label}: ") if head.label else ""
        values = ((name, head.parameters.get(name)) for name in names)
        pairs = [f" {name}={value}" for name, value in values if value is not None]
        given = printable_text("".join(pairs))
        rest = room - width_of(label) - width_of(given)
        command = short_command(head.command)
        text = label + shortened_from_start(command, max(rest, 0))
        # runs of one label, as of a check, differ at the end of their commands
        if rest < NARROWEST and of_label[head.label] > 1:
            text = shortened_from_start(label + command, room - width_of(given))
        texts.append(shortened_text(f"{text}{given}", room))
    return texts


def _differing_names(parameters: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names of the parameters whose values differ."""
    names = dict.fromkeys(name for one in parameters for name in one)
    return [
        name for name in names if len({str(one.get(name)) for one in parameters}) > 1
    ]


def _list_footer_lines(listing: RecordListing) -> Iterator[str]:
    if any(_record_memory_text(row).endswith(_SINGLE) for row in listing.rows):
        yield _FOOTNOTE
    shown = len(listing.rows)
    if shown < listing.matching:
        yield (f"{shown:,} of {listing.matching:,}; -n 0 lists all")


def _short_start_time(started: str, year: str) -> str:
    day, clock = local_time(started)
    # columns of a year that is clear are worth more to the command
    return f"{day[5:]} {clock[:5]}" if day[:4] == year else day


def _record_state_text(record_row: RecordRow) -> str:
    head = record_row.head
    if head.signal:
        return f"{head.state} signal {head.signal}"
    if head.state == "FAILED" and head.exit_code:
        return f"{head.state} exit {head.exit_code}"
    return f"{head.state} stale" if record_row.stale else printable_text(head.state)


def _usage_of(record_row: RecordRow) -> UsageHead:
    return record_row.head.usage or UsageHead()


def _record_memory_text(record_row: RecordRow) -> str:
    usage = _usage_of(record_row)
    if usage.peak_memory is not None:
        is_bound = usage.peak_memory.source == LAUNCHER_FLOOR
        return peak_text(usage.peak_memory.value, is_bound=is_bound)
    if usage.max_process_memory is not None:
        return format_size(usage.max_process_memory) + _SINGLE
    return "-"


def _largest_gpu_memory_text(record_row: RecordRow) -> str:
    peaks = map(job_peak, _usage_of(record_row).gpus)
    return size_or_dash(max((peak for peak in peaks if peak is not None), default=None))


def _record_row_document(record_row: RecordRow) -> dict[str, object]:
    document: dict[str, object] = msgspec.structs.asdict(record_row.head)
    del document["removed"]
    document["stale"] = record_row.stale
    return document
