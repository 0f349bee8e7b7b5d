"""Which jobs --after means."""

import pytest

from weigh.errors import UsageError
from weigh.flow.follow.dependency import needs_of
from weigh.model.job import JobRequest, SubmittedJob


def job(number: str, *, on: str = "slurm") -> SubmittedJob:
    return SubmittedJob(
        scheduler=on,
        id=number,
        name="p",
        folder="plan/p",
        cwd="/",
        script="job.sh",
        elements=1,
        tasks=1,
        submitted=0.0,
        request=JobRequest(),
        token=f"w{number}",
    )


def test_a_plan_submitted_again_waits_for_no_earlier_job() -> None:
    assert needs_of(["p"], "slurm", [job("1"), job("2")]) == ("w2",)


def test_jobs_that_others_submitted_go_through_once() -> None:
    assert needs_of(["77", "77", "last"], "slurm", [job("1")]) == ("77", "w1")


def test_a_job_of_another_cluster_is_not_waited_for() -> None:
    with pytest.raises(UsageError, match="cannot wait for it"):
        needs_of(["last"], "slurm@gpu", [job("1")])
