"""What ``weigh submit`` shows: at most 80 columns, one idea a line."""

import subprocess
import sys
import time
from pathlib import Path

from run_captured import run_captured
from transcript import check_texts

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


LATER = job(expected=NOON + 2 * HOUR)
SIX_HOURS = JobRequest(cpus=4, gpus=1, time_limit=6 * HOUR)
MANY = [job(str(number)) for number in range(8, 208)]
SCREENS: dict[str, list[str]] = {
    "one job": lines(job()),
    "a throttle that holds nothing back": lines(job(request=JobRequest(throttle=5))),
    "elements of several tasks": lines(job(tasks=20)),
    "an element that pulls from a queue, and the rest": lines(
        job(elements=1, tasks=24), job("8", elements=9, tasks=24)
    ),
    "one element, of which the request is": lines(job(elements=1, tasks=8)),
    "the rest waits for the first": lines(
        job(), job("9", reason="waits for the first one")
    ),
    "a job for each of many nodes": lines(job(), *MANY),
    "it starts now": lines(job(expected=NOON + 5)),
    "it waits for two jobs, of which a forecast knows nothing": lines(
        job(expected=NOON + 5, request=JobRequest(after=("5", "6")))
    ),
    "it starts in two hours, as all nodes are busy": lines(LATER),
    "it may start before the prediction": lines(LATER, has_free_nodes=True),
    "it starts tomorrow": lines(job(expected=NOON + DAY)),
    "elements of two nodes": lines(
        job(request=JobRequest(cpus=4, nodes=2, time_limit=1 * HOUR))
    ),
    "what two jobs can use at most": lines(
        job(elements=20, request=SIX_HOURS), job(request=SIX_HOURS)
    ),
}


def test_the_screens_are_as_they_were_reviewed() -> None:
    texts = {
        name: "".join(f"{line}\n" for line in screen)
        for name, screen in SCREENS.items()
    }
    check_texts(Path(__file__).with_name("submit_screen.texts"), texts)


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
