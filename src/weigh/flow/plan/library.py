"""The records that a plan may rest on: all, or those the user names."""

import os

from weigh.flow.plan.alike import Library, candidates
from weigh.flow.plan.wishes import ALL
from weigh.model.record import Record
from weigh.store.find import find_entry, labelled_entries, not_found, read_file
from weigh.store.heads import Entry, Index, head_of, read_index, read_record


def no_library() -> Library:
    """Give a library that knows nothing."""
    return Library((), _nothing)


def _nothing(name: str) -> Record:
    raise KeyError(name)


def library(names: str, root: str) -> Library:
    """Give the records of these names, or all.

    Raises:
        RecordNotFoundError: there is none of a name; offers the nearest.
        StoreError: the records cannot be read.
    """
    index = read_index(root)
    entries = {entry.head.id: entry for entry in index.entries}
    files: dict[str, Record] = {}
    if names == ALL:
        heads = [entry.head for entry in index.entries]
    else:
        heads = []
        for name in filter(None, (part.strip() for part in names.split(","))):
            if os.sep in name or name.endswith(".json"):
                record = read_file(name)
                files[record.id] = record
                heads.append(head_of(record))
            else:
                heads += [entry.head for entry in _called(index, name, root)]

    def read(name: str) -> Record:
        return files[name] if name in files else read_record(entries[name])

    return Library(candidates(heads), read, named=names != ALL)


def _called(index: Index, name: str, root: str) -> list[Entry]:
    """Give every record of a label, or the one of an id."""
    labelled = labelled_entries(index, name)
    entry = None if labelled else find_entry(index, name)
    if entry is None and not labelled:
        raise not_found(root, name, index)
    return [entry] if entry else labelled
