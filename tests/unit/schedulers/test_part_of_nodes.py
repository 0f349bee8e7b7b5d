"""Accounting that saw one of several nodes: its figures are no basis for advice."""

import io

import pytest

from weigh.model.report import AccountedElement
from weigh.schedulers.slurm import accounting as slurm

HEAD = "JobID|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|TotalCPU|MaxRSS"
HEAD += "|NNodes|NTasks|Start|End|JobName"
SPAN = "2026-11-01T10:01:00|2026-11-01T11:01:00"
DONE = "COMPLETED|3600"
JOB = f"9|{DONE}|120|234G|32|15:36:00||{{nodes}}||{SPAN}|md"
BATCH = f"9.batch|{DONE}|||16|15:36:00|23000000K|1|1|{SPAN}|batch"
EXTERN = f"9.extern|{DONE}|||32|00:00:00|0|{{nodes}}|{{nodes}}|{SPAN}|extern"
STEP = f"9.0|{DONE}|||16|15:36:00|23000000K|{{on}}|{{on}}|{SPAN}|{{name}}"


def text_of(*steps: str, nodes: int = 2) -> str:
    return "\n".join((HEAD, JOB, *steps, "")).format(nodes=nodes, on=nodes, name="md")


def accounted(text: str) -> AccountedElement:
    (job,) = slurm.ACCOUNTING.read_past(io.StringIO(text))
    assert job is not None
    return job.accounted


@pytest.mark.parametrize(
    ("steps", "nodes", "seen"),
    [
        ((BATCH,), 2, 1),
        ((BATCH, EXTERN), 5, 1),
        ((BATCH, EXTERN, STEP.replace("{on}", "2")), 4, 3),
        ((STEP.replace("{on}", "1"),), 2, 1),
    ],
    ids=["script only", "beside extern", "a step on some", "one step on one"],
)
def test_figures_of_a_part_of_the_nodes_are_named_and_not_kept(
    steps: tuple[str, ...], nodes: int, seen: int
) -> None:
    found = accounted(text_of(*steps, nodes=nodes))

    assert (found.max_rss, found.cpu_time, found.nodes) == (None, None, nodes)
    (doubt,) = found.doubts
    assert doubt.startswith(f"accounting saw {seen} of {nodes} nodes")


@pytest.mark.parametrize(
    ("steps", "nodes"),
    [
        ((BATCH, EXTERN, STEP), 2),
        ((BATCH, STEP.replace("{on}", "3").replace("{name}", "orted")), 4),
        ((BATCH,), 1),
        ((), 2),
    ],
    ids=["srun", "mpirun", "one node", "no steps listed"],
)
def test_figures_of_all_nodes_are_kept(steps: tuple[str, ...], nodes: int) -> None:
    found = accounted(text_of(*steps, nodes=nodes))

    assert (found.cpu_time, found.doubts) == (56160.0, ())
