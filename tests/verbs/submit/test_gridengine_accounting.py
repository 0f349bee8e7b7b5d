"""Grid Engine's accounting file that is missing, late or not readable."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from following import Weigh, until
from run_captured import run_captured
from written_programs import kill_processes_with


@pytest.fixture
def accounting(cell: Weigh) -> Iterator[Path]:
    """The file with how jobs ended; what a test does to it is undone."""
    assert cell.scheduler == "gridengine"
    common = Path(os.environ["SGE_ROOT"], os.environ["SGE_CELL"], "common")
    path, kept = common / "accounting", common / "accounting.kept"
    yield path
    if kept.exists():
        kept.rename(path)


def killed(cell: Weigh) -> str:
    """Submit a job, and kill all of it so that only accounting knows how it ended."""
    job = cell.submit("--memory", "200M", "--time", "5m", "--", "sleep", "60")
    cell.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    kill_processes_with(f"JOB_ID={job}")
    until(lambda: job not in run_captured(["qstat", "-u", "root"]).stdout)
    jobs = cell.folder / ".weigh/jobs.jsonl"
    document = json.loads(jobs.read_text())
    jobs.write_text(json.dumps(document | {"submitted": time.time() - 9000}) + "\n")
    (cell.folder / ".weigh/queue/gridengine.json").unlink(missing_ok=True)
    return job


@pytest.mark.gridengine
@pytest.mark.alone
def test_a_job_that_is_not_in_the_accounting_file_yet_is_unknown(
    cell: Weigh, accounting: Path
) -> None:
    job = killed(cell)
    accounting.rename(accounting.with_suffix(".kept"))
    missing = cell.status(job)
    accounting.touch()
    empty = cell.status(job)
    accounting.with_suffix(".kept").rename(accounting)
    found = cell.status(job)

    for standing in (missing, empty):
        assert standing["tasks"] == {"UNKNOWN": 1}
        assert "not recorded its end yet" in standing["unknown"][0]["reason"]
    assert "UNKNOWN" not in found["tasks"]
