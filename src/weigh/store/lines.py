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
# RecursionError: a damaged line may nest deeper than the decoder goes
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class RecordTombstone(msgspec.Struct, frozen=True, kw_only=True):
    """The line that removes a record."""

    schema: str = SCHEMA
    id: str
    removed: str  # UTC in ISO 8601


# decoded first: other schemas need not have the fields of this one
class _RecordHeading(msgspec.Struct, frozen=True):
    schema: str
    id: str = "?"


@cache
def _record_decoder() -> msgspec.json.Decoder[Record]:
    """Return the decoder of records, made at its first use: a run only encodes."""
    return msgspec.json.Decoder(Record)


@cache
def _heading_decoder() -> msgspec.json.Decoder[_RecordHeading]:
    return msgspec.json.Decoder(_RecordHeading)


def encode_record(record: msgspec.Struct) -> bytes:
    r"""Encode *record*, or a struct that contains one, as JSON without a newline.

    Arguments of a command are bytes and need not be text: what is not UTF-8 is
    escaped, as ``\udcff``, so that its record is not lost.
    """
    try:
        return msgspec.json.encode(record)
    # rare: only then is the record taken apart
    except UnicodeEncodeError:
        return msgspec.json.encode(_with_escaped_bytes(msgspec.to_builtins(record)))


def decode_record(record_line: bytes) -> Record:
    """Decode a record.

    Raises:
        SchemaError: it has the schema of another weigh.
        FormatError: it is not a record, or torn.
    """
    try:
        heading = _heading_decoder().decode(record_line)
        if heading.schema == SCHEMA:
            return _record_decoder().decode(record_line)
    except UNREADABLE as error:
        raise FormatError(f"not a record: {error}") from error
    raise SchemaError(
        f"record {heading.id} is in schema {heading.schema}, and this weigh"
        f" reads {SCHEMA}{_unreadable_schema_hint(heading.schema)}"
    )


def _unreadable_schema_hint(schema: str) -> str:
    """Return what to do about a *schema* of another weigh."""
    name, _, number = schema.partition("/")
    own, _, current = SCHEMA.partition("/")
    is_newer = name == own and number.isdecimal() and int(number) > int(current)
    return ": install a newer weigh" if is_newer else " only: measure the run again"


def _with_escaped_bytes(json_value: object) -> object:
    if isinstance(json_value, str):
        return json_value.encode("utf-8", "backslashreplace").decode()
    if isinstance(json_value, dict):
        return {
            _with_escaped_bytes(key): _with_escaped_bytes(item)
            for key, item in json_value.items()
        }
    if isinstance(json_value, list | tuple):
        return [_with_escaped_bytes(item) for item in json_value]
    return json_value


def read_tail(file_path: str, most_bytes: int) -> bytes:
    """Return the last *most_bytes* bytes of a file; nothing if it cannot be read."""
    try:
        with open(file_path, "rb", opener=only_regular) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most_bytes))
            return file.read(most_bytes)
    except OSError:
        return b""


def file_for_store(file_path: str) -> StoreError:
    """Return the error of a store, or of its folder of records, that is a file."""
    way_out = "set WEIGH_DIR to a folder"
    return StoreError(f"{file_path} is a file where records should be ({way_out})")


def read_documents(
    file_path: str, document_type: type[_Document]
) -> Iterator[_Document]:
    """Yield the documents of a file, one per line; those that do not parse are skipped.

    Nothing where the file does not exist.

    Raises:
        StoreError: it exists, but cannot be read.
    """
    try:
        with open(file_path, "rb", opener=only_regular) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise file_for_store(os.path.dirname(file_path)) from error
    except OSError as error:
        raise StoreError(f"cannot read {file_path}: {error.strerror}") from error
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=document_type)
        except UNREADABLE:
            continue
