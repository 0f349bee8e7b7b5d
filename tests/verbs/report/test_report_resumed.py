"""A job and those that resumed it: each task counts once, as it ended."""

import json
import random
from pathlib import Path

import pytest
from some_jobs import JOB, Say, SomeJob, Task, write_job

from weigh.model.job import JobRequest
from weigh.model.record import ReportedProgress
from weigh.units import GIB, MIB, format_limit, format_size


def test_each_row_is_of_the_job_that_ran_it_and_counts_attempts_over_the_jobs(
    root: str, say: Say
) -> None:
    folder = f"{Path(root).parent}/plan/p"
    write_job(root, folder, SomeJob(tasks=(Task(state="FAILED"), *[Task()] * 3)))
    again = SomeJob(tasks=(Task(state="FAILED"),), id="481999", resumes=JOB)
    write_job(root, f"{folder}/resume_1", again)
    rows = json.loads(say("report", "481999", "--json")[1])["rows"]
    found = [(row["task"], row["job"], row["attempts"]) for row in rows]
    assert found == [(1, "481999", 2), (2, JOB, 1), (3, JOB, 1), (4, JOB, 1)]


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
