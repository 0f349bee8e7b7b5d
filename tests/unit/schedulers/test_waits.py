"""Who waits for a job waits for its elements too, which still write records."""

import pytest
from click.testing import CliRunner
from some_requests import a_submitted_job

from weigh.cli import status
from weigh.render.status_lines import JobStanding


def standing(element_state: str) -> JobStanding:
    """Return a job whose tasks are done by the joblog, to which a record comes late."""
    known = {"tasks": {"COMPLETED": 1}, "elements": {element_state: 1}, "total": 1}
    return JobStanding(job=a_submitted_job(), jobs=("7",), **known)  # type: ignore[arg-type]


def test_who_waits_for_a_job_waits_for_its_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter(map(standing, ("RUNNING", "RUNNING", "COMPLETED")))
    monkeypatch.setattr(status, "standings_of_jobs", lambda *_: (next(looks),))

    done = CliRunner().invoke(status.status, ["7", "--wait"])

    assert (done.exit_code, list(looks)) == (0, [])
