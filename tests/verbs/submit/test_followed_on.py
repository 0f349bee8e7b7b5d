"""Jobs followed where something changes late: cleared, resumed, refused."""

from pathlib import Path

import pytest
from following import Weigh
from some_requests import a_submitted_job

from weigh.model.job import STUCK, JobRequest, SubmittedJob
from weigh.schedulers import KINDS
from weigh.schedulers.client import SchedulerClient, SchedulerReach
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.this_machine import LocalScheduler

LISTED = """<?xml version='1.0'?><job_info><queue_info/><job_info>
<job_list state="pending"><JB_job_number>7</JB_job_number><state>{}</state></job_list>
</job_info></job_info>
"""
NOTHING = "<?xml version='1.0'?><job_info><queue_info/><job_info/></job_info>\n"
# what qacct 8.1.9 prints before its file is made
NO_FILE = (
    "/common/accounting: No such file or directory\nno jobs running since startup\n"
)
ACCOUNT = f"{'=' * 62}\njobnumber 7\ntaskid undefined\nfailed 0\nexit_status 0\n"


def job(number: str = "7", scheduler: str = "gridengine") -> SubmittedJob:
    return a_submitted_job(
        scheduler=scheduler,
        id=number,
        script="job.sh",
        request=JobRequest(memory=5),
    )


@pytest.fixture
def cell(tmp_path: Path) -> tuple[SchedulerClient, dict[str, str]]:
    """A client of a cell that prints what the test has it print."""
    said = {"qstat": LISTED.format("Eqw"), "qacct": "", "qdel": ""}

    def run(argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
        out = said[argv[0]]
        failed = argv[0] == "qacct" and "exit_status" not in out
        return CommandOutput(1, "", out) if failed else CommandOutput(0, out, "")

    way = SchedulerReach(
        run=run,
        env={},
        root=str(tmp_path),
        user="me",
        clock=lambda: 9000.0,
        interval=0.0,
    )
    return SchedulerClient(KINDS["gridengine"], way), said


Cell = tuple[SchedulerClient, dict[str, str]]


def seen(cell: Cell, **answers: str) -> str:
    """Return how the element of the job stands after these answers of commands."""
    cell[1].update(answers)
    state = cell[0].states([job()]).of(job(), 0)
    return "stuck" if state.reason == STUCK else state.state


def test_an_element_whose_error_was_cleared_goes_on(cell: Cell) -> None:
    assert seen(cell) == "stuck"
    assert seen(cell, qstat=LISTED.format("qw")) == "PENDING"
    assert seen(cell, qstat=NOTHING, qacct=ACCOUNT) == "COMPLETED"


def test_an_element_in_error_that_we_deleted_was_cancelled(cell: Cell) -> None:
    assert seen(cell) == "stuck"
    cell[0].cancel(job(), None)
    assert seen(cell, qstat=NOTHING) == "CANCELLED"


@pytest.mark.parametrize("said", [NO_FILE, "error: job id 7 not found\n"])
def test_a_job_that_is_not_in_the_accounting_file_yet_is_unknown(
    cell: Cell, said: str
) -> None:
    assert seen(cell, qstat=LISTED.format("r")) == "RUNNING"
    assert seen(cell, qstat=NOTHING, qacct=said) == "UNKNOWN"
    assert seen(cell, qacct=ACCOUNT) == "COMPLETED"


def test_a_task_that_was_not_resumed_is_found_in_the_job_before(here: Weigh) -> None:
    first = here.submit(here.plan("echo one", "echo two; exit 3"))
    here.finish(first)
    again = here.resume(first)["again"][0]["job"]["id"]
    here.finish(again)

    assert here("logs", f"{again}_1")[1] == "one\n"
    assert here("logs", "last_2")[1] == "two\n"
    assert "no such task: 3 (tasks are 1-2)" in here("logs", "last_3")[2]


def test_one_job_that_cannot_be_cancelled_keeps_no_other(here: Weigh) -> None:
    one = here.submit(here.plan("sleep 60", name="a"))
    other = here.submit(here.plan("sleep 60", name="b"))
    process = here.folder / ".weigh" / LocalScheduler.name / one / "process"
    kept = process.read_bytes()
    process.unlink()

    code, _, err = here("cancel", "all")
    process.write_bytes(kept)

    assert code == 125
    assert f"(cancelled: {other})" in err
    assert here.finish(other) == {"CANCELLED": 1}
    here("cancel", one)
    here.finish(one)
