"""Read the parts of a run that its ranks have just left in the store."""

import os
from contextlib import suppress

from weigh.errors import FormatError, SchemaError, StoreError
from weigh.model.record import Record
from weigh.regular_file import only_regular
from weigh.store.index import join_parts
from weigh.store.lines import decode_record
from weigh.store.shards import RECORDS, month_folder, sorted_folder_names

_RECENT = 8 << 20  # bytes at the end of a shard: lines of the last moments


def read_parts(root: str, record_part: Record) -> Record:
    """Return a part joined with the other parts of its run that the store has."""
    found = [record_part]
    folder = os.path.join(root, RECORDS, month_folder(record_part.started))
    # searched first, as decoding is much slower
    mark = f'"id":"{record_part.id}"'.encode()
    with suppress(StoreError):
        for name in sorted_folder_names(folder):
            for line in _last_lines(os.path.join(folder, name)):
                if mark in line:
                    with suppress(FormatError, SchemaError):
                        found.append(decode_record(line))
    parts = [
        one
        for one in found
        if one.id == record_part.id and one.part != record_part.part
    ]
    # its own part last, whatever the store has of it
    return join_parts([*parts, record_part])[-1]


def _last_lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb", opener=only_regular) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _RECENT))
            return file.read().splitlines()
    except OSError:
        return []
