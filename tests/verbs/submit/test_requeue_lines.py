"""When a job goes back into its queue: as long as it gets on, and only then."""

from pathlib import Path

import pytest
from run_captured import run_captured
from sessions import check_session

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


def test_worked_examples_of_requeues(tmp_path_factory: pytest.TempPathFactory) -> None:
    names = {
        "an_element": lambda: Element(tmp_path_factory.mktemp("element")),
        "MOST_RUNS": MOST_RUNS,
    }
    check_session(Path(__file__).with_name("requeue.session"), names)
