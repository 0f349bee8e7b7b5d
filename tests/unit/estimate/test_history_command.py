import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from called_weigh import CalledWeigh
from some_runs import a_peak, a_run, keep_runs
from transcript import check_transcript, with_compact_documents

from weigh.model.record import Allocation, RecordedHost, Usage
from weigh.units import GIB, MIB

Keep = Callable[..., None]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Keep one run more: a tagger whose memory is a line in its batch size."""
    numbers = count()

    def keep_it(batch: int = 50, memory: int | None = None, **known: object) -> None:
        number = next(numbers)
        usual = {
            "id": f"{number + 1:012x}",
            "label": "tag",
            "parameters": {"batch_size": batch},
            "host": RecordedHost(name="node07", system="Linux"),
            "started": f"2026-11-21T10:{number // 60:02d}:{number % 60:02d}Z",
        }
        usage = {"wall_time": 600.0, "cpus_used": 1.0}
        held = (900 + 5 * batch) * MIB if memory is None else memory
        command = f"python tag.py alice.txt {batch}"
        keep_runs(tmp_path, a_run(command, held, **usage | usual | known))

    return keep_it


NODE = RecordedHost(name="node07", system="Linux", memory=6 * GIB)
GRANTED = Allocation(scheduler="slurm", memory=4 * GIB)
NAMED_AND_NOT: list[dict[str, Any]] = [{}, {"parameters": {}}]


def runs_of(situation: str) -> list[dict[str, Any]]:
    """Return the runs of a situation of the transcript, in their order."""
    if situation.startswith("batches "):
        sizes = [int(word) for word in situation.split() if word.isdigit()]
        label = None if "without a label" in situation else "tag"
        return [{"batch": size, "label": label} for size in sizes]
    situations: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "three alike": [{}] * 3,
        "then one that ran out of memory": [
            *[{}] * 3,
            {"state": "OUT_OF_MEMORY", "exit_code": 137, "allocation": GRANTED},
        ],
        "then one that ran out of time": [
            *[{}] * 3,
            {"state": "TIMEOUT", "usage": Usage(3600.0, peak_memory=a_peak(GIB))},
        ],
        "then one larger than half a node": [
            *[{"host": NODE, "allocation": Allocation(scheduler="slurm")}] * 2,
            {"allocation": Allocation(scheduler="slurm")},
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
            {"usage": Usage(600.0)},
            *[{}] * 3,
        ],
        "seeds": [{"parameters": {"batch": 50 * n, "seed": n}} for n in (1, 2, 3, 4)],
        "one that failed at once": [
            {
                "state": "FAILED",
                "exit_code": 1,
                "usage": Usage(wall_time=0.2, peak_memory=a_peak(10 * MIB)),
            }
        ],
        "memory of nought": [*[{}] * 3, {"memory": 0}],
    }
    return situations[situation]


def test_what_history_requests_is_as_it_was_reviewed(
    weigh: CalledWeigh, keep: Keep, tmp_path: Path
) -> None:
    def given(situation: str) -> None:
        shutil.rmtree(tmp_path / ".weigh", ignore_errors=True)
        for run in runs_of(situation):
            keep(**run)

    path = Path(__file__).with_name("history.transcript")
    in_folder = {str(tmp_path): "FOLDER"}
    check_transcript(path, with_compact_documents(weigh), in_folder, given)

    notes = [row for row in path.read_text().splitlines() if row.startswith("2> # ")]
    assert max(map(len, notes)) <= len("2> ") + 80


def test_each_run_that_ends_sharpens_the_next(weigh: CalledWeigh, keep: Keep) -> None:
    def memory() -> int:
        out = weigh("request", "--from", "history", "--json")[1]
        return int(json.loads(out)["memory"])

    for batch in (50, 100, 75):
        keep(batch)
    before = memory()
    keep(100, memory=3 * GIB)

    assert memory() > max(before, 3 * GIB)
