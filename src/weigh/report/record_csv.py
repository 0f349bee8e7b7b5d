"""Records as one flat table, bytes and seconds as plain numbers."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from weigh.model.gpu import GpuUsage
from weigh.model.record import Record, Usage
from weigh.report.printable import cell, command_line

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
    records: Iterable[Record], parameters: Sequence[str], out: BinaryIO
) -> None:
    """Write a header and one row a record; the parameters come last, as ``param:NAME``.

    Of several GPUs the largest figure is written, of energies the sum. What was not
    measured is empty.
    """
    text = io.TextIOWrapper(out, "utf-8", "backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*HEADER, *(f"param:{name}" for name in parameters)])
    for record in records:
        values = [record.parameters.get(name) for name in parameters]
        writer.writerow([cell(value) for value in (*_cells(record), *values)])
    text.flush()
    text.detach()


def _cells(record: Record) -> list[object]:
    usage = record.usage
    peak = usage.peak_memory if usage else None
    return [
        *_values(record, _OF_RECORD),
        record.host.name if record.host else None,
        command_line(record.command),
        *_values(usage, _OF_USAGE),
        *_values(peak, _OF_PEAK),
        *_of_gpus(usage),
    ]


def _values(source: object, names: Sequence[str]) -> list[object]:
    return [getattr(source, name, None) for name in names]


def _of_gpus(usage: Usage | None) -> list[object]:
    gpus = usage.gpus if usage else ()
    return [len(gpus), *(_over_gpus(gpus, name) for name in _OF_GPUS)]


def _over_gpus(gpus: Sequence[GpuUsage], name: str) -> float | None:
    known = [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
    if not known:
        return None
    return float(sum(known)) if name == "energy" else max(known)
