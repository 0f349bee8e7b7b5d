"""Read a path's file system: its type, whether it is shared, and its free space."""

import os

from weigh.model.doctor import DiskSpace

# file systems over a network, as mountinfo names them
_SHARED = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "cifs", "smb3"),
        *("afs", "panfs", "pvfs2", "orangefs", "wekafs", "glusterfs", "9p", "virtiofs"),
        *("fuse.sshfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.mfs"),
        *("fuse.juicefs", "fuse.beegfs", "gfs2", "ocfs2", "dvs", "vastnfs", "moosefs"),
    )
)
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
# octal escapes of mountinfo
_UNESCAPED = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def read_disk(path: str, proc_folder: str = "/proc") -> DiskSpace:
    """Read the file system of *path*, or of its nearest existing parent.

    May hang if a file server does: call it with a time-out.
    """
    there = _existing(path)
    kind, _ = mount_of(
        os.path.realpath(there), _mountinfo_text(f"{proc_folder}/self/mountinfo")
    )
    # None: the mount was not found
    shared = None if kind is None else kind in _SHARED
    try:
        # this is the call that hangs where a file server does not answer
        status = os.statvfs(there)
    except OSError as error:
        return DiskSpace(
            path=path,
            kind=kind,
            is_shared=shared,
            trouble=error.strerror,
        )
    return DiskSpace(
        path=path,
        kind=kind,
        is_shared=shared,
        size=status.f_blocks * status.f_frsize,
        free=status.f_bavail * status.f_frsize,
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
        point = _unescaped_mount(words[4])
        # a folder on the way to it, not just a name that begins alike
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


def _unescaped_mount(text: str) -> str:
    for escaped, character in _UNESCAPED.items():
        text = text.replace(escaped, character)
    return text


def _mountinfo_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
