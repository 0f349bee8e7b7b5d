"""Index the store: the head of every record, which lists show.

A line has the order of the model's fields, so what a list needs comes before ``phases``
and nine tenths of the line (the series) need not be parsed.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from weigh.errors import FormatError, RecordNotFoundError, SchemaError, StoreError
from weigh.joined_ranks import join_records
from weigh.model.record import SCHEMA, Record
from weigh.regular_file import only_regular
from weigh.store.lines import UNREADABLE, decode_record, encode_record, read_tail
from weigh.store.shards import (
    RECORDS,
    month_folder,
    shard_lines,
    sorted_folder_names,
    store_shards,
)

# how each line that this weigh wrote begins, is cut, and ends
_START = b'{"schema":"' + SCHEMA.encode() + b'","id":"'
_CUT = b',"phases":['
_LAST = b',"monitor":'
_TAIL = 1000  # bytes at the end that contain the last key
# the last key, monitor, has an object or null
_ENDS = (b"}}\n", b"null}\n")
_RECENT = 8 << 20  # bytes at the end of a shard: lines of the last moments


class PeakHead(msgspec.Struct, gc=False):
    """The peak of the tree, in bytes."""

    value: int
    source: str = ""


class GpuHead(msgspec.Struct, gc=False):
    """The peak on one GPU, in bytes, and what the driver calls it."""

    name: str = ""
    memory_total: int | None = None
    peak_memory: int | None = None
    process_peak_memory: int | None = None


class UsageHead(msgspec.Struct, gc=False):
    """The figures that a list shows."""

    wall_time: float | None = None
    cpu_time: float | None = None
    peak_memory: PeakHead | None = None
    max_process_memory: int | None = None
    gpus: tuple[GpuHead, ...] = ()


class RecordHead(msgspec.Struct, gc=False, kw_only=True):
    """The part of a record that lists show; the keys are the record's own."""

    schema: str = SCHEMA
    id: str
    label: str | None = None
    command: tuple[str, ...] = ()
    parameters: dict[str, int | float | str] = {}
    started: str = ""
    ended: str | None = None
    state: str = "UNKNOWN"
    exit_code: int | None = None
    signal: int | None = None
    part: int | None = None  # the rank whose line it is; None: a whole record
    usage: UsageHead | None = None
    removed: str | None = None  # when; only a tombstone has it


class IndexEntry(msgspec.Struct, gc=False):
    """The head of a record, and the place of its line.

    ``more`` are the places of its other lines, if the ranks of a run left one each.
    """

    head: RecordHead
    path: str  # of its shard
    offset: int  # bytes from the start of the shard
    more: tuple[tuple[str, int], ...] = ()


class StoreIndex(msgspec.Struct):
    """All records of a store, newest first, and what was skipped.

    ``newer`` are the records of an unknown schema, by id; ``removed`` the ids with a
    tombstone; ``torn`` is the number of lines that do not parse; ``closed`` are files
    that this user may not read.
    """

    entries: list[IndexEntry]
    newer: dict[str, IndexEntry]
    removed: set[str]
    torn: int
    closed: list[str]


class _NewerRecord(msgspec.Struct):
    schema: str
    id: str


_HEADS = msgspec.json.Decoder(RecordHead)
_NEWER = msgspec.json.Decoder(_NewerRecord)


def read_index(root: str) -> StoreIndex:
    """Read the heads of all records in *root*; the last line of an id counts.

    Raises:
        StoreError: a shard cannot be read.
    """
    found: dict[str, IndexEntry] = {}
    newer: dict[str, IndexEntry] = {}
    removed: set[str] = set()
    torn = 0
    readable, closed = store_shards(root)
    for path in readable:
        for offset, line in _lines_with_offsets(path):
            head = _decoded_head(line)
            if head is None:
                torn += not line.isspace()
            elif head.schema != SCHEMA:
                newer[head.id] = IndexEntry(head, path, offset)
            elif head.removed is not None:
                removed.add(head.id)
            else:
                found[head.id] = _entry_with_line(
                    found.get(head.id), head, path, offset
                )
    # after all lines: a tombstone counts wherever it is
    for record_id in removed:
        found.pop(record_id, None)
        newer.pop(record_id, None)
    for entry in found.values():
        # what the ranks of a run have left is one record
        if entry.more:
            with suppress(FormatError, SchemaError):
                entry.head = head_of(read_record_without_series(entry))
    entries = list(found.values())[::-1]  # the later line of the same second first
    entries.sort(key=_start_order_key, reverse=True)
    return StoreIndex(entries, newer, removed, torn, closed)


