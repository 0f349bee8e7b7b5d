"""Where the records live: ``.weigh/``, found upwards as git finds ``.git``."""

import os
from collections.abc import Mapping

from weigh.errors import StoreError

FOLDER = ".weigh"
_WAY_OUT = "set WEIGH_DIR to a folder you can write to"


def locate(cwd: str, environ: Mapping[str, str]) -> str:
    """Return the store for *cwd*, existing or not; ``WEIGH_DIR`` overrides.

    The nearest ``.weigh`` upwards that belongs to this user, else ``cwd/.weigh``.
    One planted by somebody else (in /tmp, say) is passed over: it would show them
    the commands.
    """
    chosen = environ.get("WEIGH_DIR")
    if chosen:
        return os.path.normpath(os.path.join(cwd, os.path.expanduser(chosen)))
    folder = cwd
    while True:
        candidate = os.path.join(folder, FOLDER)
        if _is_mine(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            return os.path.join(cwd, FOLDER)
        folder = parent


def make_folder(root: str, *below: str) -> str:
    """Make *root* and the folders *below* it, readable by their owner only.

    Records hold commands, and commands hold names and sometimes secrets: hence
    mode 0700, and a ``.gitignore`` that keeps a new store out of commits.

    Raises:
        StoreError: a folder cannot be made.
    """
    folder = os.path.join(root, *below)
    if os.path.isdir(folder):
        return folder
    try:
        if _make_private(root):
            _keep_out_of_git(root)
        path = root
        for name in below:
            path = os.path.join(path, name)
            _make_private(path)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror} ({_WAY_OUT})"
        ) from error
    return folder


def _is_mine(path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    if not os.path.isdir(path):
        return False
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _make_private(path: str) -> bool:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    return True


def _keep_out_of_git(root: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(os.path.join(root, ".gitignore"), flags, 0o600)
    except FileExistsError:
        return
    try:
        os.write(descriptor, b"*\n")
    finally:
        os.close(descriptor)
