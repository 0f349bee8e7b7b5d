"""The past scans and runs of ``weigh exec`` of a folder, one line each."""

import os

import msgspec

from weigh.store.lines import read_documents
from weigh.store.location import make_folder
from weigh.store.shards import append_line
from weigh.units import Seconds

SCHEMA = "weigh.scan/1"
_SCANS, _EXECS = "scans.jsonl", "execs.jsonl"


class StoredScan(msgspec.Struct, frozen=True):
    """A scan: its command with fields, and the label of its records.

    ``target`` is the target of the last call as typed, ``by`` the parameter that is the
    size.
    """

    label: str
    command: tuple[str, ...]
    cwd: str
    by: str | None = None
    target: str | None = None
    schema: str = SCHEMA


class ExecRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a task file: ``run`` is the job id of its records, paths are absolute.

    It was not part of a submitted job. ``started`` is in seconds since the epoch.
    """

    run: str
    task_file: str
    joblog: str
    started: Seconds


def append_call(root: str, call: StoredScan | ExecRun) -> None:
    """Append *call* as the newest of its kind.

    Raises:
        StoreError: the store cannot be written.
    """
    name = _SCANS if isinstance(call, StoredScan) else _EXECS
    append_line(os.path.join(make_folder(root), name), msgspec.json.encode(call))


def read_exec_runs(root: str) -> list[ExecRun]:
    """Return all runs, the oldest first; lines that do not parse are skipped.

    Raises:
        StoreError: they exist, but cannot be read.
    """
    return list(read_documents(os.path.join(root, _EXECS), ExecRun))


def last_scan(root: str, label: str | None = None) -> StoredScan | None:
    """Return the newest scan, or the newest of *label*; None if there is none.

    Raises:
        StoreError: the store cannot be read.
    """
    found = None
    for scan in read_documents(os.path.join(root, _SCANS), StoredScan):
        # one of a newer weigh is passed over
        if label in (None, scan.label) and scan.schema == SCHEMA:
            found = scan
    return found
