import argparse

import pytest
from hypothesis import given
from some_requests import REQUESTS

from weigh.model.record import Allocation, RecordedJob, Request
from weigh.schedulers import slurm as slurm_text
from weigh.schedulers.slurm import steps
from weigh.units import GIB


@given(REQUESTS)
def test_a_parser_of_sbatch_flags_finds_what_was_requested(request: Request) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--mem", "--cpus-per-task", "--time", "--gres"):
        parser.add_argument(flag)

    flags = parser.parse_args(slurm_text.TEXT.directives(request))

    assert int(flags.cpus_per_task) == request.cpus
    if request.memory is not None:
        assert slurm_text.TEXT.parse_memory(flags.mem) >= request.memory
    if request.time_limit is not None:
        assert slurm_text.TEXT.parse_time(flags.time) == request.time_limit
    assert int(flags.gres.split(":")[-1] if flags.gres else 0) == request.gpus


BATCH = {
    "SLURM_JOB_ID": "481519",
    "SLURM_CPUS_ON_NODE": "4",
    "SLURM_CPUS_PER_TASK": "2",
    "SLURM_MEM_PER_NODE": "8192",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_PARTITION": "gpu_long",
    "SLURM_GPUS_ON_NODE": "2",
}


def test_a_batch_job_reports_its_whole_allocation() -> None:
    assert slurm_text.TEXT.allocation_from_environment(BATCH) == Allocation(
        scheduler="slurm", cpus=4, memory=8 * GIB, nodes=1, gpus=2, queue="gpu_long"
    )


@pytest.mark.parametrize(
    ("changes", "memory"),
    [
        ({"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": "2048"}, 8 * GIB),
        ({"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_GPU": "2048"}, 4 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),  # --mem=0: the whole node, however big
        ({"SLURM_MEM_PER_NODE": "8G"}, None),
    ],
)
def test_memory_may_be_granted_by_node_cpu_or_gpu(
    changes: dict[str, str], memory: int | None
) -> None:
    allocation = slurm_text.TEXT.allocation_from_environment(BATCH | changes)

    assert allocation is not None
    assert allocation.memory == memory


def test_gpus_are_counted_from_their_list_where_no_count_is_reported() -> None:
    env = BATCH | {"SLURM_GPUS_ON_NODE": "", "SLURM_JOB_GPUS": "0,2,3"}

    allocation = slurm_text.TEXT.allocation_from_environment(env)

    assert allocation is not None
    assert allocation.gpus == 3


def test_a_bare_allocation_leaves_unknown_what_it_does_not_report() -> None:
    assert slurm_text.TEXT.allocation_from_environment(
        {"SLURM_JOB_ID": "1"}
    ) == Allocation(scheduler="slurm")


def test_an_array_element_goes_by_its_arrays_id() -> None:
    env = BATCH | {"SLURM_ARRAY_JOB_ID": "481516", "SLURM_ARRAY_TASK_ID": "3"}

    assert slurm_text.TEXT.job_from_environment(env) == RecordedJob(
        id="481516", element=3, attempt=1
    )


def test_a_requeued_job_is_on_its_second_attempt() -> None:
    env = BATCH | {"SLURM_RESTART_COUNT": "1"}

    assert slurm_text.TEXT.job_from_environment(env) == RecordedJob(
        id="481519", attempt=2
    )


def test_the_components_of_a_heterogeneous_step_are_one_step() -> None:
    first = {"SLURM_STEP_ID": "0", "SLURM_SRUN_COMM_PORT": "1", "SLURM_HET_SIZE": "2"}
    second = {**first, "SLURM_SRUN_COMM_PORT": "2"}
    assert steps.step_of(first) == steps.step_of(second)
    del (
        first["SLURM_HET_SIZE"],
        second["SLURM_HET_SIZE"],
    )  # years later
    assert steps.step_of(first) != steps.step_of(second)


@pytest.mark.parametrize(
    ("nodes", "node"),
    [("cn[1-2]", "cn2"), ("gpu7,cn2", "cn2"), ("n[1-2]", "cn1"), ("", "cn1")],
    ids=["of the job", "listed", "other names", "none"],
)
def test_a_node_that_has_another_nodes_variable_is_its_machine(
    nodes: str, node: str
) -> None:
    env = {"SLURMD_NODENAME": "cn1", "SLURM_JOB_NODELIST": nodes}
    assert steps.node_of(env, "cn2.cluster.example") == node
