"""Read a path's file system: its type, whether it is shared, and its free space."""

import os
import re
from collections.abc import Iterator

from weigh.model.doctor import Disk, Quota
from weigh.units import KIB

_NUMBER = re.compile(r"\[?(\d{1,18}(?:\.\d{1,9})?)([kKMGTP]?)\*?\]?\*?")
_POWERS = {"": 0, "k": 0, "K": 0, "M": 1, "G": 2, "T": 3, "P": 4}
_THOUSANDS = {"": 1, "k": 1000, "K": 1000, "M": 10**6, "G": 10**9}
_COLUMNS = 6  # used, quota, limit; files, quota, limit; without grace times


def parse_quota(text: str) -> tuple[Quota, ...]:
    """Parse the rows under a header line with "Filesystem"; skip other lines.

    Sizes without a unit are in KiB. A grace time may be blank.
    """
    return tuple(quota for row in _rows(text) if (quota := _quota(row)) is not None)


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the words of each row; a long name may have a line of its own."""
    is_table = False
    name: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Filesystem"]:
            is_table, name = True, []
        elif not is_table or not words or words[0] in {"Disk", "uid", "gid"}:
            name = []
        elif len(words) == 1:
            name = words
        else:
            yield [*name, *words]
            name = []


def _quota(row: list[str]) -> Quota | None:
    found = [match for word in row[1:] if (match := _NUMBER.fullmatch(word))]
    if len(found) < _COLUMNS:
        return None
    used, soft, hard = (_size(match) for match in found[:3])
    files, soft_files, hard_files = (_count(match) for match in found[3:6])
    return Quota(
        file_system=row[0],
        used=used,
        limit=_lower(soft, hard),
        files=files,
        files_limit=_lower(soft_files, hard_files),
    )


def _lower(soft: int, hard: int) -> int | None:
    """Return the lower limit; zero means no limit."""
    return min((one for one in (soft, hard) if one), default=None)


def _size(match: re.Match[str]) -> int:
    return int(float(match[1]) * KIB * 1024 ** _POWERS[match[2]])


def _count(match: re.Match[str]) -> int:
    return int(float(match[1]) * _THOUSANDS.get(match[2], 1))


_SHARED = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "cifs", "smb3"),
        *("afs", "panfs", "pvfs2", "orangefs", "wekafs", "glusterfs", "9p", "virtiofs"),
        *("fuse.sshfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.mfs"),
        *("fuse.juicefs", "fuse.beegfs", "gfs2", "ocfs2", "dvs", "vastnfs", "moosefs"),
    )
)
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_UNESCAPED = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def read_disk(role: str, path: str, proc: str = "/proc") -> Disk:
    """Read the file system of *path*, or of its nearest existing parent.

    May hang if a file server does: call it with a time-out.
    """
    there = _existing(path)
    kind, mount = mount_of(os.path.realpath(there), _read(f"{proc}/self/mountinfo"))
    shared = None if kind is None else kind in _SHARED
    try:
        status = os.statvfs(there)
    except OSError as error:
        return Disk(
            role=role,
            path=path,
            kind=kind,
            mount=mount,
            is_shared=shared,
            trouble=error.strerror,
        )
    return Disk(
        role=role,
        path=path,
        kind=kind,
        mount=mount,
        is_shared=shared,
        size=status.f_blocks * status.f_frsize,
        free=status.f_bavail * status.f_frsize,
        files=status.f_files or None,
        files_free=status.f_favail if status.f_files else None,
        writable=os.access(there, os.W_OK | os.X_OK),
    )


def mount_of(path: str, mountinfo: str) -> tuple[str | None, str | None]:
    """Find (type, mount point) of *path* in the text of /proc/self/mountinfo.

    Of mounts on one point the last is on top: proc_pid_mountinfo(5).
    """
    kind, mount = None, None
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        words, types = before.split(" "), after.split(" ")
        if not dash or len(words) < 5:  # noqa: PLR2004 - the mount point is the fifth
            continue
        point = _plain(words[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(mount or ""):
            kind, mount = types[0], point
    return kind, mount


def is_in_memory(kind: str | None) -> bool:
    """Return whether a file system of *kind* is in memory."""
    return kind in _IN_MEMORY


def _existing(path: str) -> str:
    while not os.path.exists(path):
        parent = os.path.dirname(path)
        if parent == path:
            return path
        path = parent
    return path or "."


def _plain(text: str) -> str:
    for escaped, character in _UNESCAPED.items():
        text = text.replace(escaped, character)
    return text


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
