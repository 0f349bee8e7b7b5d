"""Runs in progress: ``running/<id>.json``, replaced by rename.

If weigh is killed, its checkpoint stays. The next weigh on the same machine appends
it as an INTERRUPTED record, and removes the file. It first claims the file by renaming
it, so that only one process does so; the claim names its owner, so that nothing is lost
if that one dies as well.
"""

import os
import time
from contextlib import suppress

import msgspec

from weigh.errors import FormatError, StoreError, WeighError
from weigh.joined import join_records
from weigh.model.record import Outcome, Record
from weigh.regular_file import only_regular
from weigh.store.identity import Machine, Process, is_alive, is_id, process
from weigh.store.lines import UNREADABLE, decode, encode
from weigh.store.location import file_mode, hand_over, make_folder
from weigh.store.shards import append, is_shard_of, listing, read_lines, shards

RUNNING = "running"
SCHEMA = "weigh.checkpoint/1"
STALE_AFTER = 600  # seconds without a sign of life from another machine or boot
_WAY_OUT = "free some space or set WEIGH_DIR to another folder"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The known state of a run in progress, and its owner.

    ``weigh`` is the process that measures, ``leader`` the command's own; None before
    it was started.
    """

    schema: str = SCHEMA
    machine: Machine
    weigh: Process
    leader: Process | None = None
    record: Record


class Running(msgspec.Struct, frozen=True):
    """A run in progress; ``seen`` is the time of its last sign of life.

    ``leader`` is the command's process, None if it cannot be seen from here.
    """

    record: Record
    host: str
    seen: float
    stale: bool
    leader: Process | None = None


class _Found(msgspec.Struct, frozen=True):
    path: str
    seen: float
    checkpoint: Checkpoint


_CHECKPOINTS = msgspec.json.Decoder(Checkpoint)


def save(root: str, checkpoint: Checkpoint) -> None:
    """Write or replace the checkpoint of a run.

    Raises:
        StoreError: it cannot be written.
    """
    folder = make_folder(root, RUNNING)
    record = checkpoint.record
    path = _path(folder, record.id, record.part)
    temporary = _temporary(folder, record.id, record.part)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, file_mode(temporary))
        try:
            _write_whole(descriptor, encode(checkpoint))
        finally:
            os.close(descriptor)
        hand_over(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error} ({_WAY_OUT})"
        ) from error


def finish(root: str, record_id: str, part: int | None = None) -> None:
    """Remove the checkpoint of a run, or of this *part* of it, that is written.

    Raises:
        StoreError: it exists, but cannot be removed.
    """
    folder = os.path.join(root, RUNNING)
    for path in (
        _path(folder, record_id, part),
        _temporary(folder, record_id, part),
    ):
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error.strerror}") from error


def running(root: str, here: Machine, now: float) -> list[Running]:
    """Return the runs in progress; *now* is seconds since the epoch.

    A run of this machine is alive, or it would have been finalised; of a run of another
    machine only the age of the last sign of life is known. Ranks that each have a part
    of a run are one run.
    """
    found = [
        Running(
            found.checkpoint.record,
            found.checkpoint.machine.host,
            found.seen,
            not here.sees_processes_of(found.checkpoint.machine)
            and now - found.seen > STALE_AFTER,
            found.checkpoint.leader
            if here.sees_processes_of(found.checkpoint.machine)
            else None,
        )
        for found in _checkpoints(root)
    ]
    parts: dict[str, list[Running]] = {}
    for one in found:
        if one.record.part is not None:
            parts.setdefault(one.record.id, []).append(one)
    whole = [one for one in found if one.record.part is None]
    return [*whole, *map(_joined, parts.values())] if parts else whole


def _joined(parts: list[Running]) -> Running:
    record = join_records([one.record for one in parts])
    return Running(
        msgspec.structs.replace(record, missing=()),  # some have not begun
        parts[0].host,
        max(one.seen for one in parts),
        all(one.stale for one in parts),
    )


def finalise_interrupted(root: str, here: Machine, proc: str = "/") -> list[Record]:
    """Append the runs whose weigh died on this machine; return their records.

    If the store cannot be written, they are returned anyway, and remain for a later
    weigh. *proc* is the folder that contains ``proc``.
    """
    ended = []
    for found in _checkpoints(root, claimed=True):
        if _is_dead(found, here, proc):
            record = _finalise(root, found, here, proc)
            if record is not None:
                ended.append(record)
    return ended


def _finalise(root: str, found: _Found, here: Machine, proc: str) -> Record | None:
    record = _interrupted(found, here, proc)
    claim = _claim_path(os.path.join(root, RUNNING), record.id, here)
    try:
        os.rename(found.path, claim)
    except FileNotFoundError:
        return None  # another weigh was first
    except OSError:
        return record
    try:
        written = _is_written(root, record, found.checkpoint.machine)
        if not written:
            append(root, record, here)
    except StoreError:
        with suppress(OSError):  # a claim of a dead owner is claimed again
            os.rename(claim, found.path)
        return record
    with suppress(OSError):
        os.unlink(claim)
        os.unlink(_temporary(os.path.dirname(claim), record.id, record.part))
    return None if written else record


def _interrupted(found: _Found, here: Machine, proc: str) -> Record:
    checkpoint = found.checkpoint
    leader = checkpoint.leader
    if here.is_later_boot_of(checkpoint.machine):
        reason = "the machine was restarted while it ran"
    elif leader is not None and is_alive(leader, proc):
        reason = f"weigh was killed; the command ran on as process {leader.pid}"
    else:
        reason = "weigh was killed before the command ended"
    return msgspec.structs.replace(
        checkpoint.record,
        state="INTERRUPTED",
        outcome=Outcome(reason, (f"last seen at {_iso(found.seen)}",)),
    )


def _is_dead(found: _Found, here: Machine, proc: str) -> bool:
    checkpoint = found.checkpoint
    silent = time.time() - found.seen > STALE_AFTER
    gone = (silent and here.is_later_boot_of(checkpoint.machine)) or (
        here.sees_processes_of(checkpoint.machine)
        and not is_alive(checkpoint.weigh, proc)
    )
    return gone and not _is_claimed_by_living(found.path, here, proc)


def _is_written(root: str, record: Record, machine: Machine) -> bool:
    """Return whether weigh died after its record, before it removed the checkpoint."""
    mark = f'"id":"{record.id}"'.encode()
    return any(
        mark in line and _is_of(line, record)
        for shard in shards(root)
        if is_shard_of(os.path.basename(shard), machine)
        for line in read_lines(shard)
    )


def _is_of(line: bytes, record: Record) -> bool:
    try:
        found = decode(line)
    except WeighError:
        return False
    return (found.id, found.part) == (record.id, record.part)


def _checkpoints(root: str, *, claimed: bool = False) -> list[_Found]:
    folder = os.path.join(root, RUNNING)
    found = (_read(os.path.join(folder, name)) for name in listing(folder))
    return [one for one in found if one and (claimed or one.path.endswith(".json"))]


def _read(path: str) -> _Found | None:
    name = os.path.basename(path)
    if not name.endswith((".json", ".claim")) or not is_id(name.partition(".")[0]):
        return None
    try:
        with open(path, "rb", opener=only_regular) as file:
            seen = os.fstat(file.fileno()).st_mtime
            return _Found(path, seen, _CHECKPOINTS.decode(file.read()))
    except (OSError, *UNREADABLE):
        return None  # just finished, or written by a newer weigh


def _claim_path(folder: str, record_id: str, here: Machine) -> str:
    me = process(os.getpid())
    name = f"{record_id}.{_boot(here)}.{me.pid}.{me.start_time or 0}.claim"
    return os.path.join(folder, name)


def _boot(machine: Machine) -> str:
    return (machine.boot_id or "none")[:8]


def _is_claimed_by_living(path: str, here: Machine, proc: str) -> bool:
    match os.path.basename(path).split("."):
        case [_, boot, pid, start_time, "claim"] if (pid + start_time).isdecimal():
            claimer = Process(int(pid), int(start_time) or None)
            return boot == _boot(here) and is_alive(claimer, proc)
        case _:
            return False


def _path(folder: str, record_id: str, part: int | None) -> str:
    if not is_id(record_id):
        raise FormatError(f"not the id of a record: {record_id!r}")
    return os.path.join(folder, f"{_file_name(record_id, part)}.json")


def _temporary(folder: str, record_id: str, part: int | None) -> str:
    return os.path.join(folder, f".{_file_name(record_id, part)}.tmp")


def _file_name(record_id: str, part: int | None) -> str:
    return record_id if part is None else f"{record_id}.{part}"


def _write_whole(descriptor: int, content: bytes) -> None:
    if os.write(descriptor, content) != len(content):
        raise OSError("only a part of it could be written")


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
