"""``weigh compare``: find the records; the comparison is `weigh.estimate.compare`."""

import os
from collections.abc import Sequence

from weigh.errors import UsageError
from weigh.estimate.compare import ComparedRecords, compare_record_groups
from weigh.flow.here import Here, here_now
from weigh.flow.records.records import find_record, open_store
from weigh.model.comparison import RunComparison
from weigh.model.record import Record
from weigh.store.find import labelled_entries
from weigh.store.index import read_index, read_record


def compare(*runs: Record | str | Sequence[Record]) -> RunComparison:
    """Compare runs with the first of them, as ``weigh compare`` does.

    Each is a record, several of one thing, or a name as on the command line.

    Raises:
        UsageError: fewer than two, the same one twice, or nothing was measured.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    return compare_named(here_now(), runs)


def compare_named(
    here: Here, runs: Sequence[Record | str | Sequence[Record]]
) -> RunComparison:
    """Compare records with the first; a label stands for all of its records.

    Raises:
        UsageError: fewer than two, the same one twice, or nothing was measured.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    groups = []
    seen: dict[str, str] = {}
    for run in runs:
        if isinstance(run, str):
            group = _records_called(here, run)
        else:
            records = (run,) if isinstance(run, Record) else tuple(run)
            if not records:
                raise UsageError("an empty list of records: nothing to compare")
            group = ComparedRecords(records[0].label or records[0].id, records)
        for record in group.records:
            # the same record on two sides would show a difference of 0
            if record.id in seen:
                raise UsageError(
                    f"{seen[record.id]} and {group.name} are the same record "
                    f"({record.id}): name another"
                )
        seen.update((record.id, group.name) for record in group.records)
        groups.append(group)
    return compare_record_groups(groups)


def _records_called(here: Here, name: str) -> ComparedRecords:
    store = open_store(here.cwd, here.env)
    labelled = labelled_entries(read_index(store.root), name)
    if labelled and os.sep not in name:
        # a path is never a label
        return ComparedRecords(
            name, tuple(read_record(entry) for entry in labelled[::-1])
        )
    return ComparedRecords(name, (find_record(store, name),))
