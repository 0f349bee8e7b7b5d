"""The past scans of a folder, so that one can be resumed with more sizes."""

import os

import msgspec

from weigh.errors import StoreError
from weigh.regular_file import only_regular
from weigh.store.lines import UNREADABLE
from weigh.store.location import file_mode, hand_over_to_folder_owner, make_folder

SCHEMA = "weigh.scan/1"
_FILE = "scans.jsonl"


class StoredScan(msgspec.Struct, frozen=True):
    """A scan: its command with fields, and the label of its records.

    ``target`` is the target of the last call as typed, ``by`` the parameter that is the
    size, and ``level`` the confidence of the bounds.
    """

    label: str
    command: tuple[str, ...]
    cwd: str
    by: str | None = None
    target: str | None = None
    level: str | None = None
    schema: str = SCHEMA


def append_scan(root: str, stored_scan: StoredScan) -> None:
    """Append *stored_scan* as the newest.

    Raises:
        StoreError: the store cannot be written.
    """
    path = os.path.join(make_folder(root), _FILE)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        is_new = not os.path.lexists(path)
        descriptor = os.open(path, flags, file_mode(path))
        if is_new:
            hand_over_to_folder_owner(path)
        try:
            # a newline first: a line torn by a full disk damages only itself
            os.write(descriptor, b"\n" + msgspec.json.encode(stored_scan) + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def last_scan(root: str, label: str | None = None) -> StoredScan | None:
    """Return the newest scan, or the newest of *label*; None if there is none.

    Raises:
        StoreError: the store cannot be read.
    """
    path = os.path.join(root, _FILE)
    try:
        with open(path, "rb", opener=only_regular) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    for line in reversed(lines):
        try:
            scan = msgspec.json.decode(line, type=StoredScan)
        except UNREADABLE:
            continue
        # one of a newer weigh is passed over
        if label in (None, scan.label) and scan.schema == SCHEMA:
            return scan
    return None