def read_line(entry: IndexEntry) -> bytes:
    """Read the whole line of *entry* again, without its newline.

    Raises:
        StoreError: it cannot be read.
    """
    # a record of several lines exists joined only
    if entry.more:
        return encode_record(read_record(entry))
    return _line_at(entry.path, entry.offset)


def _line_at(path: str, offset: int) -> bytes:
    try:
        with open(path, "rb", opener=only_regular) as file:
            file.seek(offset)
            return file.readline().removesuffix(b"\n")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _record_lines_of_entry(entry: IndexEntry) -> list[bytes]:
    places = ((entry.path, entry.offset), *entry.more)
    return [_line_at(path, offset) for path, offset in places]


def read_record(entry: IndexEntry) -> Record:
    """Read the whole record of *entry*.

    Raises:
        SchemaError: a newer weigh wrote it.
        RecordNotFoundError: the shard changed meanwhile.
        StoreError: it cannot be read.
    """
    lines = _record_lines_of_entry(entry)
    record = join_parts(map(decode_record, lines))[-1]
    if record.id != entry.head.id:
        raise RecordNotFoundError(f"record {entry.head.id} moved: try again")
    return record


def read_record_without_series(entry: IndexEntry) -> Record:
    """Read the record of *entry* without its series, ten times as fast."""
    lines = _record_lines_of_entry(entry)
    return join_parts(
        decode_record(_line_without_details(line + b"\n")) for line in lines
    )[-1]


def join_parts(records: Iterable[Record]) -> list[Record]:
    """Return each record once, joined from its parts; of other equal ids the last."""
    found: dict[str, dict[int | None, Record]] = {}
    for record in records:
        parts = found.setdefault(record.id, {})
        # a whole record replaces what was there before
        if record.part is None:
            parts.clear()
        parts[record.part] = record
    return [
        next(iter(parts.values()))
        if None in parts
        else join_records(tuple(parts.values()))
        for parts in found.values()
    ]


def read_parts(root: str, record_part: Record) -> Record:
    """Return a part joined with the other parts of its run that the store has."""
    parts: list[Record] = []
    folder = os.path.join(root, RECORDS, month_folder(record_part.started))
    # searched first, as decoding is much slower
    mark = f'"id":"{record_part.id}"'.encode()
    with suppress(StoreError):
        for name in sorted_folder_names(folder):
            for line in read_tail(os.path.join(folder, name), _RECENT).splitlines():
                if mark in line:
                    with suppress(FormatError, SchemaError):
                        parts.append(decode_record(line))
    parts = [part for part in parts if part.id == record_part.id]
    # its own part last, whatever the store has of it
    return join_parts([*parts, record_part])[-1]


def head_of(record: Record) -> RecordHead:
    """Return the head of *record*."""
    return _HEADS.decode(encode_record(record))


def _entry_with_line(
    entry: IndexEntry | None, record_head: RecordHead, path: str, offset: int
) -> IndexEntry:
    """Return the entry with one more line: a part of its record, or a newer line."""
    # a whole record, or the first part: the later line counts
    if entry is None or record_head.part is None or entry.head.part is None:
        return IndexEntry(record_head, path, offset)
    more = (*entry.more, (path, offset))
    return IndexEntry(entry.head, entry.path, entry.offset, more)


def _start_order_key(entry: IndexEntry) -> str:
    return entry.head.started.removesuffix("Z")  # or "00Z" would follow "00.5Z"


def _lines_with_offsets(path: str) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for line in shard_lines(path):
        yield offset, line
        offset += len(line)


def _decoded_head(record_line: bytes) -> RecordHead | None:
    try:
        return _HEADS.decode(_line_without_details(record_line))
    except UNREADABLE:
        return _newer_head(record_line)


def _newer_head(record_line: bytes) -> RecordHead | None:
    try:
        # a newer schema may have other fields: only its name and id are read
        newer = _NEWER.decode(record_line)
    except UNREADABLE:
        return None
    return (
        None if newer.schema == SCHEMA else RecordHead(schema=newer.schema, id=newer.id)
    )


def _line_without_details(record_line: bytes) -> bytes:
    """Cut a complete line of weigh after the usage; return any other unchanged.

    ``,"phases":[`` cannot occur inside a string, where its quotes would be escaped, and
    the keys before it have no such list. A torn line lacks the last key, and is left
    for the parser to refuse.
    """
    if not record_line.startswith(_START) or not record_line.endswith(_ENDS):
        return record_line
    cut = record_line.find(_CUT)
    if cut < 0 or record_line.rfind(_LAST, max(cut, len(record_line) - _TAIL)) < 0:
        return record_line
    return record_line[:cut] + b"}"
