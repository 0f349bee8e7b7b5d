"""Index the store: the head of every record, which lists show.

A line has the order of the model's fields, so what a list needs comes before ``phases``
and nine tenths of the line (the series) need not be parsed.
"""

from collections.abc import Iterator

import msgspec

from weigh.errors import RecordNotFoundError, StoreError
from weigh.model.record import SCHEMA, Record
from weigh.store.lines import UNREADABLE, decode, encode
from weigh.store.shards import read_lines, shards

_START = b'{"schema":"' + SCHEMA.encode() + b'","id":"'
_CUT = b',"phases":['
_LAST = b',"monitor":'
_TAIL = 1000  # bytes at the end that contain the last key
_ENDS = (b"}}\n", b"null}\n")


class PeakHead(msgspec.Struct, gc=False):
    """The peak of the tree, in bytes."""

    value: int


class GpuHead(msgspec.Struct, gc=False):
    """The peak on one GPU, in bytes."""

    peak_memory: int | None = None
    process_peak_memory: int | None = None


class UsageHead(msgspec.Struct, gc=False):
    """The figures that a list shows."""

    wall_time: float | None = None
    cpu_time: float | None = None
    peak_memory: PeakHead | None = None
    max_process_memory: int | None = None
    gpus: tuple[GpuHead, ...] = ()


class Head(msgspec.Struct, gc=False, kw_only=True):
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
    usage: UsageHead | None = None
    removed: str | None = None


class Entry(msgspec.Struct, gc=False):
    """The head of a record, and the place of its line."""

    head: Head
    path: str
    offset: int


class Index(msgspec.Struct):
    """All records of a store, newest first, and what was skipped.

    ``newer`` are the records of an unknown schema, by id; ``removed`` the ids with a
    tombstone; ``torn`` is the number of lines that do not parse.
    """

    entries: list[Entry]
    newer: dict[str, Entry]
    removed: set[str]
    torn: int


class _Newer(msgspec.Struct):
    schema: str
    id: str


_HEADS = msgspec.json.Decoder(Head)
_NEWER = msgspec.json.Decoder(_Newer)


def read_index(root: str) -> Index:
    """Read the heads of all records in *root*; the last line of an id counts.

    Raises:
        StoreError: a shard cannot be read.
    """
    found: dict[str, Entry] = {}
    newer: dict[str, Entry] = {}
    removed: set[str] = set()
    torn = 0
    for path in shards(root):
        for offset, line in _numbered(path):
            head = _head(line)
            if head is None:
                torn += not line.isspace()
            elif head.schema != SCHEMA:
                newer[head.id] = Entry(head, path, offset)
            elif head.removed is not None:
                removed.add(head.id)
            else:
                found[head.id] = Entry(head, path, offset)
    for record_id in removed:
        found.pop(record_id, None)
        newer.pop(record_id, None)
    entries = list(found.values())[::-1]  # the later line of the same second first
    entries.sort(key=_age, reverse=True)
    return Index(entries, newer, removed, torn)


def read_line(entry: Entry) -> bytes:
    """Read the whole line of *entry* again, without its newline.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with open(entry.path, "rb") as file:
            file.seek(entry.offset)
            return file.readline().removesuffix(b"\n")
    except OSError as error:
        raise StoreError(f"cannot read {entry.path}: {error.strerror}") from error


def read_record(entry: Entry) -> Record:
    """Read the whole record of *entry*.

    Raises:
        SchemaError: a newer weigh wrote it.
        RecordNotFoundError: the shard changed meanwhile.
        StoreError: it cannot be read.
    """
    record = decode(read_line(entry))
    if record.id != entry.head.id:
        raise RecordNotFoundError(f"record {entry.head.id} moved: try again")
    return record


def read_short(entry: Entry) -> Record:
    """Read the record of *entry* without its series, ten times as fast."""
    return decode(_short(read_line(entry) + b"\n"))


def head_of(record: Record) -> Head:
    """Return the head of *record*."""
    return _HEADS.decode(encode(record))


def _age(entry: Entry) -> str:
    return entry.head.started.removesuffix("Z")  # or "00Z" would follow "00.5Z"


def _numbered(path: str) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for line in read_lines(path):
        yield offset, line
        offset += len(line)


def _head(line: bytes) -> Head | None:
    try:
        return _HEADS.decode(_short(line))
    except UNREADABLE:
        return _newer_head(line)


def _newer_head(line: bytes) -> Head | None:
    try:
        newer = _NEWER.decode(line)
    except UNREADABLE:
        return None
    return None if newer.schema == SCHEMA else Head(schema=newer.schema, id=newer.id)


def _short(line: bytes) -> bytes:
    """Cut a complete line of weigh after the usage; return any other unchanged.

    ``,"phases":[`` cannot occur inside a string, where its quotes would be escaped, and
    the keys before it have no such list. A torn line lacks the last key, and is left
    for the parser to refuse.
    """
    if not line.startswith(_START) or not line.endswith(_ENDS):
        return line
    cut = line.find(_CUT)
    if cut < 0 or line.rfind(_LAST, max(cut, len(line) - _TAIL)) < 0:
        return line
    return line[:cut] + b"}"
