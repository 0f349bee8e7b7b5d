"""Why a job waits: since when, and when it is expected to start."""

import msgspec
import pytest
from click.testing import CliRunner
from some_requests import a_submitted_job

from weigh.cli import status
from weigh.model.job import JobRequest
from weigh.render.status_lines import (
    JobStanding,
    WaitingElements,
    detail_lines,
)

NOW = 1795000000.0


def standing(
    *, minutes: float, queue: str | None = "gpu", now: float = NOW
) -> JobStanding:
    job = a_submitted_job(
        submitted=now - 60 * minutes,
        request=JobRequest(queue=queue),
    )
    waiting = WaitingElements(
        1, "next in line", since=job.submitted, expected=now + 3 * 24 * 3600
    )
    return JobStanding(
        job=job,
        jobs=("7",),
        tasks={"PENDING": 1},
        elements={"PENDING": 1},
        total=1,
        waiting=(waiting,),
    )


def test_the_screen_has_reason_since_when_and_when() -> None:
    one = standing(minutes=130)

    shown = list(detail_lines(one, NOW))

    text = " ".join(" ".join(shown).split())
    assert "next in line (for 2 h 10 m, expected to start about 20" in text
    assert max(map(len, shown)) <= 80


def test_who_waits_for_a_job_waits_for_its_elements_which_still_write_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tasks are done by the joblog, to which a record comes a moment later."""
    ended = msgspec.structs.replace(
        standing(minutes=1), tasks={"COMPLETED": 1}, waiting=()
    )
    runs = msgspec.structs.replace(ended, elements={"RUNNING": 1})
    ended = msgspec.structs.replace(ended, elements={"COMPLETED": 1})
    looks = iter([runs, runs, ended])
    monkeypatch.setattr(status, "standings_of_jobs", lambda *_: (next(looks),))

    done = CliRunner().invoke(status.status, ["7", "--wait"])

    assert (done.exit_code, list(looks)) == (0, [])
