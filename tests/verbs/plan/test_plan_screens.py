"""All that ``weigh plan`` and lines near it print."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from called_weigh import CalledWeigh
from planning import gpu_run
from some_runs import a_peak, keep_runs
from transcript import check_transcript, file_writer

from weigh.flow.submit import job_request
from weigh.model.record import Record
from weigh.units import GIB, parse_size

HERE = Path(__file__).parent
BAD = {
    "empty": b"",
    "comment": b"# only a comment\n",
    "script": b"#!/bin/bash\npython a.py\n",
    "slurm": b"python a.py\n#SBATCH --mem=8G\n",
    "gridengine": b"#$ -l h_rt=1:0:0\npython a.py\n",
    "quote": b"python a.py\npython 'b.py\n",
    "nul": b"python a.py\npython \0b.py\n",
}


def test_plans_print_what_was_reviewed(
    weigh: CalledWeigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_request, "_size_of_this_machine", lambda: (12, 64 * GIB))
    (tmp_path / "weigh.toml").write_text('[gpus]\nbig = "200GiB"\n')

    def given(words: str) -> None:
        if words == "anew":
            shutil.rmtree(tmp_path / ".weigh")
        elif words.startswith("run "):
            keep_runs(tmp_path, run_of(words.removeprefix("run ").split()))
        else:
            file_writer(tmp_path)(words)

    path = HERE / "plans.transcript"
    check_transcript(path, weigh, given=given)

    assert not (tmp_path / "plan").exists()
    printed = (
        row.removeprefix("2> ")
        for row in path.read_text().splitlines()
        if not row.startswith(("#", "$", "2> weigh: "))
    )
    assert max(map(len, printed)) <= 80


def run_of(words: list[str]) -> Record:
    """Return a record of `[failed] [NAME=FIGURE] [BYTES of each GPU] COMMAND`."""
    figures: dict[str, str] = {}
    held = []
    while "=" in words[0] or words[0][0].isdigit() or words[0] == "failed":
        name, _, figure = words.pop(0).partition("=")
        if name[0].isdigit():
            held.append(parse_size(name))
        figures[name] = figure
    busy, cpus = figures.get("busy"), figures.get("cpus")
    known: dict[str, Any] = {
        "wall_time": float(figures.get("wall", 3000)),
        "cpus_used": float(cpus) if cpus else None,
        "peak_memory": a_peak(parse_size(figures.get("peak", "1GiB"))),
    }
    if "failed" in figures:
        known |= {"state": "FAILED", "exit_code": 2, "label": "failed", "id": "a" * 12}
    return gpu_run(" ".join(words), *held, busy=float(busy) if busy else None, **known)


def test_a_mistake_is_one_line_with_the_way_out(
    weigh: CalledWeigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "plan.json").write_text("{}")
    for name in ("run.py", "run.R", "tasks.tsv", "tasks.txt.joblog"):
        (tmp_path / name).write_text("true\n")
    for name, content in BAD.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "solve").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    folder = {str(tmp_path): "FOLDER", tmp_path.name: "FOLDER"}

    check_transcript(HERE / "mistakes.transcript", weigh, folder)

    mistakes = (HERE / "mistakes.transcript").read_text().split("\n$ weigh ")[1:]
    assert all(one.count("\n2> ") == one.count("\n[") == 1 for one in mistakes)
    assert not (tmp_path / "plan").exists()


def test_a_comparison_is_one_json_document(weigh: CalledWeigh) -> None:
    said = ("--gpu-memory", "2.3GiB", "--memory", "1GiB", "--time", "5h", "--json")
    document = json.loads(weigh("plan", "tasks.txt", "--gpu", "T4,V100-32GB", *said)[1])
    assert document["schema"] == "weigh.plan-comparison/1"
    assert [plan["card"]["name"] for plan in document["plans"]] == ["T4", "V100-32GB"]
