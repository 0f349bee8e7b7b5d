"""The GPU memory of each rank, read on the node where the rank runs."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from called_weigh import called_apart
from nvml_script import GIB, Script
from rigs import WAIT_FOR_AGENTS, sbatch_and_wait

# each rank plays that it takes memory of one GPU, the first one GiB, the second two
USES_A_GPU = f"""{WAIT_FOR_AGENTS}
import os, sys, time
from nvml_script import play, wait_until_read
rank = int(os.environ["SLURM_PROCID"])
if sys.argv[1:]:
    wait_for_agents()
held = (rank + 1) << 30
play(card=rank, used=held, procs=f"{{os.getpid()}}:{{held}}")
# one weigh or agent on each node, and weigh around srun; each as long as all watch
wait_until_read(card=rank, watchers=2 + len(sys.argv[1:]))
open(f"read.{{rank}}", "w").close()
while not all(os.path.exists(f"read.{{other}}") for other in range(2)):
    time.sleep(0.02)
"""
RANKS = ("--gres=gpu:2", "--nodes=2", "--ntasks-per-node=1", "--mem=300M")


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("doors", "word"),
    [
        pytest.param("$PYTHON -m weigh run -o r.json -- srun", " watched", id="around"),
        pytest.param(
            "srun $PYTHON -m weigh run --",
            "",
            id="each",
            marks=pytest.mark.integrations,
        ),
    ],
)
def test_each_rank_has_its_own_memory_on_the_gpus_of_its_node(
    doors: str, word: str, script: Script, slurm: Mapping[str, str], tmp_path: Path
) -> None:
    script.gpus(2)
    (tmp_path / "rank.py").write_text(USES_A_GPU)
    # all nodes of this rig are one machine, with the same two GPUs
    body = f"export CUDA_VISIBLE_DEVICES=0,1\n{doors} $PYTHON rank.py{word}"
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{body}\n")
    env = {k: v for k, v in script.environment().items() if not k.startswith("SLURM_")}
    own = {"WEIGH_DIR": str(tmp_path / "store"), "PYTHON": sys.executable}
    files = ("--output=out", "--error=err")
    own_env = env | dict(slurm) | own
    done = sbatch_and_wait(*files, *RANKS, "job.sh", cwd=tmp_path, env=own_env)
    assert done.returncode == 0, (tmp_path / "err").read_text()
    exported = called_apart(tmp_path, "records", "export").stdout
    (record,) = map(json.loads, exported.splitlines())
    peaks = [[gpu["peak"] for gpu in rank["gpus"]] for rank in record["ranks"]]
    assert peaks == [[GIB], [2 * GIB]]
    assert [gpu["process_peak_memory"] for gpu in record["usage"]["gpus"]] == [
        GIB,
        2 * GIB,
    ]
