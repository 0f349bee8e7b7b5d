"""The ``weigh exec`` runs of a folder that were not part of a submitted job."""

import os

import msgspec

from weigh.store.lines import read_documents
from weigh.store.location import make_folder
from weigh.store.shards import append_line
from weigh.units import Seconds

_FILE = "execs.jsonl"


class ExecRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a task file: ``run`` is the job id of its records, paths are absolute.

    ``started`` is in seconds since the epoch.
    """

    run: str
    task_file: str
    joblog: str
    started: Seconds


def append_exec_run(root: str, exec_run: ExecRun) -> None:
    """Append *exec_run* as the newest.

    Raises:
        StoreError: the store cannot be written.
    """
    # append_line makes the file, not its folder
    make_folder(root)
    append_line(os.path.join(root, _FILE), msgspec.json.encode(exec_run))


def read_exec_runs(root: str) -> list[ExecRun]:
    """Return all runs, the oldest first; lines that do not parse are skipped.

    Raises:
        StoreError: they exist, but cannot be read.
    """
    return list(read_documents(os.path.join(root, _FILE), ExecRun))
