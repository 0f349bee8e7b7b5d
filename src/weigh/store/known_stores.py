"""The stores of this user from which jobs were submitted, one path per line."""

import os
from collections.abc import Mapping
from contextlib import suppress

from weigh.regular_file import only_regular
from weigh.store.location import open_privately

_MOST = 100  # of the newest


def remember_store(root: str, environ: Mapping[str, str]) -> None:
    """Add *root* as a store with jobs; a list that cannot be written is left alone."""
    path = _list_path(environ)
    # one line for each store, though two processes may both add it
    if path is None or root in _read_lines(path):
        return
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=open_privately) as file:
            file.write(f"{root}\n")


def known_stores(environ: Mapping[str, str]) -> list[str]:
    """Return the stores with jobs that still exist, the newest first."""
    path = _list_path(environ)
    roots = reversed(_read_lines(path)) if path is not None else ()
    return [root for root in roots if os.path.isdir(root)][:_MOST]


def _list_path(environ: Mapping[str, str]) -> str | None:
    base = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME", "")
    # the XDG specification has relative paths ignored
    if not os.path.isabs(base):
        if not home:
            return None
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "weigh", "stores")


def _read_lines(list_path: str) -> list[str]:
    try:
        with open(
            list_path, encoding="utf-8", errors="surrogateescape", opener=only_regular
        ) as file:
            return [line.rstrip("\n") for line in file]
    except OSError:
        return []
