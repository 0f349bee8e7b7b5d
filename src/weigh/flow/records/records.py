"""``weigh records``: list, show, remove and export what was measured."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import BinaryIO

import msgspec

from weigh.errors import UsageError
from weigh.flow.records.record_lookup import records_of_jobs
from weigh.model.record import Record
from weigh.render.record_list import RecordListing, RecordRow, write_csv
from weigh.store.checkpoint import (
    UnfinishedRun,
    finalise_interrupted,
    remove_checkpoint,
    runs_in_progress,
)
from weigh.store.find import (
    LAST,
    find_entry,
    find_running,
    find_stored_record,
    labelled_entries,
    not_found,
)
from weigh.store.identity import LENGTH, MachineIdentity, this_machine
from weigh.store.index import (
    IndexEntry,
    RecordHead,
    head_of,
    read_index,
    read_line,
    read_record,
    read_record_without_series,
)
from weigh.store.location import locate_store, note_on_store
from weigh.store.past_calls import last_scan
from weigh.store.shards import append_tombstone


class RecordStore(msgspec.Struct, frozen=True):
    """The records under *root*, as seen from *machine* at *now* (epoch seconds).

    ``note`` names a store that was found above the current folder.
    """

    root: str
    machine: MachineIdentity
    now: float
    note: str | None = None


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to list; ``limit`` None is all of them."""

    label: str | None = None
    states: Collection[str] = ()
    limit: int | None = None


def open_store(cwd: str, environ: Mapping[str, str]) -> RecordStore:
    """Return the store for a folder and an environment, as this process sees it."""
    note = note_on_store(cwd, environ)
    return RecordStore(locate_store(cwd, environ), this_machine(), time.time(), note)


def runs_of_last(store: RecordStore) -> list[Record]:
    """Return the newest run; of ``weigh exec`` and ``weigh scan`` all of their runs.

    Raises:
        RecordNotFoundError: nothing was measured yet.
        StoreError: the store cannot be read.
    """
    newest = find_record(store, LAST)
    # the newest run is of a scan or exec: what was named are all its runs
    scan = last_scan(store.root)
    if scan is not None and newest.label == scan.label:
        entries = labelled_entries(read_index(store.root), scan.label)
        return [read_record(entry) for entry in entries]
    # weigh exec outside of a job has an id of its own, and no allocation
    if newest.job is not None and newest.allocation is None:
        return records_of_jobs(store.root, (newest.job.id,)) or [newest]
    return [newest]


def list_records(store: RecordStore, record_filter: RecordFilter) -> RecordListing:
    """Return the records that pass, newest first, those in progress before all.

    Raises:
        StoreError: the store cannot be read.
    """
    interrupted, in_progress = _interrupted_and_running(store)
    index = read_index(store.root)
    rows = [RecordRow(head_of(one.record), stale=one.stale) for one in in_progress]
    # a run may be in both: its record was written while this was read
    written = {entry.head.id for entry in index.entries}
    rows += [RecordRow(head_of(one)) for one in interrupted if one.id not in written]
    heads = [entry.head for entry in index.entries]
    chosen = [row for row in rows if _passes(row.head, record_filter)]
    chosen += [RecordRow(head) for head in heads if _passes(head, record_filter)]
    return RecordListing(
        rows=chosen[: record_filter.limit],
        matching=len(chosen),
        total=len(rows) + len(heads),
        id_length=_distinct_length([row.head.id for row in rows], heads),
        newer={entry.head.id: entry.head.schema for entry in index.newer.values()},
        torn=index.torn,
        closed=index.closed,
    )


def find_record(store: RecordStore, name: str) -> Record:
    """Return the record that a person calls *name*.

    Raises:
        RecordNotFoundError: nothing answers to it; offers the nearest names.
        UsageError: several records begin so.
        SchemaError: a newer weigh wrote it.
    """
    return find_stored_record(store.root, name, _unfinished_records(store))


