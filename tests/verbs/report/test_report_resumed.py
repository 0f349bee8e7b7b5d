"""A job and those that resumed it: each task counts once, as it ended."""

import json
import random
from pathlib import Path

import msgspec
import pytest
from some_jobs import JOB, Say, SomeJob, Task, write_job

from weigh.flow.here import here_of
from weigh.flow.report.report import build_job_report
from weigh.model.job import JobRequest
from weigh.model.record import ReportedProgress
from weigh.model.report import JobReport
from weigh.units import GIB, HOUR, MIB, format_limit, format_size

LATER = "481999"
GOOD = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7)
FIRST = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
TWICE = msgspec.structs.replace(FIRST, memory=16 * GIB, time_limit=12 * HOUR)


def resumed(root: str, state: str) -> JobReport:
    """Leave a job whose first task ended so, and so again with twice as much."""
    bad = Task(state=state, wall_time=6.0 * HOUR, memory=6 * GIB, cpus=3.7)  # type: ignore[arg-type]
    folder = f"{Path(root).parent}/plan/p"
    first = SomeJob(tasks=(bad, GOOD, GOOD, GOOD), wanted=FIRST)
    write_job(root, folder, first)
    again = SomeJob(tasks=(bad,), wanted=TWICE, id=LATER, resumes=JOB)
    write_job(root, f"{folder}/resume_1", again)
    return build_job_report(
        here_of(str(Path(root).parent), {"PATH": "", "WEIGH_POLL": "9h"}), LATER
    )


def test_a_task_killed_again_is_one_task_and_needs_more_than_the_second_time(
    root: str,
) -> None:
    note = resumed(root, "OUT_OF_MEMORY").notes[0]
    assert note.words.startswith("1 task was killed for memory with 16.0 GiB")
    assert note.flag == "--mem=32G"


def test_a_task_stopped_again_needs_more_time_than_the_second_time(root: str) -> None:
    note = resumed(root, "TIMEOUT").notes[0]
    assert note.words.startswith("1 task was stopped")
    assert note.flag == "--time=1-00:00:00"


def test_what_was_requested_is_the_most_that_any_of_the_jobs_did(root: str) -> None:
    told = resumed(root, "OUT_OF_MEMORY")
    memory = next(one for one in told.measures if one.name == "memory")
    assert memory.requested == 16 * GIB


def test_attempts_count_over_the_jobs(root: str) -> None:
    told = resumed(root, "FAILED")
    assert {row.task: row.attempts for row in told.rows} == {1: 2, 2: 1, 3: 1, 4: 1}


def test_each_row_is_of_the_job_that_ran_it(root: str, say: Say) -> None:
    resumed(root, "FAILED")
    _, out, _ = say("report", LATER, "--json")
    rows = json.loads(out)["rows"]
    assert [(row["task"], row["job"]) for row in rows] == [
        (1, LATER),
        (2, JOB),
        (3, JOB),
        (4, JOB),
    ]


def drawn_job(seed: int) -> SomeJob:
    """Draw a job of which tasks ran out of memory or time, in some round."""
    draw = random.Random(seed)
    tasks = []
    for state in draw.choices(["COMPLETED", "TIMEOUT", "OUT_OF_MEMORY"], k=4):
        time, left = draw.uniform(10, 4000), draw.choice([None, 30.0, 900.0, 20_000.0])
        steps = ReportedProgress(
            done=1, total=9, source="steps", time=time, remaining=left
        )
        progress = draw.choice([None, steps])
        words = "Killed"  # from outside: not by a limit of its own
        tasks.append(Task(state=state, wall_time=time, progress=progress, words=words))  # type: ignore[arg-type]
    wanted = JobRequest(
        cpus=draw.choice([1, 4]),
        memory=draw.choice([MIB * 300, GIB, 7 * GIB]),
        time_limit=draw.choice([60, 300, 5400]),
    )
    together = draw.choice([1, 1, 2])
    return SomeJob(
        tasks=tuple(tasks), wanted=wanted, together=together, round=seed % 3 + 1
    )


@pytest.mark.parametrize("seed", range(24))
def test_the_report_advises_what_resume_requests(
    root: str, say: Say, seed: int
) -> None:
    job = drawn_job(seed)
    write_job(root, f"{Path(root).parent}/plan/p", job)
    again = json.loads(say("resume", JOB, "--dry-run", "--json")[1])["again"]
    shown = " ".join(say("report", JOB)[1].split())
    for state, amount, written in (
        ("TIMEOUT", "time_limit", format_limit),
        ("OUT_OF_MEMORY", "memory", format_size),
    ):
        ended_so = {
            number for number, task in enumerate(job.tasks, 1) if task.state == state
        }
        asked = [one["wanted"][amount] for one in again if ended_so & {*one["tasks"]}]
        if asked:
            assert f"request {written(max(asked))}" in shown
