"""What ``weigh submit`` shows: at most 80 columns, one idea a line."""

import subprocess
import sys
import time
from pathlib import Path

from run_captured import run_captured
from sessions import check_session

from weigh.model.job import JobRequest, SubmittedJob
from weigh.render.submit_lines import SubmitAnswer, command_lines, submitted_lines
from weigh.units import DAY, HOUR

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


def job(number: str = "7", **known: object) -> SubmittedJob:
    fields = {"elements": 5, "tasks": 5, "request": JobRequest(throttle=2)} | known
    return SubmittedJob(
        scheduler="slurm",
        id=number,
        name="p",
        folder="/p",
        cwd="/",
        script="/p/job.sh",
        submitted=NOON,
        **fields,  # type: ignore[arg-type]
    )


def lines(
    first: SubmittedJob, *more: SubmittedJob, has_free_nodes: bool = False
) -> list[str]:
    shipped = SubmitAnswer(
        scheduler="slurm",
        script="/p/job.sh",
        text="",
        job=first,
        more=more,
        has_free_nodes=has_free_nodes,
        now=NOON,
    )
    return list(submitted_lines(shipped))


def test_worked_examples_of_screens() -> None:
    names = {"job": job, "lines": lines, "JobRequest": JobRequest}
    names |= {"NOON": NOON, "HOUR": HOUR, "DAY": DAY}
    check_session(Path(__file__).with_name("submit_screen.session"), names)


def test_a_dry_run_names_the_command_of_each_part_as_one_line_to_copy() -> None:
    parts = [("sbatch", "--parsable", f"/a b/job_{at}.sh") for at in range(6)]
    shipped = SubmitAnswer(scheduler="slurm", script="", text="", commands=tuple(parts))

    found = list(command_lines(shipped))

    assert found[0] == "would run sbatch --parsable '/a b/job_0.sh'"
    assert found[3:] == ["and 3 more, one per part of the array"]


def test_a_small_plan_imports_few_of_our_modules(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("true\ntrue\n")
    words = ("plan", "tasks.txt", "--cpus", "1", "--memory", "1GiB", "--time", "5m")
    subprocess.run([sys.executable, "-m", "weigh", *words], cwd=tmp_path, check=True)
    program = (
        "import sys\n"
        "from weigh.cli.main import weigh\n"
        "weigh(['submit', 'plan/tasks', '--on', 'slurm', '--dry-run'],"
        " standalone_mode=False)\n"
        "print(sum(name.partition('.')[0] == 'weigh' for name in sys.modules))\n"
    )

    done = run_captured([sys.executable, "-c", program], cwd=tmp_path, check=True)

    assert int(done.stdout.split()[-1]) <= 80
