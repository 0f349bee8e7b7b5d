"""Runs in progress: ``running/<id>.json``, replaced by rename.

If weigh is killed, its checkpoint stays. The next weigh on the same machine appends
it as an INTERRUPTED record, and removes the file. Where two do so at once, both lines
have the id of the run, so it is one record.
"""

import os
import time
from contextlib import suppress

import msgspec

from weigh.errors import FormatError, StoreError, WeighError
from weigh.joined import join_records
from weigh.model.record import Record, RunOutcome
from weigh.regular_file import only_regular, write_all
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    is_alive,
    is_id,
)
from weigh.store.lines import UNREADABLE, decode_record, encode_record
from weigh.store.location import file_mode, hand_over_to_folder_owner, make_folder
from weigh.store.shards import (
    append_record,
    is_shard_of,
    readable_shards,
    shard_lines,
    sorted_folder_names,
)

RUNNING = "running"
SCHEMA = "weigh.checkpoint/1"
STALE_AFTER = 600  # seconds without a sign of life from another machine or boot
_WAY_OUT = "free some space or set WEIGH_DIR to another folder"


class RunCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The known state of a run in progress, and its owner.

    ``weigh`` is the process that measures, ``leader`` the command's own; None before
    it was started.
    """

    schema: str = SCHEMA
    machine: MachineIdentity
    weigh: ProcessIdentity
    leader: ProcessIdentity | None = None
    record: Record


class UnfinishedRun(msgspec.Struct, frozen=True):
    """A run in progress; ``seen`` is the time of its last sign of life.

    ``leader`` is the command's process, None if it cannot be seen from here.
    """

    record: Record
    host: str
    seen: float  # seconds since the epoch
    stale: bool  # no sign of life for STALE_AFTER, and not visible from here
    leader: ProcessIdentity | None = None


class _FoundCheckpoint(msgspec.Struct, frozen=True):
    seen: float
    checkpoint: RunCheckpoint  # as its file has it


_CHECKPOINTS = msgspec.json.Decoder(RunCheckpoint)


def save_checkpoint(root: str, checkpoint: RunCheckpoint) -> None:
    """Write or replace the checkpoint of a run.

    Raises:
        StoreError: it cannot be written.
    """
    folder = make_folder(root, RUNNING)
    record = checkpoint.record
    path = _checkpoint_path(folder, record.id, record.part)
    temporary = _temporary_path(folder, record.id, record.part)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, file_mode(temporary))
        try:
            write_all(descriptor, encode_record(checkpoint))
        finally:
            os.close(descriptor)
        hand_over_to_folder_owner(temporary)
        # after this a reader finds the old state or the new one, never a half
        os.replace(temporary, path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error} ({_WAY_OUT})"
        ) from error


def remove_checkpoint(
    root: str, record_id: str, part_number: int | None = None
) -> None:
    """Remove the checkpoint of a run, or of this *part_number* of it, that is written.

    Raises:
        StoreError: it exists, but cannot be removed.
    """
    folder = os.path.join(root, RUNNING)
    for path in (
        _checkpoint_path(folder, record_id, part_number),
        # left where weigh was killed between open and replace
        _temporary_path(folder, record_id, part_number),
    ):
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error.strerror}") from error


def runs_in_progress(
    root: str, here: MachineIdentity, current_time: float
) -> list[UnfinishedRun]:
    """Return the runs in progress; *current_time* is seconds since the epoch.

    A run of this machine is alive, or it would have been finalised; of a run of another
    machine only the age of the last sign of life is known. Ranks that each have a part
    of a run are one run.
    """
    found = [
        UnfinishedRun(
            found.checkpoint.record,
            found.checkpoint.machine.host,
            found.seen,
            not here.sees_processes_of(found.checkpoint.machine)
            and current_time - found.seen > STALE_AFTER,
            found.checkpoint.leader
            if here.sees_processes_of(found.checkpoint.machine)
            else None,
        )
        for found in _readable_checkpoints(root)
    ]
    parts: dict[str, list[UnfinishedRun]] = {}
    for one in found:
        # the rank's part of a run: its other parts have the same id
        if one.record.part is not None:
            parts.setdefault(one.record.id, []).append(one)
    whole = [one for one in found if one.record.part is None]
    return [*whole, *map(_joined_running_parts, parts.values())] if parts else whole


def _joined_running_parts(unfinished_runs: list[UnfinishedRun]) -> UnfinishedRun:
    record = join_records([one.record for one in unfinished_runs])
    return UnfinishedRun(
        msgspec.structs.replace(record, missing=()),  # some have not begun
        unfinished_runs[0].host,
        max(one.seen for one in unfinished_runs),
        all(one.stale for one in unfinished_runs),
    )


def finalise_interrupted(
    root: str, here: MachineIdentity, proc_folder: str = "/"
) -> list[Record]:
    """Append the runs whose weigh died on this machine; return their records.

    If the store cannot be written, they are returned anyway, and remain for a later
    weigh. *proc_folder* is the folder that contains ``proc``.
    """
    ended = []
    for found in _readable_checkpoints(root):
        if _is_run_dead(found, here, proc_folder):
            record = _finalise_dead_run(root, found, here, proc_folder)
            if record is not None:
                ended.append(record)
    return ended


def _finalise_dead_run(
    root: str,
    found_checkpoint: _FoundCheckpoint,
    here: MachineIdentity,
    proc_folder: str,
) -> Record | None:
    record = _interrupted_record(found_checkpoint, here, proc_folder)
    try:
        # weigh may have been killed between its record and this file's removal
        written = _is_written(root, record, found_checkpoint.checkpoint.machine)
        if not written:
            append_record(root, record, here)
    except StoreError:
        return record
    with suppress(StoreError):
        remove_checkpoint(root, record.id, record.part)
    return None if written else record


def _interrupted_record(
    found_checkpoint: _FoundCheckpoint, here: MachineIdentity, proc_folder: str
) -> Record:
    checkpoint = found_checkpoint.checkpoint
    leader = checkpoint.leader
    if here.is_later_boot_of(checkpoint.machine):
        reason = "the machine was restarted while it ran"
    elif leader is not None and is_alive(leader, proc_folder):
        reason = f"weigh was killed; the command ran on as process {leader.pid}"
    else:
        reason = "weigh was killed before the command ended"
    return msgspec.structs.replace(
        checkpoint.record,
        state="INTERRUPTED",
        outcome=RunOutcome(
            reason, (f"last seen at {_utc_iso_text(found_checkpoint.seen)}",)
        ),
    )


def _is_run_dead(
    found_checkpoint: _FoundCheckpoint, here: MachineIdentity, proc_folder: str
) -> bool:
    checkpoint = found_checkpoint.checkpoint
    # a cloned node may look like this one before a restart: silence decides
    silent = time.time() - found_checkpoint.seen > STALE_AFTER
    return (silent and here.is_later_boot_of(checkpoint.machine)) or (
        here.sees_processes_of(checkpoint.machine)
        and not is_alive(checkpoint.weigh, proc_folder)
    )


def _is_written(root: str, record: Record, machine: MachineIdentity) -> bool:
    """Return whether weigh died after its record, before it removed the checkpoint."""
    mark = f'"id":"{record.id}"'.encode()
    return any(
        # the text first, as decoding is much slower
        mark in line and _is_line_of_record(line, record)
        for shard in readable_shards(root)
        if is_shard_of(os.path.basename(shard), machine)
        for line in shard_lines(shard)
    )


def _is_line_of_record(record_line: bytes, record: Record) -> bool:
    try:
        found = decode_record(record_line)
    except WeighError:
        return False
    return (found.id, found.part) == (record.id, record.part)


def _readable_checkpoints(root: str) -> list[_FoundCheckpoint]:
    folder = os.path.join(root, RUNNING)
    found = (
        _read_checkpoint(os.path.join(folder, name))
        for name in sorted_folder_names(folder)
    )
    return [one for one in found if one is not None]


def _read_checkpoint(path: str) -> _FoundCheckpoint | None:
    name = os.path.basename(path)
    if not name.endswith(".json") or not is_id(name.partition(".")[0]):
        return None
    try:
        with open(path, "rb", opener=only_regular) as file:
            seen = os.fstat(file.fileno()).st_mtime
            return _FoundCheckpoint(seen, _CHECKPOINTS.decode(file.read()))
    except (OSError, *UNREADABLE):
        return None  # just finished, or written by a newer weigh


def _checkpoint_path(folder: str, record_id: str, part_number: int | None) -> str:
    if not is_id(record_id):
        raise FormatError(f"not the id of a record: {record_id!r}")
    return os.path.join(folder, f"{_checkpoint_name(record_id, part_number)}.json")


def _temporary_path(folder: str, record_id: str, part_number: int | None) -> str:
    return os.path.join(folder, f".{_checkpoint_name(record_id, part_number)}.tmp")


def _checkpoint_name(record_id: str, part_number: int | None) -> str:
    return record_id if part_number is None else f"{record_id}.{part_number}"


def _utc_iso_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
