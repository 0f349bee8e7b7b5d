"""``weigh compare``: find the records; the comparison is `weigh.estimate.compare`."""

import os
from collections.abc import Mapping, Sequence

from weigh.errors import UsageError
from weigh.estimate.compare import Group
from weigh.estimate.compare import compare as compare_groups
from weigh.flow.records.records import Store, find_record, open_store
from weigh.model.comparison import Comparison, Order
from weigh.model.record import Record
from weigh.store.find import labelled_entries
from weigh.store.index import Index, read_index, read_record


def compare(
    *runs: Record | str | Sequence[Record], by: Order | None = None
) -> Comparison:
    """Compare runs with the first of them, as ``weigh compare`` does.

    Each is a record, several of one thing, or a name as on the command line. *by*
    orders all but the first by time or memory, the least first.

    Raises:
        UsageError: fewer than two, the same one twice, or nothing was measured.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    names = [run for run in runs if isinstance(run, str)]
    store = open_store(os.getcwd(), os.environ) if names else None
    index = read_index(store.root) if store else None
    groups = []
    for run in runs:
        if isinstance(run, str):
            groups.append(_named(run, store, index))
        elif isinstance(run, Record):
            groups.append(_group((run,)))
        else:
            groups.append(_group(tuple(run)))
    return _compared(groups, by)


def compare_named(
    names: Sequence[str],
    *,
    by: Order | None = None,
    cwd: str,
    env: Mapping[str, str],
) -> Comparison:
    """Compare the records called *names* with the first.

    A label stands for all of its records, as runs of one thing.

    Raises:
        UsageError: fewer than two, the same one twice, or nothing was measured.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    store = open_store(cwd, env)
    index = read_index(store.root)
    return _compared([_named(name, store, index) for name in names], by)


def _named(name: str, store: Store | None, index: Index | None) -> Group:
    if store is None or index is None:
        raise UsageError(f"no store to find {name!r} in")
    labelled = labelled_entries(index, name)
    if labelled and os.sep not in name:
        return Group(name, tuple(read_record(entry) for entry in labelled[::-1]))
    return Group(name, (find_record(store, name),))


def _group(records: tuple[Record, ...]) -> Group:
    if not records:
        raise UsageError("an empty list of records: nothing to compare")
    return Group(records[0].label or records[0].id, records)


def _compared(groups: Sequence[Group], by: Order | None) -> Comparison:
    seen: dict[str, str] = {}
    for group in groups:
        for record in group.records:
            if record.id in seen:
                raise UsageError(
                    f"{seen[record.id]} and {group.name} are the same record "
                    f"({record.id}): name another"
                )
        seen.update((record.id, group.name) for record in group.records)
    return compare_groups(groups, by)
