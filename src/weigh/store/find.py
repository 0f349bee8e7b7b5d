"""Find a record by name: an id, its first letters, a label, ``last`` or a file."""

import os
from collections.abc import Sequence

from weigh.errors import (
    FormatError,
    RecordNotFoundError,
    UsageError,
    cannot_read,
    close_names,
)
from weigh.model.record import Record
from weigh.regular_file import only_regular
from weigh.store.identity import is_prefix
from weigh.store.index import IndexEntry, StoreIndex, read_index, read_record
from weigh.store.lines import decode_record

LAST = "last"
_NAMED_AT_ONCE = 5  # more candidates than this are counted, not listed
_SHOWN = 6  # letters of an id, in what is offered
_COMPARED = 1000  # newest names that are compared with a mistyped one


def find_stored_record(
    root: str, record_name: str, unfinished: Sequence[Record] = ()
) -> Record:
    """Return the record with the name *record_name*.

    Args:
        root: the store.
        record_name: a label (its newest record), an id, at least four letters of one,
            ``last``, or the path of a file that ``weigh run -o`` wrote.
        unfinished: runs in progress, found after the finished ones.

    Raises:
        RecordNotFoundError: there is none; offers the nearest names.
        UsageError: several records begin with *record_name*.
        SchemaError: a newer weigh wrote it.
        FormatError: a file that is not a record.
    """
    # no label and no id looks like a path
    if os.sep in record_name or record_name.endswith(".json"):
        return read_file(record_name)
    index = read_index(root)
    entry = find_entry(index, record_name)
    if entry is not None:
        return read_record(entry)
    running = find_running(unfinished, record_name)
    if running is not None:
        return running
    # last: a file in this folder must not hide a record
    if os.path.isfile(record_name):
        return read_file(record_name)
    raise not_found(root, record_name, index)


def find_all(root: str, record_name: str) -> list[Record]:
    """Return all records of that name, newest first: those of a label, or one.

    Raises:
        RecordNotFoundError: there is none; offers the nearest names.
        UsageError: several records begin with *record_name*.
        SchemaError: a newer weigh wrote it.
        FormatError: a file that is not a record.
    """
    if os.sep not in record_name:
        labelled = labelled_entries(read_index(root), record_name)
        if labelled:
            return [read_record(entry) for entry in labelled]
    return [find_stored_record(root, record_name)]


def labelled_entries(index: StoreIndex, label: str) -> list[IndexEntry]:
    """Return the entries of a label's records, newest first."""
    return [entry for entry in index.entries if entry.head.label == label]


def find_entry(index: StoreIndex, record_name: str) -> IndexEntry | None:
    """Return the entry of the record *record_name*; None if there is none.

    Raises:
        UsageError: several records begin with *record_name*.
    """
    if record_name == LAST:
        return index.entries[0] if index.entries else None
    # newest first, so a label means its newest record
    for entry in index.entries:
        if record_name in {entry.head.label, entry.head.id}:
            return entry
    prefix = record_name.lower()
    # no id can begin so: only the id of a newer weigh may be equal
    if not is_prefix(prefix):
        return index.newer.get(record_name)
    everyone = [*index.entries, *index.newer.values()]
    matches = [entry for entry in everyone if entry.head.id.startswith(prefix)]
    if len(matches) > 1:
        raise _ambiguous_name_error(record_name, [entry.head.id for entry in matches])
    return matches[0] if matches else None


def find_running(unfinished: Sequence[Record], record_name: str) -> Record | None:
    """Return the run in progress *record_name*; None if there is none.

    Raises:
        UsageError: several begin with *record_name*.
    """
    for record in unfinished:
        if record_name in {record.label, record.id}:
            return record
    prefix = record_name.lower()
    matches = [record for record in unfinished if record.id.startswith(prefix)]
    if not is_prefix(prefix) or not matches:
        return None
    if len(matches) > 1:
        raise _ambiguous_name_error(record_name, [record.id for record in matches])
    return matches[0]


def read_file(path: str) -> Record:
    """Read a record from its own file.

    Raises:
        RecordNotFoundError: no such file, or it cannot be read.
        FormatError: it is not a record.
        SchemaError: a newer weigh wrote it.
    """
    try:
        with open(path, "rb", opener=only_regular) as file:
            content = file.read()
    except OSError as error:
        raise RecordNotFoundError(cannot_read(path, error)) from error
    try:
        return decode_record(content)
    except FormatError as error:
        raise FormatError(f"{path} is {error} (weigh run -o FILE writes one)") from None


def not_found(root: str, record_name: str, index: StoreIndex) -> RecordNotFoundError:
    """Return the error that there is no such record, with the nearest names."""
    if index.closed:
        return RecordNotFoundError(
            f"no record called {record_name!r} that you may read "
            f"({closed_note(index.closed)})"
        )
    if not index.entries:
        what = "" if record_name == LAST else f"no record called {record_name!r}: "
        which = "yet (weigh run makes one)"
        if index.newer:
            which = "that this weigh can read (weigh records shows why)"
        return RecordNotFoundError(f"{what}no records in {root} {which}")
    near = _nearest_record_names(record_name, index)
    hint = f"did you mean {' or '.join(near)}?" if near else "weigh records lists them"
    return RecordNotFoundError(f"no record called {record_name!r} ({hint})")


def closed_note(closed: Sequence[str]) -> str:
    """Return what hides records, and the way out: *closed* files or folders."""
    more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
    what = "belongs to another user: chown it"
    # readable and yet skipped: a FIFO or a device
    if os.path.exists(closed[0]) and os.access(closed[0], os.R_OK):
        what = "is not a regular file: remove it"
    return f"{closed[0]}{more} {what}"


def _nearest_record_names(record_name: str, index: StoreIndex) -> list[str]:
    heads = [entry.head for entry in index.entries[:_COMPARED]]
    labels = {head.label: None for head in heads if head.label}
    # as long as what was typed, so that the letters compare
    ids = [head.id[: max(len(record_name), _SHOWN)] for head in heads]
    known = dict.fromkeys([LAST, *labels, *ids])
    return close_names(record_name, known, n=2, cutoff=0.7)


def _ambiguous_name_error(record_name: str, ids: list[str]) -> UsageError:
    listed = ", ".join(ids[:_NAMED_AT_ONCE])
    more = f" and {len(ids) - _NAMED_AT_ONCE} more" if len(ids) > _NAMED_AT_ONCE else ""
    return UsageError(f"several records begin with {record_name!r}: {listed}{more}")
