"""Read a path's file system: its type, whether it is shared, and its free space."""

import os
from collections.abc import Iterable

import msgspec

from weigh.model.doctor import DiskSpace
from weigh.probe.pages import MountedSystem, own_mounts

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


def read_disk(path: str, proc_folder: str = "/proc") -> DiskSpace:
    """Read the file system of *path*, or of its nearest existing parent.

    May hang if a file server does: call it with a time-out.
    """
    there = _existing(path)
    mount = mounted_system_of(os.path.realpath(there), own_mounts(proc_folder))
    kind = None if mount is None else mount.kind
    # None: the mount was not found
    shared = None if kind is None else kind in _SHARED
    disk = DiskSpace(path=path, kind=kind, is_shared=shared)
    try:
        # this is the call that hangs where a file server does not answer
        status = os.statvfs(there)
    except OSError as error:
        return msgspec.structs.replace(disk, trouble=error.strerror)
    return msgspec.structs.replace(
        disk,
        size=status.f_blocks * status.f_frsize,
        free=status.f_bavail * status.f_frsize,
        files_free=status.f_favail if status.f_files else None,
        writable=os.access(there, os.W_OK | os.X_OK),
    )


def mounted_system_of(
    path: str, mounts: Iterable[MountedSystem]
) -> MountedSystem | None:
    """Find the mount that *path* is on; of several on one point the last is on top."""
    found = None
    for mount in mounts:
        # a folder on the way to it, not just a name that begins alike
        is_above = f"{path}/".startswith(f"{mount.point.rstrip('/')}/")
        if is_above and len(mount.point) >= len(found.point if found else ""):
            found = mount
    return found


def is_over_network(kind: str) -> bool:
    """Return whether a file system of *kind* is shared over a network."""
    return kind in _SHARED


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
