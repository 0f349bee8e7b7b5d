"""When a job goes back into its queue: as long as it gets on, and only then."""

from pathlib import Path

import pytest
from run_captured import run_captured

from weigh.schedulers.job_script import MOST_RUNS, requeue_lines

HEADER = "Seq\tHost\n"


class Element:
    """One element's files, and the end of its script."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self._script = "\n".join(requeue_lines("echo BACK"))
        self._folder = folder
        (self.log / "tasks_0.out").mkdir(parents=True)
        self.ended(0)

    def ended(self, tasks: int) -> None:
        (self.log / "tasks_0.joblog").write_text(HEADER + "line\n" * tasks)

    def printed(self, text: str, run: int = 1) -> None:
        (self.log / f"tasks_0.out/1.{run}.out").write_text(text)

    def goes_back(self, *, code: int = 143, by: str = "USR1") -> bool:
        """Run the lines after a run that ended so."""
        start = f"plan={self._folder} element=0 code={code} by={by}\n"
        ran = run_captured(["bash", "-c", start + self._script])
        assert ("BACK" in ran.stdout) == ("requeued, to continue" in ran.stderr)
        return "BACK" in ran.stdout


@pytest.fixture
def element(tmp_path: Path) -> Element:
    return Element(tmp_path)


def test_the_first_time_it_goes_back(element: Element) -> None:
    assert element.goes_back()


def test_it_goes_back_when_weigh_exec_saw_the_limit_itself(element: Element) -> None:
    assert element.goes_back(by="")


@pytest.mark.parametrize(("code", "by"), [(143, "TERM"), (143, "USR2"), (0, "USR1")])
def test_what_was_cancelled_or_is_done_stays_where_it_is(
    element: Element, code: int, by: str
) -> None:
    assert not element.goes_back(code=code, by=by)


def test_a_task_that_has_ended_is_progress(element: Element) -> None:
    element.goes_back()
    element.ended(1)

    assert element.goes_back()
    assert not element.goes_back()


def test_a_step_that_no_run_has_printed_is_progress(element: Element) -> None:
    element.printed("step 1\nstep 2\n")
    element.goes_back()
    element.printed("step 2\nstep 3\n", run=2)

    assert element.goes_back()


@pytest.mark.parametrize(
    "again",
    [
        "10:45:01 2026-11-21 step 1 loss 0.75 5.1e-3\n",
        "10:45:02 2026-11-22 step 1 loss 0.5 1.0e-4\n",
        "11:00:00.123 2026-11-22 step 1 loss .25 2.0e-4\rstep 1\n",
    ],
)
def test_the_same_steps_at_another_time_are_none(element: Element, again: str) -> None:
    element.printed("09:00:00 2026-11-20 step 1 loss 0.9 7.7e-9\nstep 1\n")
    element.goes_back()
    element.printed(again, run=2)

    assert not element.goes_back()


def test_there_is_an_end_to_it_while_no_task_ends(element: Element) -> None:
    (element.log / "tasks_0.joblog.runs").write_text(f"1 1 {MOST_RUNS}\n")
    element.printed("step 1\nstep 2\nstep 3\n")

    assert not element.goes_back()
