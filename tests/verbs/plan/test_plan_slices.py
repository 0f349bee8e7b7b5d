"""Slices of a card (MIG): planned by their memory, asked for by the site's word."""

from typing import Any

import pytest
from some_requests import some_plan

from weigh.flow.submit.job_request import complete_request
from weigh.model.job import JobRequest
from weigh.model.plan import Plan, PlanRequest, TargetGpu
from weigh.schedulers.kind import SchedulerQuestion, known_answer
from weigh.units import GIB

LONG = "nvidia_h100_80gb_hbm3_1g.10gb"
SAID = ("--gpu-memory", "2GiB", "--memory", "1GiB", "--time", "1h")


class Site:
    """A Slurm that has words for GPUs."""

    name = "slurm"

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def questions(self) -> "Site":
        return self

    def gpu_types(self) -> SchedulerQuestion[tuple[str, ...]]:
        return known_answer(self.words)

    def ask(self, question: SchedulerQuestion[Any]) -> object:
        return question.read(())


def plan_for(gpu: str) -> Plan:
    request = PlanRequest(1, GIB, 60, gpus=1, gpu=gpu)
    return some_plan(gpu=TargetGpu(gpu, GIB), request=request)


def word_for(gpu: str, *words: str) -> str | None:
    site: Any = Site(*words)
    return complete_request(plan_for(gpu), JobRequest(cpus=0), site)[0].gpu_type


@pytest.mark.parametrize(
    ("gpu", "words", "asks"),
    [
        ("a100_1g.5gb", ("a100", "a100_1g.5gb"), "a100_1g.5gb"),
        ("A100-80GB:1g.10gb", ("a100", "1g.10gb"), "1g.10gb"),
        ("H100 1g.10gb", ("h100", LONG), LONG),
        ("a100", ("a100", "a100_1g.5gb"), "a100"),
        ("v100-32gb", ("v100", "a100"), "v100"),
        # neither a whole GPU stands for a slice nor a slice of another GPU
        ("a100_1g.5gb", ("a100", "a100_2g.10gb"), None),
        ("A100-80GB:1g.10gb", ("h100_1g.10gb",), None),
    ],
)
def test_the_site_s_word_of_the_slice_is_requested(
    gpu: str, words: tuple[str, ...], asks: str | None
) -> None:
    assert word_for(gpu, *words) == asks
