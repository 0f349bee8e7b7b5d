"""What ``weigh submit`` shows: at most 80 columns, one idea a line."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from weigh.model.job import JobRequest, SubmittedJob
from weigh.render.submit_lines import (
    SubmitAnswer,
    SubmitCheck,
    check_lines,
    command_lines,
    submitted_lines,
)
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
    first: SubmittedJob, *more: SubmittedJob, checks: tuple[SubmitCheck, ...] = ()
) -> list[str]:
    shipped = SubmitAnswer(
        scheduler="slurm",
        script="/p/job.sh",
        text="",
        job=first,
        more=more,
        checks=checks,
        now=NOON,
    )
    return list(submitted_lines(shipped))


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (None, ""),
        (NOON + 5, "; starts now"),
        (NOON + 2 * HOUR, "; starts about 14:00"),
        (NOON + DAY, "; starts about 2026-11-22 12:00"),
    ],
)
def test_when_it_starts_is_reported_as_a_person_writes_it(
    expected: float | None, words: str
) -> None:
    shown = " ".join(" ".join(lines(job(expected=expected))).split())
    assert f"submitted 5 elements as job 7, up to 2 at a time{words} each" in shown


@pytest.mark.parametrize("free", [0, 3])
def test_no_late_start_is_predicted_where_nodes_are_free(free: int) -> None:
    row = SubmitCheck("queue", "ok", f"3 nodes, {free} free now", has_room=free > 0)
    shown = " ".join(lines(job(expected=NOON + 2 * HOUR), checks=(row,)))
    assert ("starts about 14:00" in shown) == (free == 0)


def test_elements_of_several_tasks_state_how_many() -> None:
    assert "5 elements with 20 tasks as job 7" in lines(job(tasks=20))[0]


def test_an_element_that_pulls_from_a_queue_is_no_number_of_tasks() -> None:
    first, rest = job(elements=1, tasks=24), job("8", elements=9, tasks=24)
    said = lines(first, rest)
    assert said[0] == "  submitted 1 element as job 7"
    assert said[1].strip() == "and 9 elements with 24 tasks as job 8"


def test_a_throttle_that_holds_nothing_back_is_not_mentioned() -> None:
    assert "at a time" not in lines(job(request=JobRequest(throttle=5)))[0]


def test_a_job_for_each_of_many_nodes_is_a_few_lines() -> None:
    shown = lines(job(), *(job(str(number)) for number in range(8, 208)))

    assert len(shown) < 10
    assert "and 197 more, to job 207" in "\n".join(shown)


def test_the_rest_states_what_it_waits_for() -> None:
    rest = job("9", reason="waits for the first one")

    assert "and 5 elements as job 9: waits for the first one" in lines(job(), rest)[1]


def test_what_was_checked_stays_within_80_columns() -> None:
    checks = (
        SubmitCheck("queue gpu", "ok", "5 nodes with p100, 2 free now"),
        SubmitCheck("time", "1 h", "5 nodes with p100, 2 free now"),
        SubmitCheck(
            "GPU", "default", "no --gpus: the job gets none " + "(v100, a100) " * 9
        ),
        SubmitCheck("limits", "?", "x" * 200),
    )

    shown = list(check_lines(checks))

    assert shown[0].split()[0] == "checked"
    assert max(map(len, shown[:-2])) <= 80
    assert len([line for line in shown if "free now" in line]) == 1


def test_nothing_checked_is_nothing_shown() -> None:
    assert list(check_lines(())) == []


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

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout.split()[-1]) <= 80


def test_what_the_jobs_can_use_at_most_is_shown() -> None:
    request = JobRequest(cpus=4, gpus=1, time_limit=6 * HOUR)

    shown = "\n".join(lines(job(elements=20, request=request), job(request=request)))

    assert "06:00:00; at most 150 GPU h, 600 CPU h\n" in shown


def test_without_a_time_limit_nothing_is_promised() -> None:
    assert not [line for line in lines(job()) if "at most" in line]
