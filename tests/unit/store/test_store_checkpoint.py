import os
import signal
import subprocess
import sys
from collections import Counter
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from some_records import some_record
from written_programs import room_for

from weigh.errors import FormatError, StoreError
from weigh.store.checkpoint import (
    RunCheckpoint,
    finalise_interrupted,
    remove_checkpoint,
    runs_in_progress,
    save_checkpoint,
)
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    is_alive,
    process_identity,
    this_machine,
)
from weigh.store.index import read_index
from weigh.store.shards import shard_lines, store_shards

HERE = this_machine()
GONE = ProcessIdentity(pid=2**22 + 1, start_time=1)  # above the kernel's highest number


def me() -> ProcessIdentity:
    return process_identity(os.getpid())


def checkpoint_of(
    record_id: str = "7f3a91c0d2e4",
    *,
    weigh: ProcessIdentity = GONE,
    leader: ProcessIdentity | None = None,
    machine: MachineIdentity = HERE,
) -> RunCheckpoint:
    record = some_record(record_id, state="RUNNING")
    return RunCheckpoint(record=record, machine=machine, weigh=weigh, leader=leader)


def files_in(root: Path) -> list[str]:
    return sorted(os.listdir(root / "running"))


def written(root: Path) -> list[str]:
    return [
        line.decode().split('"id":"')[1][:12]
        for shard in store_shards(str(root))[0]
        for line in shard_lines(shard)
        if not line.isspace()
    ]


def test_a_run_in_progress_is_seen_and_then_gone(tmp_path: Path) -> None:
    save_checkpoint(str(tmp_path), checkpoint_of(weigh=me()))
    assert finalise_interrupted(str(tmp_path), HERE) == []
    assert [one.record.state for one in runs_in_progress(str(tmp_path), HERE, 0)] == [
        "RUNNING"
    ]
    for _ in range(2):  # finishing twice is no error
        remove_checkpoint(str(tmp_path), "7f3a91c0d2e4")
    assert runs_in_progress(str(tmp_path), HERE, 0) == []


def test_a_killed_weigh_leaves_what_was_seen_as_interrupted(tmp_path: Path) -> None:
    code = (
        "import os, signal; from test_store_checkpoint import *;"
        f"me = process_identity(os.getpid()); folder = {str(tmp_path)!r};"
        "save_checkpoint(folder, checkpoint_of(weigh=me));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    finalise_interrupted(str(tmp_path), HERE)
    [entry] = read_index(str(tmp_path)).entries
    assert (entry.head.id, entry.head.state) == ("7f3a91c0d2e4", "INTERRUPTED")
    assert entry.head.usage is not None
    assert files_in(tmp_path) == []


def _finalise_together(root: str, together: Barrier) -> None:
    together.wait()
    finalise_interrupted(root, HERE)


def test_of_many_finalising_at_once_none_loses_or_doubles_a_run(
    tmp_path: Path,
) -> None:
    ids = [f"{number:012x}" for number in range(40)]
    for record_id in ids:
        save_checkpoint(str(tmp_path), checkpoint_of(record_id))
    fork = get_context("fork")
    together = fork.Barrier(4)
    arguments = (str(tmp_path), together)
    rivals = [fork.Process(target=_finalise_together, args=arguments) for _ in range(4)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    # several lines of one id are one record
    entries = read_index(str(tmp_path)).entries
    assert Counter(entry.head.id for entry in entries) == Counter(ids)
    assert files_in(tmp_path) == []


def test_a_store_that_cannot_be_written_keeps_the_checkpoint_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise StoreError("disk full")

    save_checkpoint(str(tmp_path), checkpoint_of())
    monkeypatch.setattr("weigh.store.checkpoint.append_record", full)
    [record] = finalise_interrupted(str(tmp_path), HERE)
    assert record.state == "INTERRUPTED"
    assert files_in(tmp_path) == ["7f3a91c0d2e4.json"]


def test_a_write_that_fails_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    save_checkpoint(str(tmp_path), checkpoint_of(weigh=me()))
    too_large = pytest.raises(StoreError, match=r"7f3a91c0d2e4\.json: File too large")
    with too_large, room_for(50):
        save_checkpoint(str(tmp_path), checkpoint_of(weigh=me()))
    assert len(runs_in_progress(str(tmp_path), HERE, 0)) == 1
    assert files_in(tmp_path) == ["7f3a91c0d2e4.json"]


def test_an_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not the id"):
        save_checkpoint(str(tmp_path), checkpoint_of("../../passwd"))


def test_a_process_is_alive_until_it_is_reaped_or_a_zombie() -> None:
    child = subprocess.Popen(["sleep", "60"])
    named = process_identity(child.pid)
    before = is_alive(named)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    zombie = is_alive(named)
    child.wait()
    assert (before, zombie, is_alive(named)) == (True, False, False)


def test_a_hidden_process_whose_number_is_in_use_counts_as_alive(
    tmp_path: Path,
) -> None:
    assert is_alive(ProcessIdentity(os.getpid(), 1), str(tmp_path))


def test_a_name_with_parentheses_does_not_shift_the_start_time(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "42"
    folder.mkdir(parents=True)
    fields = " ".join(str(number) for number in range(4, 53))
    (folder / "stat").write_text(f"42 (a) b) (c) S {fields}\n")
    assert process_identity(42, str(tmp_path)) == ProcessIdentity(42, 22)
