"""Locate the store: ``.weigh/`` here or above, as git finds ``.git``."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from weigh.errors import StoreError
from weigh.project_folders import folders_of_project

FOLDER = ".weigh"
_WAY_OUT = "set WEIGH_DIR to a folder you can write to"

# new files get the folder's group, and the group may write there
_OF_A_GROUP = stat.S_ISGID | stat.S_IWGRP


def locate_store(cwd: str, environ: Mapping[str, str]) -> str:
    """Return the store for *cwd*, existing or not; ``WEIGH_DIR`` overrides.

    This is ``cwd/.weigh``, unless only a folder of the project above *cwd* has a
    ``.weigh``: a store in /tmp or / would collect the records of everything below. The
    stores of other users are skipped, who would see the commands; where one is in *cwd*
    itself, the store is that of the home folder, unless a group shares the one here.
    """
    chosen = environ.get("WEIGH_DIR")
    if chosen:
        return os.path.normpath(os.path.join(cwd, os.path.expanduser(chosen)))
    here = os.path.join(cwd, FOLDER)
    for folder in folders_of_project(cwd, environ):
        candidate = os.path.join(folder, FOLDER)
        # another user's store would show that user the commands
        if _is_folder_of_user(candidate):
            return candidate
    home = environ.get("HOME")
    # the name is taken here by another user, and not for a group
    if (
        home
        and os.path.isdir(here)
        and not _is_folder_of_user(here)
        and not _is_shared(here)
    ):
        return os.path.join(home, FOLDER)
    return here


def note_on_store(cwd: str, environ: Mapping[str, str]) -> str | None:
    """Return a note that names a store outside *cwd*; None for any other store."""
    root = locate_store(cwd, environ)
    # the user knows a store that was named, or that is here
    if environ.get("WEIGH_DIR") or os.path.dirname(root) == cwd:
        return None
    if os.path.isdir(os.path.join(cwd, FOLDER)):
        return f"records are in {root} ({FOLDER} here is another user's)"
    return f"records are in {root} (above this folder: see WEIGH_DIR)"


def make_folder(root: str, *below: str) -> str:
    """Make *root* and the folders *below* it, readable by their owner only.

    Records contain commands, which contain names and sometimes secrets: hence mode 0700
    (unless a group shares the folder above, see `open_privately`), and a ``.gitignore``
    that keeps a new store out of commits.

    Raises:
        StoreError: a folder cannot be made.
    """
    folder = os.path.join(root, *below)
    # the usual case, with one system call
    if os.path.isdir(folder):
        return folder
    try:
        if make_private_folder(root):
            _keep_out_of_git(root)
        path = root
        for name in below:
            path = os.path.join(path, name)
            make_private_folder(path)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror} ({_WAY_OUT})"
        ) from error
    return folder


def open_privately(file_path: str, flags: int) -> int:
    """Open a file as ``open(opener=...)`` asks: only the owner may access a new one.

    In a folder that a group shares (set-group-id and group-writable), the group has the
    access that the umask allows.
    """
    return os.open(file_path, flags | getattr(os, "O_CLOEXEC", 0), file_mode(file_path))


def replace_whole_file(file_path: str, contents: bytes) -> None:
    """Write a file that a reader finds old or new, never empty or cut off.

    What is no plain file, such as a terminal or a FIFO, is written as it is.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    path = os.path.realpath(file_path)  # a link keeps pointing to its file
    is_plain = os.path.isfile(path) or not os.path.exists(path)
    fresh = f"{path}.{os.getpid()}.new" if is_plain else path
    try:
        with open(fresh, "wb", opener=open_privately) as file:
            file.write(contents)
        if is_plain:
            hand_over_to_folder_owner(fresh)
            with suppress(OSError):  # whoever could read the old file can read the new
                os.chmod(fresh, stat.S_IMODE(os.stat(path).st_mode))
            os.replace(fresh, path)
    except OSError:
        if is_plain:
            with suppress(OSError):
                os.remove(fresh)
        raise


def file_mode(file_path: str) -> int:
    """Return the mode of a new file *file_path*, see `open_privately`."""
    return 0o660 if _is_shared(os.path.dirname(file_path)) else 0o600


def hand_over_to_folder_owner(file_path: str) -> None:
    """Change the owner of a *file_path* that root has just made to that of its folder.

    Root in a container, or by sudo, works in a user's folder: what it leaves there
    must stay readable for that user. A link is not followed.
    """
    # only root may, and only root has to
    if not hasattr(os, "geteuid") or os.geteuid():
        return
    with suppress(OSError):  # NFS without root, or a user that is not mapped here
        above = os.stat(os.path.dirname(file_path) or ".")
        # root's own folder stays root's
        if above.st_uid:
            os.chown(file_path, above.st_uid, above.st_gid, follow_symlinks=False)


def make_private_folder(file_path: str) -> bool:
    """Make the folder *file_path*, and missing folders above it.

    Only the owner may access it, see `open_privately`. Return whether it is new.

    Raises:
        OSError: it cannot be made, or a file of that name is in the way.
    """
    above = os.path.dirname(file_path)
    try:
        os.makedirs(above or ".", exist_ok=True)
        os.mkdir(file_path, 0o770 if _is_shared(above) else 0o700)
    except FileExistsError:
        # a file of that name is in the way
        if not os.path.isdir(file_path):
            raise
        return False
    hand_over_to_folder_owner(file_path)
    return True


def _is_shared(folder: str) -> bool:
    """Return whether a group shares *folder*: chmod g+ws."""
    try:
        mode = os.stat(folder or ".").st_mode
    except OSError:
        return False
    return mode & _OF_A_GROUP == _OF_A_GROUP


def _is_folder_of_user(file_path: str) -> bool:
    try:
        status = os.stat(file_path)
    except OSError:
        return False
    if not os.path.isdir(file_path):
        return False
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


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
    hand_over_to_folder_owner(path)
