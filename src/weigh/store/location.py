"""Locate the store: ``.weigh/`` here or above, as git finds ``.git``."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from weigh.errors import StoreError

FOLDER = ".weigh"
_REPOSITORY = (".git", ".hg", ".svn")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is written there
_WAY_OUT = "set WEIGH_DIR to a folder you can write to"

_OF_A_GROUP = stat.S_ISGID | stat.S_IWGRP
_Identity: TypeAlias = tuple[int, int]


def locate(cwd: str, environ: Mapping[str, str]) -> str:
    """Return the store for *cwd*, existing or not; ``WEIGH_DIR`` overrides.

    This is ``cwd/.weigh``, unless only a folder above *cwd* has a ``.weigh``. The
    search upwards ends at a repository's root or the home folder, inclusive. It skips
    the root folder, folders for temporary files and folders above the home folder: a
    store left there would collect the records of everything below. It also skips the
    stores of other users, who would see the commands.
    """
    chosen = environ.get("WEIGH_DIR")
    if chosen:
        return os.path.normpath(os.path.join(cwd, os.path.expanduser(chosen)))
    here = os.path.join(cwd, FOLDER)
    if _is_mine(here) or _ends_search(cwd, environ):
        return here
    shared: set[_Identity | None] | None = None
    folder, parent = cwd, os.path.dirname(cwd)
    while parent != folder:
        folder, parent = parent, os.path.dirname(parent)
        candidate = os.path.join(folder, FOLDER)
        if _is_mine(candidate):
            if shared is None:
                shared = set(_shared_folders(environ))
            if _identity(folder) not in shared:
                return candidate
        if _ends_search(folder, environ):
            break
    return here


def note_on_store(cwd: str, environ: Mapping[str, str]) -> str | None:
    """Return a note that names a store above *cwd*; None for any other store."""
    root = locate(cwd, environ)
    if environ.get("WEIGH_DIR") or os.path.dirname(root) == cwd:
        return None
    return f"records are in {root} (above this folder: see WEIGH_DIR)"


def _ends_search(folder: str, environ: Mapping[str, str]) -> bool:
    """Return whether *folder* is the home folder or the root of a repository."""
    home = environ.get("HOME")
    if home and (folder == home or _identity(folder) == _identity(home)):
        return True
    return any(os.path.exists(os.path.join(folder, name)) for name in _REPOSITORY)


def _shared_folders(environ: Mapping[str, str]) -> Iterator[_Identity | None]:
    """Yield the folders above *cwd* whose ``.weigh`` is never used."""
    yield _identity(os.sep)
    named = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for folder in (*_TEMPORARY, *named):
        if folder:
            yield _identity(folder)
    home = environ.get("HOME")
    for folder in (home, os.path.realpath(home)) if home else ():
        above = os.path.dirname(folder)
        while above != os.path.dirname(above):
            yield _identity(above)
            above = os.path.dirname(above)


def _identity(path: str) -> _Identity | None:
    """Return the device and inode of *path*, following links; None if missing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def make_folder(root: str, *below: str) -> str:
    """Make *root* and the folders *below* it, readable by their owner only.

    Records contain commands, which contain names and sometimes secrets: hence mode 0700
    (unless a group shares the folder above, see `private`), and a ``.gitignore`` that
    keeps a new store out of commits.

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


def private(path: str, flags: int) -> int:
    """Open *path* as ``open(opener=private)``: only the owner may access a new file.

    In a folder that a group shares (set-group-id and group-writable), the group has the
    access that the umask allows.
    """
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), file_mode(path))


def file_mode(path: str) -> int:
    """Return the mode of a new file *path*, see `private`."""
    return 0o660 if _is_shared(os.path.dirname(path)) else 0o600


def hand_over(path: str) -> None:
    """Change the owner of a *path* that root has just made to that of its folder.

    Root in a container, or by sudo, works in a user's folder: what it leaves there
    must stay readable for that user. A link is not followed.
    """
    if not hasattr(os, "geteuid") or os.geteuid():
        return
    with suppress(OSError):  # NFS without root, or a user that is not mapped here
        above = os.stat(os.path.dirname(path) or ".")
        if above.st_uid:
            os.chown(path, above.st_uid, above.st_gid, follow_symlinks=False)


def make_private_folder(path: str) -> None:
    """Make the folder *path*, and missing folders above it.

    Only the owner may access it, see `private`. Raises OSError.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    mode = 0o770 if _is_shared(os.path.dirname(path)) else 0o700
    with suppress(FileExistsError):
        os.mkdir(path, mode)


def _is_shared(folder: str) -> bool:
    """Return whether a group shares *folder*: chmod g+ws."""
    try:
        mode = os.stat(folder or ".").st_mode
    except OSError:
        return False
    return mode & _OF_A_GROUP == _OF_A_GROUP


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
        os.mkdir(path, 0o770 if _is_shared(os.path.dirname(path)) else 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    hand_over(path)
    return True


def _keep_out_of_git(root: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    path = os.path.join(root, ".gitignore")
    try:
        descriptor = os.open(path, flags, file_mode(path))
    except FileExistsError:
        return
    try:
        os.write(descriptor, b"*\n")
    finally:
        os.close(descriptor)
    hand_over(path)
