"""Append-only shards: ``records/<YYYY-MM>/<host>-<machine id>-<boot id>.jsonl``.

There is one shard per boot of a host, shared by its processes; both ids are shortened
to 8 letters. Shards of older stores, without the boot id, are read as well. Each record
is one write(), and O_APPEND separates concurrent ones. Nothing is ever truncated or
rewritten: a writer that finds a torn end starts with a newline, and readers skip what
does not parse.
"""

import os
from collections.abc import Iterator

from weigh.errors import StoreError
from weigh.model.record import Record
from weigh.regular_file import is_regular_file, only_regular
from weigh.store.identity import MachineIdentity
from weigh.store.lines import RecordTombstone, encode_record, file_for_store
from weigh.store.location import file_mode, hand_over_to_folder_owner, make_folder

RECORDS = "records"
_UNDATED = "undated"  # folder of records without a time
_TRIES = 3  # writes of a line that another writer tore
# O_RDWR: the byte before a line is read, too
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_WAY_OUT = "free some space or set WEIGH_DIR to another folder"
# letters of a host's name that a file name may have everywhere
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")


def append_record(root: str, record: Record, machine: MachineIdentity) -> str:
    """Append *record* to this machine's shard of its month; return the shard.

    Raises:
        StoreError: it cannot be written.
    """
    line = encode_record(record)
    folder = make_folder(root, RECORDS, month_folder(record.started))
    path = os.path.join(folder, shard_name(machine))
    append_line(path, line)
    return path


def append_tombstone(
    root: str, record_id: str, *, machine: MachineIdentity, current_time: str
) -> None:
    """Append a tombstone for *record_id*; *current_time* is UTC in ISO 8601.

    Raises:
        StoreError: it cannot be written.
    """
    folder = make_folder(root, RECORDS, month_folder(current_time))
    line = encode_record(RecordTombstone(id=record_id, removed=current_time))
    append_line(os.path.join(folder, shard_name(machine)), line)


def append_line(path: str, store_line: bytes) -> None:
    """Append *store_line* and a newline in one write; make the file if it is missing.

    Raises:
        StoreError: it cannot be written completely.
    """
    try:
        # only a file that this process makes is handed over
        is_new = not os.path.lexists(path)
        descriptor = os.open(path, _FLAGS, file_mode(path))
        if is_new:
            hand_over_to_folder_owner(path)
        try:
            _append_whole_line(descriptor, store_line + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(
            f"cannot write to {path}: {error.strerror or error} ({_WAY_OUT})"
        ) from error


def store_shards(root: str) -> tuple[list[str], list[str]]:
    """Return the shards that may be read, oldest month first, and what may not.

    Root leaves closed shards or months, if it ran in a container or by sudo; a FIFO or
    a device is none of weigh's. One of them must not hide all other records.

    Raises:
        StoreError: the store exists, but cannot be read.
    """
    top = os.path.join(root, RECORDS)
    for path in (root, top):
        if os.path.exists(path) and not os.path.isdir(path):
            raise file_for_store(path)
    readable: list[str] = []
    closed: list[str] = []
    for month in sorted_folder_names(top):
        folder = os.path.join(top, month)
        # as a whole: the names in it cannot be listed
        if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
            closed.append(folder)
            continue
        for name in sorted_folder_names(folder):
            path = os.path.join(folder, name)
            is_open = is_regular_file(path) and os.access(path, os.R_OK)
            if name.endswith(".jsonl"):
                (readable if is_open else closed).append(path)
    return readable, closed


def shard_lines(path: str) -> Iterator[bytes]:
    """Yield the raw lines of a shard, including newlines.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with open(path, "rb", buffering=1 << 20, opener=only_regular) as file:
            yield from file
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def sorted_folder_names(folder: str) -> list[str]:
    """Return the sorted names in *folder*; none if it does not exist.

    Raises:
        StoreError: it exists, but cannot be read.
    """
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}") from error


def month_folder(started: str) -> str:
    """Return the folder of a time: ``YYYY-MM``."""
    year, dash, number = started[:4], started[4:5], started[5:7]
    if dash == "-" and year.isdecimal() and number.isdecimal() and started.isascii():
        return f"{year}-{number}"
    return _UNDATED


def shard_name(machine: MachineIdentity) -> str:
    """Return the file name of *machine*'s shard.

    It includes the boot, because O_APPEND works only within one kernel: two containers
    of one name, or nodes cloned with their machine id, must not share a shard.
    """
    ids = (machine.machine_id, machine.boot_id)
    tag = "-".join(one[:8] for one in ids if one) or "0" * 8
    return f"{_host_file_name(machine)}-{tag}.jsonl"


def is_shard_of(file_name: str, machine: MachineIdentity) -> bool:
    """Return whether the shard *file_name* may contain records of *machine*'s host."""
    return file_name.startswith(f"{_host_file_name(machine)}-")


def _host_file_name(machine: MachineIdentity) -> str:
    host = "".join(c if c in _PLAIN else "_" for c in machine.host[:64])
    # no hidden file
    return host.lstrip(".") or "localhost"


def _append_whole_line(descriptor: int, store_line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    # Another write may be half done: that costs an empty line, but no record.
    if size and _byte_at(descriptor, size - 1) != b"\n":
        store_line = b"\n" + store_line
    for _ in range(_TRIES):
        whole = os.write(descriptor, store_line) == len(store_line)
        if whole and (
            store_line[:1] == b"\n" or _stands_alone(descriptor, len(store_line))
        ):
            return
        # Short, or appended to a line that another writer left torn: write it again.
        # If both copies parse, readers keep the last.
        store_line = b"\n" + store_line.lstrip(b"\n")
    raise OSError("only a part of the record could be written")


def _stands_alone(descriptor: int, length: int) -> bool:
    # O_APPEND moves the offset to the end of what this process wrote
    start = os.lseek(descriptor, 0, os.SEEK_CUR) - length
    return start <= 0 or _byte_at(descriptor, start - 1) == b"\n"


def _byte_at(descriptor: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, 1)