def remove_records(store: RecordStore, names: Sequence[str]) -> list[RecordHead]:
    """Remove records, all or (where a name is wrong) none; return their heads.

    Raises:
        RecordNotFoundError: a name that no record answers to.
        UsageError: several begin so, or it is still running.
        StoreError: the store cannot be written.
    """
    # before the index: a run that just ended is in it then
    _, in_progress = _interrupted_and_running(store)
    index = read_index(store.root)
    doomed: dict[str, RecordHead] = {}
    for name in names:
        entry = find_entry(index, name)
        head = entry.head if entry else _abandoned(in_progress, name)
        if head is None:
            raise not_found(store.root, name, index)
        doomed[head.id] = head
    # all names were found: only now is anything removed
    for record_id in doomed:
        append_tombstone(
            store.root,
            record_id,
            machine=store.machine,
            current_time=_record_time_utc(store.now),
        )
        # else a later command would write the record again from it
        remove_checkpoint(store.root, record_id)
    return list(doomed.values())


def choose_records(store: RecordStore, names: Sequence[str]) -> list[IndexEntry]:
    """Return the finished records of these names; without a name all, oldest first.

    Raises:
        RecordNotFoundError: a name that no record answers to.
        UsageError: several records begin so.
        StoreError: the store cannot be read.
    """
    # what was interrupted since gets its record first
    finalise_interrupted(store.root, store.machine)
    index = read_index(store.root)
    if not names:
        return index.entries[::-1]
    chosen = []
    for name in names:
        entry = find_entry(index, name)
        if entry is None:
            raise not_found(store.root, name, index)
        chosen.append(entry)
    return chosen


def export_jsonl(entries: Sequence[IndexEntry], out: BinaryIO) -> None:
    """Write records as they stand, one a line.

    Raises:
        StoreError: the store cannot be read.
    """
    out.writelines(read_line(entry) + b"\n" for entry in entries)


def export_csv(entries: Sequence[IndexEntry], out: BinaryIO) -> None:
    """Write records as a table, a row each.

    Series, phases and batches have no place in a table and are left out.

    Raises:
        SchemaError: one is of a newer weigh.
        StoreError: the store cannot be read.
    """
    parameters = {name: None for entry in entries for name in entry.head.parameters}
    write_csv(
        (read_record_without_series(entry) for entry in entries), tuple(parameters), out
    )


def _interrupted_and_running(
    store: RecordStore,
) -> tuple[list[Record], list[UnfinishedRun]]:
    """Return runs just found interrupted, and those in progress."""
    interrupted = finalise_interrupted(store.root, store.machine)
    over = {record.id for record in interrupted}
    everyone = runs_in_progress(store.root, store.machine, store.now)
    return interrupted, [one for one in everyone if one.record.id not in over]


def _unfinished_records(store: RecordStore) -> list[Record]:
    interrupted, in_progress = _interrupted_and_running(store)
    return [*interrupted, *(one.record for one in in_progress)]


def _abandoned(in_progress: Sequence[UnfinishedRun], name: str) -> RecordHead | None:
    record = find_running([one.record for one in in_progress], name)
    if record is None:
        return None
    # not stale: it still writes its checkpoint
    if record.id in {one.record.id for one in in_progress if not one.stale}:
        raise UsageError(f"record {record.id} is still running: end it first")
    return head_of(record)


def _passes(record_head: RecordHead, record_filter: RecordFilter) -> bool:
    if record_filter.label is not None and record_head.label != record_filter.label:
        return False
    return not record_filter.states or record_head.state in record_filter.states


def _distinct_length(some: Sequence[str], heads: Sequence[RecordHead]) -> int:
    """Return how many letters make all ids distinct, at least six."""
    ids = {*some, *(head.id for head in heads)}
    for length in range(6, LENGTH):
        if len({one[:length] for one in ids}) == len(ids):
            return length
    return LENGTH


def _record_time_utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
