import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called_weigh import called_here, work_alone_in
from sized_runs import peak
from transcript import check_transcript, with_compact_documents

from weigh.cli.main import run_cli
from weigh.model.record import (
    Allocation,
    Record,
    RecordedHost,
    Usage,
)
from weigh.store import identity, shards
from weigh.units import GIB, MIB

Weigh = Callable[..., tuple[int, str, str]]
Keep = Callable[..., Record]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Keep one run more: a tagger whose memory is a line in its batch size."""
    kept: list[Record] = []

    def keep_it(batch: int = 50, memory: int | None = None, **other: object) -> Record:
        held = (900 + 5 * batch) * MIB if memory is None else memory
        record = Record(
            id=f"{len(kept) + 1:012x}",
            label="tag",
            command=("python", "tag.py", "alice.txt", str(batch)),
            parameters={"batch_size": batch},
            host=RecordedHost(name="node07", system="Linux"),
            started=f"2026-11-21T10:{len(kept) // 60:02d}:{len(kept) % 60:02d}Z",
            state="COMPLETED",
            exit_code=0,
            usage=Usage(wall_time=600.0, cpus_used=1.0, peak_memory=peak(held)),
        )
        record = msgspec.structs.replace(record, **other)
        shards.append_record(str(tmp_path / ".weigh"), record, identity.this_machine())
        kept.append(record)
        return record

    return keep_it


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Weigh:
    """``weigh request --from history`` in a folder of its own."""
    work_alone_in(tmp_path, monkeypatch)

    return called_here(capsys, "request", "--from", "history")


def memory_of(out: str) -> int:
    return int(json.loads(out)["memory"])


NODE = RecordedHost(name="node07", system="Linux", memory=6 * GIB)
GRANTED = Allocation(scheduler="slurm", memory=4 * GIB)
NAMED_AND_NOT: list[dict[str, Any]] = [{}, {"parameters": {}}]


def runs_of(situation: str) -> list[dict[str, Any]]:
    """Return the runs of a situation of the transcript, in their order."""
    if situation.startswith("batches "):
        return [{"batch": int(size)} for size in situation.split()[1:]]
    situations: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "three alike": [{}] * 3,
        "then one that ran out of memory": [
            *[{}] * 3,
            {"state": "OUT_OF_MEMORY", "exit_code": 137, "allocation": GRANTED},
        ],
        "then one that ran out of time": [
            *[{}] * 3,
            {"state": "TIMEOUT", "usage": Usage(3600.0, peak_memory=peak(GIB))},
        ],
        "then one larger than half a node": [
            *[{"host": NODE, "allocation": Allocation(scheduler="slurm")}] * 3,
            {"state": "OUT_OF_MEMORY", "memory": 4 * GIB},
        ],
        "another command under the label": [
            {"batch": 300, "command": ("python", "train.py", "300")},
            *[{}] * 3,
        ],
        "a parameter that is a word": [
            {"memory": size * GIB, "parameters": {"model": model}}
            for size, model in ((1, "small"), (8, "large")) * 3
        ],
        "a parameter that half of them lack": [
            {"batch": batch, **more}
            for batch in (50, 100, 150, 200)
            for more in NAMED_AND_NOT
        ],
        "one that failed": [
            {"memory": 30 * GIB, "state": "FAILED", "exit_code": 1},
            *[{}] * 3,
        ],
        "memory of nought": [*[{}] * 3, {"memory": 0}],
    }
    return situations[situation]


def test_what_history_requests_is_as_it_was_reviewed(
    weigh: Weigh, keep: Keep, tmp_path: Path
) -> None:
    def given(situation: str) -> None:
        shutil.rmtree(tmp_path / ".weigh", ignore_errors=True)
        for run in runs_of(situation):
            keep(**run)

    path = Path(__file__).with_name("history.transcript")
    in_folder = {str(tmp_path): "FOLDER"}

    called = with_compact_documents(lambda _verb, *words: weigh(*words))
    check_transcript(path, called, in_folder, given)

    notes = [row for row in path.read_text().splitlines() if row.startswith("2> # ")]
    assert max(map(len, notes)) <= len("2> ") + 80


def test_each_run_that_ends_sharpens_the_next(weigh: Weigh, keep: Keep) -> None:
    for batch in (50, 100, 75):
        keep(batch)
    before = memory_of(weigh("--json")[1])
    keep(100, memory=3 * GIB)

    assert memory_of(weigh("--json")[1]) > max(before, 3 * GIB)


def test_a_seed_is_no_size_of_a_run(weigh: Weigh, keep: Keep) -> None:
    for seed in range(4):
        keep(parameters={"batch": 50 * (seed + 1), "seed": seed + 1})

    assert "seed=" not in "".join(weigh()[1:])


def test_what_belongs_to_history_is_refused_without_it(
    weigh: Weigh, keep: Keep, capsys: pytest.CaptureFixture[str]
) -> None:
    keep()
    assert weigh()[0] == 0

    code = run_cli(["request", "--param", "n=1"], [])

    assert code == 2
    assert "--param has no effect here: add --from history" in (capsys.readouterr().err)


def test_runs_that_failed_at_once_are_no_history(weigh: Weigh, keep: Keep) -> None:
    at_once = Usage(wall_time=0.2, peak_memory=peak(10 * MIB))
    keep(state="FAILED", exit_code=1, usage=at_once)

    code, out, err = weigh()

    assert (code, out) == (2, "")
    assert "it failed within its first second (fix it first)" in err
