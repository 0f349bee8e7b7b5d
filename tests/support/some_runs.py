"""Records of runs: a plain one to vary, and a store that holds some."""

from pathlib import Path
from typing import Any

from weigh.model.record import PeakMemory, Record, Usage
from weigh.store.identity import this_machine
from weigh.store.shards import append_record

RECORD_FIELDS = frozenset(Record.__struct_fields__)


def a_peak(value: float, **known: Any) -> PeakMemory:
    """Return a peak that is known exactly, but for the fields that are *known*."""
    exact: dict[str, Any] = dict.fromkeys(("low", "high"), round(value))
    exact |= dict.fromkeys(("anonymous", "shared", "file"))
    return PeakMemory(round(value), **exact | {"source": "test"} | known)


def a_usage(memory: float | None = None, **known: Any) -> Usage:
    """Return what 10 seconds used, if nothing else is *known*."""
    peak = None if memory is None else a_peak(memory)
    usual: dict[str, Any] = {"wall_time": 10.0, "peak_memory": peak}
    return Usage(**usual | known)


def a_run(
    words: str = "python tag.py", memory: float | None = None, **known: Any
) -> Record:
    """Return a run that completed; *known* are fields of its record or its usage."""
    own = {name: known.pop(name) for name in RECORD_FIELDS & {*known}}
    usual: dict[str, Any] = {
        "id": "7f3a91c0ffee",
        "command": tuple(words.split()),
        "started": "2026-11-21T10:00:00Z",
        "state": "COMPLETED",
        "exit_code": 0,
    }
    own.setdefault("usage", a_usage(memory, **known))
    return Record(**usual | own)


def keep_runs(folder: Path, *records: Record) -> None:
    """Keep records in the store of a folder."""
    for record in records:
        append_record(str(folder / ".weigh"), record, this_machine())
