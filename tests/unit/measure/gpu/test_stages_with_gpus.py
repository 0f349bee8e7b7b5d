"""``weigh run FILE.toml`` beside the stub's cards: what each step held on them."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from nvml_script import GIB, Script

# a step plays that it holds so many GiB of card 0, and then lets go
HOLD = """
import os, sys, time
from nvml_script import play
held = int(sys.argv[1]) << 30
play(used=held, procs=f"{os.getpid()}:{held}")
time.sleep(0.6)
play(used=0, procs="")
time.sleep(0.3)
"""
STEPS = {"prepare": "0", "train": "3", "predict": "1"}


def write_steps(folder: Path) -> None:
    (folder / "hold.py").write_text(HOLD)
    text = ""
    for name, line in STEPS.items():
        held = shlex.join((sys.executable, "hold.py", line))
        run = held if line.isdecimal() else line
        text += f"[[stage]]\nname = {json.dumps(name)}\nrun = {json.dumps(run)}\n"
    (folder / "steps.toml").write_text(text)


def peaks(record: dict[str, Any]) -> dict[str, list[int]]:
    phases = record["phases"]
    return {one["name"]: [gpu["peak"] for gpu in one["gpus"]] for one in phases}


def test_each_step_states_what_it_held_of_each_gpu(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(2)
    write_steps(tmp_path)
    done = script.weigh(tmp_path, "run", "steps.toml", "-o", "record.json")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    held = {"prepare": [0, 0], "train": [3 * GIB, 0], "predict": [GIB, 0]}
    assert peaks(record) == held
    train = record["phases"][1]["gpus"][0]
    assert (train["before"], train["after"]) == (0, 0)
    assert "3.00 GiB" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="weigh exec needs Linux")
def test_steps_in_a_task_of_exec_have_them_as_well(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(1)
    write_steps(tmp_path)
    line = shlex.join((sys.executable, "-m", "weigh", "run", "steps.toml"))
    (tmp_path / "tasks.txt").write_text(f"{line}\n")
    done = script.weigh(tmp_path, "exec", "tasks.txt")
    assert done.returncode == 0, done.stderr
    (shard,) = (tmp_path / "store").glob("records/**/*.jsonl")
    record = json.loads(shard.read_text())
    assert peaks(record)["train"] == [3 * GIB]
