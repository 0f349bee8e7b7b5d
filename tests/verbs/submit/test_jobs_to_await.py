"""Which jobs --after means, where one call submitted several."""

import pytest

from weigh.errors import UsageError
from weigh.flow.submit.job_request import ids_to_await
from weigh.model.job import JobRequest, Submitted


def job(
    number: str,
    folder: str = "plan/p",
    *,
    resumes: str | None = None,
    on: str = "slurm",
) -> Submitted:
    return Submitted(
        scheduler=on,
        id=number,
        name="p",
        folder=folder,
        cwd="/",
        script="job.sh",
        elements=1,
        tasks=1,
        submitted=0.0,
        request=JobRequest(),
        resumes=resumes,
    )


PARTS = [job("1"), job("2", resumes="1"), job("3", resumes="1")]
RESUMED = [
    *PARTS,
    job("4", "plan/p/resume_1", resumes="3"),
    job("5", "plan/p/resume_2", resumes="3"),
]


@pytest.mark.parametrize("name", ["p", "last", "1", "2"])
def test_all_parts_of_a_long_array_have_to_be_over(name: str) -> None:
    assert ids_to_await([name], "slurm", PARTS) == ("1", "2", "3")


@pytest.mark.parametrize("name", ["p", "last", "4"])
def test_all_that_was_resumed_at_once_has_to_be_over_and_not_what_failed(
    name: str,
) -> None:
    assert ids_to_await([name], "slurm", RESUMED) == ("4", "5")


def test_a_plan_submitted_again_waits_for_no_earlier_job() -> None:
    assert ids_to_await(["p"], "slurm", [job("1"), job("2")]) == ("2",)


def test_jobs_that_others_submitted_go_through_once() -> None:
    assert ids_to_await(["77", "77", "last"], "slurm", [job("1")]) == ("77", "1")


def test_a_job_of_another_cluster_is_not_waited_for() -> None:
    with pytest.raises(UsageError, match="cannot wait for it"):
        ids_to_await(["last"], "slurm@gpu", [job("1")])
