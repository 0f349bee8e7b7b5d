"""``weigh run`` around srun on a real Slurm: every node and rank in one record."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

MIB = 1 << 20
# each rank holds a different size, and says nothing
HOLD = """
import os, sys, time
first, more, seconds = (float(word) for word in sys.argv[1:])
rank = int(os.environ.get("SLURM_PROCID", 0))
held = bytearray(int((first + more * rank) * (1 << 20)))
for at in range(0, len(held), 4096):
    held[at] = 1
time.sleep(seconds)
"""
Json = dict[str, Any]
Job = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def job(slurm: Mapping[str, str], tmp_path: Path) -> Job:
    """Return the function that runs a bash script as a job, to its end."""
    ours = ("SLURM_", "WEIGH_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    env |= {**slurm, "WEIGH_DIR": str(tmp_path / "store"), "PYTHON": sys.executable}
    (tmp_path / "hold.py").write_text(HOLD)

    def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "job.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        flags = ("--wait", "--output=out", "--error=err", *options)
        return subprocess.run(
            ["sbatch", *flags, path],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


TWO_BY_TWO = ("--nodes=2", "--ntasks-per-node=2", "--mem=1500M")
WEIGH = "$PYTHON -m weigh run -o record.json --"


def record(folder: Path) -> Json:
    found: Json = json.loads((folder / "record.json").read_text())
    return found


@pytest.mark.parametrize(
    "command",
    ["srun -n4 $PYTHON hold.py 60 40 1.5", "bash -c 'srun $PYTHON hold.py 60 40 1.5'"],
    ids=["srun", "in a script"],
)
def test_one_record_has_all_nodes_and_ranks(
    command: str, job: Job, tmp_path: Path
) -> None:
    done = job(f"{WEIGH} {command}", *TWO_BY_TWO)
    said = (tmp_path / "err").read_text()
    assert done.returncode == 0, said
    found = record(tmp_path)
    assert [(rank["rank"], rank["step"]) for rank in found["ranks"]] == [
        (number, "0") for number in range(4)
    ]
    for number, rank in enumerate(found["ranks"]):
        held = (60 + 40 * number) * MIB
        assert held < rank["peak_memory"] < held + 14 * MIB  # Python itself
    assert all(node["final"] for node in found["nodes"])
    assert [node["ranks"] for node in found["nodes"]] == [2, 2]
    peaks = [node["peak_memory"]["value"] for node in found["nodes"]]
    for peak, held in zip(peaks, (160, 320), strict=True):
        assert held * MIB < peak < (held + 45) * MIB
    assert found["usage"]["peak_memory"]["value"] == max(peaks)
    assert found["usage"]["total_memory"] == sum(peaks)
    assert found["missing"] == []
    assert "--nodes=2 --ntasks-per-node=2 --mem=" in said
    assert "--ntasks=4 --mem-per-cpu=" in said
