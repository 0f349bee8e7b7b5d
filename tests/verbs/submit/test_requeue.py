"""A job that goes back into its queue, while it gets on, goes on where it was."""

import subprocess
from pathlib import Path

import pytest
from following import Weigh, until
from rigs import mainly
from run_captured import run_captured
from sessions import check_session

from weigh.schedulers.job_script import MOST_RUNS, requeue_lines

# a program that goes on from its checkpoint, and needs two runs
TWO_RUNS = (
    "trap 'exit 1' TERM; echo run >>runs; echo step $(wc -l <runs); touch {0}/began; "
    "[ $(wc -l <runs) = 2 ] || {{ sleep 60 & wait $!; }}"
)


@pytest.mark.slurm
def test_a_requeued_job_repeats_nothing_that_is_done(real: Weigh) -> None:
    waits = "touch began; for i in $(seq 300); do [ -e go ] && exit; sleep 0.2; done"
    meets = "sleep 0.3; echo one >>done"  # side by side with the one that waits
    job = real.submit(real.plan(meets, waits, together=2))
    until(lambda: real.status(job)["tasks"] == {"COMPLETED": 1, "RUNNING": 1})

    subprocess.run(["scontrol", "requeue", job], check=True, timeout=90)
    (real.folder / "go").touch()

    assert real.finish(job) == {"COMPLETED": 2}
    assert (real.folder / "done").read_text() == "one\n"


@pytest.mark.slurm
def test_the_warning_puts_only_the_element_back_that_it_is_for(real: Weigh) -> None:
    lines = ("echo one >>done", TWO_RUNS.format(real.folder))
    job = real.submit(real.plan(*lines), "--requeue", "--time", "10m")
    until((real.folder / "began").exists)
    until(lambda: real.status(job)["tasks"] == {"COMPLETED": 1, "RUNNING": 1})

    warn = ["scancel", "--batch", "-s", "USR1", f"{job}_1"]
    subprocess.run(warn, check=True, timeout=90)

    assert real.finish(job) == {"COMPLETED": 2}
    assert (real.folder / "runs").read_text() == "run\nrun\n"
    assert (real.folder / "done").read_text() == "one\n"


@mainly("slurm")
def test_a_job_out_of_time_goes_on_in_another_run(weigh: Weigh) -> None:
    if weigh.scheduler == "local":
        pytest.skip("jobs on this machine have no queue")
    scratch = weigh.folder.parent / "scratch"
    scratch.mkdir()
    (weigh.folder / "weigh.toml").write_text(f'scratch = "{scratch}"\n')
    staged = ("--stage-out", "results")
    plan = weigh.plan(TWO_RUNS.format(weigh.folder))

    job = weigh.submit(plan, "--requeue", "--time", "18s", *staged)

    assert weigh.finish(job) == {"COMPLETED": 1}
    assert (weigh.folder / "results/runs").read_text() == "run\nrun\n"
    assert not list((weigh.folder / "results").glob("partial-*"))


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
