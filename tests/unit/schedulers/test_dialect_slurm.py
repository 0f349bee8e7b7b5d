import argparse

import pytest
from hypothesis import given
from some_requests import REQUESTS

from weigh.model.record import Request
from weigh.schedulers import slurm as slurm_text
from weigh.schedulers.slurm import steps


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
