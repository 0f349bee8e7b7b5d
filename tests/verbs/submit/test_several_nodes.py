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


@pytest.fixture
def weigh(real: Weigh) -> Weigh:
    return real


def plan(weigh: Weigh, *lines: str, options: tuple[str, ...]) -> str:
    (weigh.folder / "p.txt").write_text("".join(f"{line}\n" for line in lines))
    said = ("--memory", "100M", "--cpus", "1", "--time", "5m")
    code, _, err = weigh("plan", "p.txt", *said, *options)
    assert code == 0, err
    return "plan/p"


def test_each_node_runs_the_task_and_knows_where_to_meet(weigh: Weigh) -> None:
    made = plan(weigh, f"echo {MEETING} >at_$SLURM_NODEID", options=("--nodes", "2"))

    assert weigh.finish(weigh.submit(made)) == {"COMPLETED": 1}

    first, second = ((weigh.folder / f"at_{n}").read_text().split() for n in (0, 1))
    assert {first[0], second[0]} <= {"cn1", "cn2", "cn3"}
    assert first[0] != second[0]
    assert (first[1:3], second[1:3]) == (["0", "2"], ["1", "2"])
    assert first[3:] == second[3:]
    assert int(first[4]) > 1023


def test_the_nodes_of_a_command_are_in_one_record_of_it(weigh: Weigh) -> None:
    job = weigh.submit("--nodes", "2", "--memory", "100M", "--", "sleep", "0.3")
    weigh.wait_for(job, lambda one: one["elements"] == {"COMPLETED": 1})

    _, out, _ = weigh("records", "--json")
    found = [one["id"] for one in json.loads(out)["records"]]
    records = [json.loads(weigh("records", "export", one)[1]) for one in found]
    (own,) = (one for one in records if one["command"] == ["bash", "-c", "sleep 0.3"])
    assert [node["ranks"] for node in own["nodes"]] == [1, 1]


def test_the_memory_of_a_task_is_that_of_its_largest_node(weigh: Weigh) -> None:
    hold = "held = bytearray(150 << 20); import time; time.sleep(2)"
    own = ("srun", "--ntasks-per-node=1", sys.executable, "-c", hold)
    job = weigh.submit("--nodes", "2", "--memory", "400M", "--", *own)
    weigh.wait_for(job, lambda one: one["elements"] == {"COMPLETED": 1})

    _, out, _ = weigh("report", job, "--json")
    (row,) = json.loads(out)["rows"]
    assert 150 << 20 < row["memory"] < 220 << 20


def test_a_task_on_two_gpus_is_given_both(weigh: Weigh) -> None:
    made = plan(
        weigh,
        'echo "$CUDA_VISIBLE_DEVICES" >seen',
        options=("--gpu", "v100", "--gpus", "2"),
    )

    assert weigh.finish(weigh.submit(made)) == {"COMPLETED": 1}
    seen = (weigh.folder / "seen").read_text().strip().split(",")
    assert len(set(seen)) == 2


def test_what_failed_on_one_of_two_nodes_is_run_again_on_both(weigh: Weigh) -> None:
    once = '[ ! -e broken ] || exit "$SLURM_NODEID"; touch again_$SLURM_NODEID'
    (weigh.folder / "broken").touch()
    job = weigh.submit(plan(weigh, once, options=("--nodes", "2")))
    assert weigh.finish(job) == {"FAILED": 1}

    (weigh.folder / "broken").unlink()
    weigh.resume(job)

    assert weigh.finish(job) == {"COMPLETED": 1}
    assert (weigh.folder / "again_1").exists()


def test_an_element_has_the_ranks_that_its_task_starts(weigh: Weigh) -> None:
    own = (
        "srun -n4 bash -c 'echo $SLURMD_NODENAME $OMP_NUM_THREADS >rank_$SLURM_PROCID'"
    )
    made = plan(weigh, own, options=("--nodes", "2"))
    job = weigh.submit(made)

    assert weigh.finish(job) == {"COMPLETED": 1}
    ranks = [(weigh.folder / f"rank_{n}").read_text().split() for n in range(4)]
    assert sorted(Counter(node for node, _ in ranks).values()) == [2, 2]
    assert {threads for _, threads in ranks} == {"1"}


def test_what_was_measured_on_ranks_is_planned_and_submitted_as_ranks(
    weigh: Weigh,
) -> None:
    hold = f"{WAIT_FOR_AGENTS}\nheld = bytearray(60 << 20)\nwait_for_agents()\n"
    (weigh.folder / "hold.py").write_text(hold)
    own = ("srun", "-n4", sys.executable, "hold.py")
    first = ("--memory", "400M", "--cpus", "2", "--time", "5m")
    job = weigh.submit("--nodes", "2", *first, "--", *own)
    # the record is written after the task counts as done
    weigh.wait_for(job, lambda one: one["elements"] == {"COMPLETED": 1})

    (weigh.folder / "p.txt").write_text(f"{shlex.join(own)}\n")
    code, out, err = weigh("plan", "p.txt")
    assert code == 0, err
    assert "4 ranks on 2 nodes with 2 CPUs" in out
    again = weigh.submit("plan/p")
    assert weigh.finish(again) == {"COMPLETED": 1}
