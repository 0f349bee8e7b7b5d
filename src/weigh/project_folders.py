"""Find the folders of a project, where settings and the store are searched, and /tmp.

The search goes upwards from the current folder and ends at a repository's root or the
home folder. Above the current folder it skips those that everybody shares: what lies in
/tmp or /home is nobody's project.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TypeAlias

_REPOSITORY = (".git", ".hg", ".svn")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is written there
# what runs have in a temporary folder: a file, or a folder of files; hidden from the
# `rm -rf $TMPDIR/*` with which jobs end
_OF_RUN = re.compile(r"\.weigh-(?:exec-[0-9a-f]+|[0-9a-f]+\.regions)|weigh-step-\d+-.+")
# seconds; a run locks what it has as soon as it is made
_ABANDONED_AFTER = 60.0
_STEP_PREFIX = "weigh-step-"
# seconds; no rank of a step locks its file between two runs
_STEP_ABANDONED_AFTER = 86400.0
_MOST_LOOKED_AT = 10_000  # entries of a folder of everybody
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_Identity: TypeAlias = tuple[int, int]


def folders_of_project(cwd: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield *cwd* and the folders above it that belong to the same project."""
    yield cwd
    if _ends_search(cwd, environ):
        return
    # computed once a folder above is looked at: most commands run in the project's root
    shared: set[_Identity | None] | None = None
    folder, parent = cwd, os.path.dirname(cwd)
    while parent != folder:
        folder, parent = parent, os.path.dirname(parent)
        if shared is None:
            shared = set(_shared_folders(environ))
        if _file_identity(folder) not in shared:
            yield folder
        if _ends_search(folder, environ):
            return


def temporary_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where temporary files may go, the best folder first.

    TMPDIR may be that of another machine: a login node's, which compute nodes lack.
    """
    named = environ.get("TMPDIR", "")
    # /dev/shm is memory, so it gets no temporary files
    folders = dict.fromkeys((named, *_TEMPORARY[:2]))
    return tuple(folder for folder in folders if os.path.isabs(folder))


def hold_temporary(file_path: str) -> int | None:
    """Lock what this run has in a temporary folder; return the lock's descriptor.

    None if somebody else holds it, or it cannot be locked.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(file_path, flags)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class HeldTemporary:
    """What a run *makes* in the first of some temporary folders that takes it.

    ``path`` is None if none does. The kernel frees its lock when weigh is killed.
    """

    def __init__(
        self, folders: Iterable[str], name: str, make: Callable[[str], object]
    ) -> None:
        self.path: str | None = None
        self._lock: int | None = None
        # the TMPDIR of a scheduler may not exist
        for folder in folders:
            path = os.path.join(folder, name)
            with suppress(OSError):
                make(path)
                self.path = path
                self._lock = hold_temporary(path)
                break

    def close(self, remove: Callable[[str], object]) -> None:
        """Remove it, and what runs left here that were killed long ago."""
        if self.path is not None:
            with suppress(OSError):
                remove(self.path)
            remove_abandoned(os.path.dirname(self.path))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(folder: str) -> None:
    """Remove what killed runs left in a temporary *folder*, and steps of yesterday.

    A step's file has no last reader who could remove it; a killed run's has none.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_LOOKED_AT):
            if not _OF_RUN.fullmatch(entry.name):
                continue
            with suppress(OSError):
                is_step = entry.name.startswith(_STEP_PREFIX)
                least = _STEP_ABANDONED_AFTER if is_step else _ABANDONED_AFTER
                changed = entry.stat(follow_symlinks=False).st_mtime
                if time.time() - changed > least:
                    _remove_unless_held(entry.path)


def _remove_unless_held(file_path: str) -> None:
    descriptor = hold_temporary(file_path)
    if descriptor is None:
        return
    try:
        # root may remove all: whoever owns a folder could lead it elsewhere meanwhile
        if os.fstat(descriptor).st_uid != os.getuid():
            return
        if os.path.isdir(file_path):
            for name in os.listdir(file_path):
                os.unlink(os.path.join(file_path, name))
            os.rmdir(file_path)
        else:
            os.unlink(file_path)
    finally:
        os.close(descriptor)


def distrust_reason(file_path: str) -> str | None:
    """Return why a file of settings is not read; None if only user and root may write.

    The group may write where it is the user's own, as a umask of 002 has it.
    """
    if not hasattr(os, "geteuid"):
        return None
    status = os.stat(file_path)
    user = os.geteuid()
    # root could change anything anyway
    if status.st_uid not in (user, 0):
        return "it belongs to another user"
    writers = status.st_mode & _OTHERS_WRITE
    if writers == stat.S_IWGRP and _is_private_group(status.st_gid, user):
        return None
    return f"others may write it (chmod go-w {file_path})" if writers else None


def _is_private_group(group_id: int, user_id: int) -> bool:
    """Return whether a group is the private one of a user."""
    import grp  # noqa: PLC0415 - start-up time: few files may be written by a group
    import pwd  # noqa: PLC0415 - as above

    try:
        group, user = grp.getgrgid(group_id), pwd.getpwuid(user_id)
    except KeyError:
        return False
    # an empty list of members: only the user has it as the primary group
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _ends_search(folder: str, environ: Mapping[str, str]) -> bool:
    """Return whether *folder* is the home folder or the root of a repository."""
    home = environ.get("HOME")
    # the name first: it costs no system call
    if home and (folder == home or _file_identity(folder) == _file_identity(home)):
        return True
    return any(os.path.exists(os.path.join(folder, name)) for name in _REPOSITORY)


def _shared_folders(environ: Mapping[str, str]) -> Iterator[_Identity | None]:
    """Yield the folders that belong to no project if they are above the current one."""
    yield _file_identity(os.sep)
    named = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for folder in (*_TEMPORARY, *named):
        if folder:
            yield _file_identity(folder)
    home = environ.get("HOME")
    # HOME may be a link, and its real parents are shared as well
    for folder in (home, os.path.realpath(home)) if home else ():
        above = os.path.dirname(folder)
        while above != os.path.dirname(above):
            yield _file_identity(above)
            above = os.path.dirname(above)


def _file_identity(file_path: str) -> _Identity | None:
    """Return the device and inode of *file_path*, following links; None if missing."""
    try:
        status = os.stat(file_path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
