"""Find records in the store by their ids or by their job, mostly without series."""

from collections.abc import Collection, Iterator
from contextlib import suppress

from weigh.errors import FormatError, SchemaError
from weigh.model.record import SCHEMA, Record
from weigh.store.index import join_parts
from weigh.store.lines import decode_record
from weigh.store.shards import shard_lines, store_shards

# as the store writes it: a line of a record starts so
_HEAD = b'{"schema":"' + SCHEMA.encode() + b'","id":"'
# the key before the series, and the one behind them
_SERIES, _BEHIND = b',"series":{', b',"request":'
_AFTER_NODES = b',"repeats":['
_JOB = b',"job":{"id":"'


def decode_without_series(line: bytes) -> Record | None:
    """Read a record without its series, which is faster; None if it is not a record."""
    try:
        return decode_record(_without_series(line))
    except (FormatError, SchemaError):
        return None


def records_by_ids(root: str, wanted: Collection[str]) -> dict[str, Record]:
    """Return the records of these ids; unknown ids are left out.

    Raises:
        StoreError: a shard cannot be read.
    """
    found = (decode_without_series(line) for line in _lines_of_records(root, wanted))
    return {one.id: one for one in join_parts(one for one in found if one is not None)}


def whole_records_by_ids(root: str, wanted: Collection[str]) -> dict[str, Record]:
    """Return the records of these ids with their series.

    Raises:
        StoreError: a shard cannot be read.
    """
    found: list[Record] = []
    for line in _lines_of_records(root, wanted):
        with suppress(FormatError, SchemaError):
            found.append(decode_record(line))
    return {record.id: record for record in join_parts(found)}


def records_of_jobs(root: str, jobs: Collection[str]) -> list[Record]:
    """Return the records of jobs by their ids, in the order of the store.

    Raises:
        StoreError: a shard cannot be read.
    """
    marks = [_JOB + job.encode() + b'"' for job in jobs]
    return join_parts(
        record
        for line in (_all_record_lines(root) if marks else ())
        # a search for bytes first: decoding each record would take a hundred times as
        # long
        if any(mark in line for mark in marks)
        if (record := decode_without_series(line)) is not None
    )


def _lines_of_records(root: str, wanted: Collection[str]) -> Iterator[bytes]:
    ids = {record_id.encode() for record_id in wanted}
    # without ids no shard is read at all
    for line in _all_record_lines(root) if ids else ():
        end = line.find(b'"', len(_HEAD))
        if line[len(_HEAD) : end] in ids and line.startswith(_HEAD):
            yield line


def _all_record_lines(root: str) -> Iterator[bytes]:
    for path in store_shards(root)[0]:
        yield from shard_lines(path)


def _without_series(line: bytes) -> bytes:
    """Remove the series from the line of a record.

    No mark can be part of a string, where its quotes would be escaped. Of the other
    objects with these keys, all come before the repeats.
    """
    # nodes hold series of their own: search behind them
    start = line.find(_SERIES, line.find(_AFTER_NODES))
    end = line.find(_BEHIND, start)
    # both are -1 where there is no series: all but the last byte, and that
    return line[:start] + line[end:]
