"""Runs in progress: ``running/<id>.json``, replaced by rename.

If weigh is killed, its checkpoint stays. The next weigh on the same machine appends
it as an INTERRUPTED record, and removes the file. Where two do so at once, both lines
have the id of the run, so it is one record.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from weigh.errors import FormatError, StoreError, WeighError
from weigh.joined_ranks import join_records
from weigh.model.record import Record, RunOutcome
from weigh.regular_file import only_regular
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    is_alive,
    is_id,
)
from weigh.store.lines import UNREADABLE, decode_record, encode_record
from weigh.store.location import make_folder, replace_whole_file
from weigh.store.shards import (
    append_record,
    is_shard_of,
    shard_lines,
    sorted_folder_names,
    store_shards,
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


_CHECKPOINTS = msgspec.json.Decoder(RunCheckpoint)


def save_checkpoint(root: str, checkpoint: RunCheckpoint) -> None:
    """Write or replace the checkpoint of a run.

    Raises:
        StoreError: it cannot be written.
    """
    record = checkpoint.record
    path = _checkpoint_path(make_folder(root, RUNNING), record.id, record.part)
    try:
        replace_whole_file(path, encode_record(checkpoint))
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
    path = _checkpoint_path(os.path.join(root, RUNNING), record_id, part_number)
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
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
    found: list[UnfinishedRun] = []
    for seen, saved in _readable_checkpoints(root):
        is_here = here.sees_processes_of(saved.machine)
        is_stale = not is_here and current_time - seen > STALE_AFTER
        leader = saved.leader if is_here else None
        run = UnfinishedRun(saved.record, saved.machine.host, seen, is_stale, leader)
        found.append(run)
    parts: dict[str, list[UnfinishedRun]] = {}
    for one in found:
        # the rank's part of a run: its other parts have the same id
        if one.record.part is not None:
            parts.setdefault(one.record.id, []).append(one)
    whole = [one for one in found if one.record.part is None]
    return [*whole, *map(_joined_running_parts, parts.values())]


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
    for seen, saved in _readable_checkpoints(root):
        # a cloned node may look like this one before a restart: silence decides
        is_silent = time.time() - seen > STALE_AFTER
        is_dead = (is_silent and here.is_later_boot_of(saved.machine)) or (
            here.sees_processes_of(saved.machine)
            and not is_alive(saved.weigh, proc_folder)
        )
        if not is_dead:
            continue
        record = _interrupted_record(seen, saved, here, proc_folder)
        try:
            # weigh may have been killed between its record and this file's removal
            is_written = _is_written(root, record, saved.machine)
            if not is_written:
                append_record(root, record, here)
            remove_checkpoint(root, record.id, record.part)
        except StoreError:
            is_written = False
        if not is_written:
            ended.append(record)
    return ended


def _interrupted_record(
    seen: float, saved: RunCheckpoint, here: MachineIdentity, proc_folder: str
) -> Record:
    leader = saved.leader
    if here.is_later_boot_of(saved.machine):
        reason = "the machine was restarted while it ran"
    elif leader is not None and is_alive(leader, proc_folder):
        reason = f"weigh was killed; the command ran on as process {leader.pid}"
    else:
        reason = "weigh was killed before the command ended"
    last_sign = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen))
    outcome = RunOutcome(reason, (f"last seen at {last_sign}",))
    return msgspec.structs.replace(saved.record, state="INTERRUPTED", outcome=outcome)


def _is_written(root: str, record: Record, machine: MachineIdentity) -> bool:
    """Return whether weigh died after its record, before it removed the checkpoint."""
    mark = f'"id":"{record.id}"'.encode()
    return any(
        # the text first, as decoding is much slower
        mark in line and _is_line_of_record(line, record)
        for shard in store_shards(root)[0]
        if is_shard_of(os.path.basename(shard), machine)
        for line in shard_lines(shard)
    )


def _is_line_of_record(record_line: bytes, record: Record) -> bool:
    try:
        found = decode_record(record_line)
    except WeighError:
        return False
    return (found.id, found.part) == (record.id, record.part)


def _readable_checkpoints(root: str) -> Iterator[tuple[float, RunCheckpoint]]:
    """Yield when each checkpoint was written, and what it has."""
    folder = os.path.join(root, RUNNING)
    for name in sorted_folder_names(folder):
        if not name.endswith(".json") or not is_id(name.partition(".")[0]):
            continue
        path = os.path.join(folder, name)
        # one that cannot be read: just finished, or written by a newer weigh
        with suppress(OSError, *UNREADABLE), open(path, "rb", opener=only_regular) as f:
            yield os.fstat(f.fileno()).st_mtime, _CHECKPOINTS.decode(f.read())


def _checkpoint_path(folder: str, record_id: str, part_number: int | None) -> str:
    if not is_id(record_id):
        raise FormatError(f"not the id of a record: {record_id!r}")
    part = "" if part_number is None else f".{part_number}"
    return os.path.join(folder, f"{record_id}{part}.json")
