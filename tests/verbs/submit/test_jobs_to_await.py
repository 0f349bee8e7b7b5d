"""Which jobs --after means."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from some_requests import a_submitted_job

from weigh.flow.follow import dependency
from weigh.flow.here import Here
from weigh.model.job import SubmittedJob
from weigh.store.jobs import append_job


def job(number: str, *, on: str = "slurm") -> SubmittedJob:
    return a_submitted_job(
        scheduler=on,
        id=number,
        folder="plan/p",
        script="job.sh",
        token=f"w{number}",
    )


def test_only_of_jobs_that_wait_for_this_one_the_last_round_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may hold thousands of jobs."""
    first, follower = job("1"), replace(job("3"), needs=("w1",))
    for one in (first, job("2"), follower):
        append_job(str(tmp_path), one)
    searched = list[str]()

    def chain_of(_: object, one: SubmittedJob) -> list[SubmittedJob]:
        searched.append(one.id)
        return [one]

    monkeypatch.setattr("weigh.store.jobs.chain_of", chain_of)
    monkeypatch.setattr(dependency, "_led_on", lambda *_: None)
    here = Here(cwd="/", env={}, root=str(tmp_path))

    assert not list(dependency.lead_on(here, [first], lambda _: None))
    assert searched == ["3"]
