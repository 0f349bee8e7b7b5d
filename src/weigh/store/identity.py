"""Identify this machine, its current boot, and one process on it.

A process id may be reused; together with the start time, the boot and the pid
namespace it identifies one process forever.
"""

import os

import msgspec

from weigh.process_ids import is_own_proc, is_process_id_in_use
from weigh.regular_file import file_head

LENGTH = 12  # hex digits of an id
SHORTEST_PREFIX = 4  # hex digits that an abbreviated id has at least
_HEX = frozenset("0123456789abcdef")


def new_id() -> str:
    """Return a new random id; 48 bits are enough for a million records."""
    return os.urandom(LENGTH // 2).hex()


def content_id(content: bytes) -> str:
    """Return an id derived from *content*, so that a second import is recognised."""
    from hashlib import blake2b  # noqa: PLC0415 - hashing is rare, start-up is not

    return blake2b(content, digest_size=LENGTH // 2).hexdigest()


def is_id(id_text: str) -> bool:
    """Return whether *id_text* is a complete id, and thus safe as a file name."""
    return len(id_text) == LENGTH and _HEX.issuperset(id_text)


def is_prefix(id_text: str) -> bool:
    """Return whether *id_text* may be the first letters of an id."""
    return SHORTEST_PREFIX <= len(id_text) <= LENGTH and _HEX.issuperset(id_text)


_START_TIME = 19  # field 22 of /proc/PID/stat, counted after the name and its ')'


class MachineIdentity(msgspec.Struct, frozen=True):
    """One running kernel; None is unknown."""

    host: str  # its name, which several machines may have
    machine_id: str | None = None  # /etc/machine-id, which clones share
    boot_id: str | None = None  # random, new at each start of the kernel
    # the namespace that its process ids are in
    pid_namespace: str | None = None

    def sees_processes_of(self, other_machine: "MachineIdentity") -> bool:
        """Return whether processes of *other_machine* are visible from here."""
        # no Linux: the host's name is all there is
        if self.boot_id is None:
            return self.host == other_machine.host and other_machine.boot_id is None
        return (self.boot_id, self.pid_namespace) == (
            other_machine.boot_id,
            other_machine.pid_namespace,
        )

    def is_later_boot_of(self, other_machine: "MachineIdentity") -> bool:
        """Return whether *other_machine* may be this machine before it was restarted.

        A node cloned with its host name and machine id looks the same and may be
        running: only the lack of a sign of life makes it certain.
        """
        return (
            self.machine_id is not None
            and (self.host, self.machine_id)
            == (other_machine.host, other_machine.machine_id)
            and None not in {self.boot_id, other_machine.boot_id}
            and self.boot_id != other_machine.boot_id
        )


class ProcessIdentity(msgspec.Struct, frozen=True):
    """One process; ``start_time`` in clock ticks since the boot, None if unknown."""

    pid: int
    start_time: int | None = None


def this_machine(root: str = "/") -> MachineIdentity:
    """Return the identity of this machine; *root* contains its /etc and /proc."""
    return MachineIdentity(
        host=_host_name(),
        machine_id=_first_identity_line(os.path.join(root, "etc/machine-id")),
        boot_id=_first_identity_line(
            os.path.join(root, "proc/sys/kernel/random/boot_id")
        ),
        pid_namespace=_pid_namespace(root),
    )


def process_identity(pid: int, root: str = "/") -> ProcessIdentity:
    """Return the identity of the process that now has the id *pid*."""
    status = _process_status(pid, root)
    return ProcessIdentity(pid, status[1] if status else None)


def is_alive(wanted: ProcessIdentity, root: str = "/") -> bool:
    """Return whether *wanted* still runs; a zombie does not.

    If /proc hides it (hidepid, macOS, another namespace), the process counts as alive
    while its id is in use: a live run must not be finalised.
    """
    status = _process_status(wanted.pid, root)
    if status is None:
        return is_process_id_in_use(wanted.pid)
    state, start_time = status
    # another start time: the process id was used again
    return state not in "ZX" and wanted.start_time in {None, start_time}


def _process_status(pid: int, root: str) -> tuple[str, int] | None:
    # the same number would be another process there
    if not is_own_proc(os.path.join(root, "proc")):
        return None
    # the name may contain spaces and parentheses, so fields count from the last ")"
    line = file_head(os.path.join(root, "proc", str(pid), "stat"))
    fields = line.rpartition(b")")[2].split()
    if len(fields) <= _START_TIME:
        return None
    return fields[0].decode("ascii", "replace"), int(fields[_START_TIME])


def _host_name() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename or "localhost"
    return os.environ.get("COMPUTERNAME") or "localhost"


def _pid_namespace(root: str) -> str | None:
    try:
        return os.readlink(os.path.join(root, "proc/self/ns/pid"))
    except OSError:
        return None


def _first_identity_line(file_path: str) -> str | None:
    return file_head(file_path).decode("ascii", "replace").strip() or None
