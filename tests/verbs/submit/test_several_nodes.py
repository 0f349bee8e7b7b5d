"""One task on several nodes of a real Slurm, or on several GPUs of one."""

import json
import shlex
import sys
from collections import Counter

import pytest
from following import Weigh
from rigs import WAIT_FOR_AGENTS

pytestmark = pytest.mark.slurm

MEETING = '"$SLURMD_NODENAME $PET_NODE_RANK $PET_NNODES $MASTER_ADDR $MASTER_PORT"'


def test_one_record_has_the_nodes_of_a_command_and_the_memory_of_the_largest(
    real: Weigh,
) -> None:
    hold = "held = bytearray(150 << 20); import time; time.sleep(2)"
    own = (sys.executable, "-c", hold)
    job = real.submit("--nodes", "2", "--memory", "400M", "--", *own)
    real.wait_for(job, lambda one: one["elements"] == {"COMPLETED": 1})

    (row,) = json.loads(real("report", job, "--json")[1])["rows"]
    assert 150 << 20 < row["memory"] < 220 << 20
    found = [one["id"] for one in json.loads(real("records", "--json")[1])["records"]]
    records = [json.loads(real("records", "export", one)[1]) for one in found]
    # beside that of the srun which starts it on both nodes
    (of_task,) = (one for one in records if one["command"][-1][:4] != "srun")
    assert [node["ranks"] for node in of_task["nodes"]] == [1, 1]


def test_a_task_on_two_gpus_is_given_both(real: Weigh) -> None:
    words = ("--gpu", "v100", "--gpus", "2")
    made = real.plan('echo "$CUDA_VISIBLE_DEVICES" >seen', words=words)

    assert real.finish(real.submit(made)) == {"COMPLETED": 1}
    seen = (real.folder / "seen").read_text().strip().split(",")
    assert len(set(seen)) == 2


def test_each_node_runs_the_task_and_what_failed_on_one_runs_again_on_both(
    real: Weigh,
) -> None:
    # the one that fails ends the other
    both = "until [ -s at_0 ] && [ -s at_1 ]; do sleep 0.1; done"
    once = f'[ ! -e broken ] || {{ {both}; exit "$SLURM_NODEID"; }}'
    line = f"echo {MEETING} >at_$SLURM_NODEID; {once}; touch again_$SLURM_NODEID"
    (real.folder / "broken").touch()
    job = real.submit(real.plan(line, words=("--nodes", "2")))
    assert real.finish(job) == {"FAILED": 1}
    first, second = ((real.folder / f"at_{n}").read_text().split() for n in (0, 1))
    assert {first[0], second[0]} <= {"cn1", "cn2", "cn3"}
    assert first[0] != second[0]
    assert (first[1:3], second[1:3]) == (["0", "2"], ["1", "2"])
    assert first[3:] == second[3:]  # where to meet
    assert int(first[4]) > 1023

    (real.folder / "broken").unlink()
    real.resume(job)

    assert real.finish(job) == {"COMPLETED": 1}
    assert (real.folder / "again_1").exists()


def test_an_element_has_the_ranks_that_its_task_starts(real: Weigh) -> None:
    own = (
        "srun -n4 bash -c 'echo $SLURMD_NODENAME $OMP_NUM_THREADS >rank_$SLURM_PROCID'"
    )
    made = real.plan(own, words=("--nodes", "2"))
    job = real.submit(made)

    assert real.finish(job) == {"COMPLETED": 1}
    ranks = [(real.folder / f"rank_{n}").read_text().split() for n in range(4)]
    assert sorted(Counter(node for node, _ in ranks).values()) == [2, 2]
    assert {threads for _, threads in ranks} == {"1"}


def test_what_was_measured_on_ranks_is_planned_and_submitted_as_ranks(
    real: Weigh,
) -> None:
    hold = f"{WAIT_FOR_AGENTS}\nheld = bytearray(60 << 20)\nwait_for_agents()\n"
    (real.folder / "hold.py").write_text(hold)
    own = ("srun", "-n4", sys.executable, "hold.py")
    first = ("--memory", "400M", "--cpus", "2", "--time", "5m")
    job = real.submit("--nodes", "2", *first, "--", *own)
    # the record is written after the task counts as done
    real.wait_for(job, lambda one: one["elements"] == {"COMPLETED": 1})

    (real.folder / "p.txt").write_text(f"{shlex.join(own)}\n")
    code, out, err = real("plan", "p.txt")
    assert code == 0, err
    assert "4 ranks on 2 nodes with 2 CPUs" in out
    again = real.submit("plan/p")
    assert real.finish(again) == {"COMPLETED": 1}
