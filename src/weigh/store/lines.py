"""Encode one record as one line of JSON, and decode it.

A line is a record or a tombstone, ``{"schema": ..., "id": ..., "removed":
"2026-11-21T10:00:00Z"}``, which removes the id forever, wherever it occurs.

Of files with other documents, one per line, :func:`read_documents` reads all.
:func:`read_tail` reads the end of any file.
"""

import os
from collections.abc import Iterator
from functools import cache
from typing import TypeVar

import msgspec

from weigh.errors import FormatError, SchemaError, StoreError
from weigh.model.record import SCHEMA, Record
from weigh.regular_file import only_regular

_Document = TypeVar("_Document")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """The line that removes a record."""

    schema: str = SCHEMA
    id: str
    removed: str


class _Heading(msgspec.Struct, frozen=True):
    schema: str
    id: str = "?"


@cache
def _records() -> msgspec.json.Decoder[Record]:
    """Return the decoder of records, made at its first use: a run only encodes."""
    return msgspec.json.Decoder(Record)


@cache
def _headings() -> msgspec.json.Decoder[_Heading]:
    return msgspec.json.Decoder(_Heading)


def encode(record: msgspec.Struct) -> bytes:
    r"""Encode *record*, or a struct that contains one, as JSON without a newline.

    Arguments of a command are bytes and need not be text: what is not UTF-8 is
    escaped, as ``\udcff``, so that its record is not lost.
    """
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_legible(msgspec.to_builtins(record)))


def decode(line: bytes) -> Record:
    """Decode a record.

    Raises:
        SchemaError: it has the schema of another weigh.
        FormatError: it is not a record, or torn.
    """
    try:
        heading = _headings().decode(line)
        if heading.schema == SCHEMA:
            return _records().decode(line)
    except UNREADABLE as error:
        raise FormatError(f"not a record: {error}") from error
    raise SchemaError(
        f"record {heading.id} is in schema {heading.schema}, and this weigh"
        f" reads {SCHEMA}{_way_out(heading.schema)}"
    )


def _way_out(schema: str) -> str:
    """Return what to do about a *schema* of another weigh."""
    name, _, number = schema.partition("/")
    own, _, current = SCHEMA.partition("/")
    is_newer = name == own and number.isdecimal() and int(number) > int(current)
    return ": install a newer weigh" if is_newer else " only: measure the run again"


def _legible(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_legible(key): _legible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_legible(item) for item in value]
    return value


def read_tail(path: str, most: int) -> bytes:
    """Return the last *most* bytes of a file; nothing if it cannot be read."""
    try:
        with open(path, "rb", opener=only_regular) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            return file.read(most)
    except OSError:
        return b""


def read_documents(path: str, kind: type[_Document]) -> Iterator[_Document]:
    """Yield the documents of a file, one per line; those that do not parse are skipped.

    Nothing where the file does not exist.

    Raises:
        StoreError: it exists, but cannot be read.
    """
    try:
        with open(path, "rb", opener=only_regular) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=kind)
        except UNREADABLE:
            continue
