"""The state of jobs, and when they end, from what their elements left."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from some_jobs import JOB, SomeJob, Task, write_job

from weigh.flow.follow.status import ends_of, standings_of_jobs
from weigh.flow.follow.view import JobView, work_of
from weigh.flow.here import here_of
from weigh.model.job import ElementState, JobRequest, TaskState
from weigh.model.record import ReportedProgress, State
from weigh.render.progress_lines import ExpectedEnd, TaskEnd, ends_lines
from weigh.render.status_lines import JobStanding
from weigh.runner.events import RunningProgress, TaskHeadway, write_progress
from weigh.schedulers import client
from weigh.schedulers.reachable import JobSnapshot

HOUR = 3600.0
FINE = Task()


def running_job(
    folder: Path,
    states: list[State],
    wanted: JobRequest,
    left: Mapping[int, float],
) -> JobView:
    """Return a job with an element per task, as its elements wrote it.

    They began an hour ago, their tasks half an hour ago; *left* are the seconds that
    those that run have still to go.
    """
    now, joblog = time.time(), f"{folder}/log/tasks_%d.joblog"
    fine = SomeJob(tasks=(FINE,) * len(states), wanted=wanted)
    job = replace(write_job(f"{folder}/.weigh", str(folder), fine), submitted=now)
    for element, state in enumerate(states):
        if state != "COMPLETED":
            Path(joblog % element).unlink()
            Path(f"{joblog % element}.events.jsonl").unlink()
    for element, seconds in left.items():
        started = now - HOUR / 2
        event = {"event": "started", "seq": 1, "attempt": 1, "run": "r"}
        event |= {"time": started, "slot": 1, "pid": 1, "start_time": None}
        line = msgspec.json.encode(event | {"task": "00000000"}) + b"\n"
        Path(f"{joblog % element}.events.jsonl").write_bytes(line)
        low, high = 0.9 * seconds, 1.1 * seconds
        end: Any = {"time": HOUR / 2, "remaining": seconds, "low": low, "high": high}
        headway = ReportedProgress(done=50.0, total=100.0, source="tqdm", **end)
        task = TaskHeadway(seq=1, attempt=1, started=started, headway=headway)
        progress = RunningProgress(run="r", time=now, slots=1, tasks=(task,))
        assert write_progress(f"{joblog % element}.progress", progress)
    elements = tuple(ElementState(state=one, started=now - HOUR) for one in states)
    tasks = tuple(
        TaskState(task=n + 1, job=JOB, element=n, seq=1, state=state)
        for n, state in enumerate(states)
    )
    snapshot, work = JobSnapshot({}, now), work_of(job)
    return JobView(job, None, elements, tasks, snapshot, work)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("states", "wanted", "left", "expected"),
    [
        # a job ends with the task that runs longest
        ("RUNNING RUNNING", {}, [1, 2], (2, None, 0, 0)),
        # elements that wait take what those done took
        ("COMPLETED RUNNING PENDING PENDING", {}, [None, 0.5], (2.5, 1, 0, 0)),
        # the throttle states how many run at a time: the later of two that begin now
        # and vary by .3 takes 1 + .3 / sqrt(pi) on average
        ("RUNNING PENDING PENDING", {"throttle": 3}, [0.5], (1.17, 3, 0, 0)),
        # an hour is left of the time limit
        ("RUNNING RUNNING", {"time_limit": 7200}, [2, 0.5], (2, None, 1, 0)),
        ("RUNNING", {"time_limit": 7200}, [1], (1, None, 0, 1)),
        ("RUNNING", {"time_limit": 7200}, [0.5], (0.5, None, 0, 0)),
    ],
)
def test_a_job_ends_with_its_tasks_and_those_beyond_the_limit_are_counted(
    tmp_path: Path,
    states: str,
    wanted: dict[str, int],
    left: list[float | None],
    expected: tuple[float, int | None, int, int],
) -> None:
    running = {element: one * HOUR for element, one in enumerate(left) if one}
    request = JobRequest(**wanted)  # type: ignore[arg-type]
    job = running_job(tmp_path, states.split(), request, running)  # type: ignore[arg-type]
    found = ends_of([job], job.snapshot.asked)
    assert found is not None
    assert found.value == pytest.approx(expected[0] * HOUR, rel=0.02)
    assert (found.at_a_time, found.late, found.near) == expected[1:]
    # the one that ends last comes first
    in_order = sorted(running.values(), reverse=True)
    assert [task.remaining for task in found.tasks] == pytest.approx(in_order, rel=0.01)


def test_a_job_that_has_not_begun_or_whose_file_is_torn_has_no_end(
    tmp_path: Path,
) -> None:
    waiting = running_job(tmp_path, ["PENDING", "PENDING"], JobRequest(), {})
    running = running_job(tmp_path / "r", ["RUNNING"], JobRequest(), {0: HOUR})
    (tmp_path / "r/log/tasks_0.joblog.progress").write_bytes(b'{"schema": "wei')
    for job in (waiting, running):
        assert ends_of([job], time.time()) is None


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / ".weigh")


def standings(root: str, *names: str) -> Sequence[JobStanding]:
    env = {"PATH": "", "WEIGH_POLL": "9h"}
    return standings_of_jobs(here_of(os.path.dirname(root), env), names)


def test_ten_jobs_are_listed_the_latest_first_with_those_they_resumed(
    root: str,
) -> None:
    plans = f"{os.path.dirname(root)}/plan"
    for number in range(1, 12):
        write_job(root, f"{plans}/{number}", SomeJob(tasks=(FINE,), id=str(number)))
    again = SomeJob(tasks=(FINE,), id="12", resumes="11")
    write_job(root, f"{plans}/11/resume_1", again)
    shown = [one.jobs for one in standings(root)]
    assert shown == [("11", "12"), *((str(number),) for number in range(10, 1, -1))]


def test_elements_in_a_like_state_for_a_like_reason_are_counted(root: str) -> None:
    write_job(root, f"{os.path.dirname(root)}/plan/p", SomeJob(tasks=(FINE,) * 5))
    ended: list[tuple[State, str | None]] = [
        ("UNKNOWN", "sacct is down"),
        ("COMPLETED", None),
        ("UNKNOWN", "sacct is down"),
        ("UNKNOWN", None),
        ("RUNNING", "other"),
    ]
    states = [ElementState(state=state, reason=reason) for state, reason in ended]
    poll = client.SchedulerPoll(
        asked=time.time(), tried=time.time(), states={JOB: dict(enumerate(states))}
    )
    client.save_poll(root, "slurm", poll)
    (standing,) = standings(root, JOB)
    assert [(one.elements, one.reason) for one in standing.unknown] == [
        (2, "sacct is down")
    ]


def test_the_lines_state_when_whether_in_time_and_which_task_is_last() -> None:
    last: Any = {"remaining": 7200.0, "low": 6900.0, "high": 7500.0}
    task = TaskEnd(task=17, done=42.0, total=100.0, source="tqdm", **last)
    end: Any = {"value": 12 * HOUR, "low": 10.5 * HOUR, "high": 14 * HOUR}
    ends = ExpectedEnd(**end, at_a_time=3, time_limit=24 * 3600, tasks=(task,))
    assert list(ends_lines(ends, 76)) == [
        "done in 12 h 00 m (between 10 h 30 m and 14 h 00 m), 3 elements at a time",
        "task 17  42% by tqdm, 2 h 00 m to go (between 1 h 55 m and 2 h 05 m)",
    ]


@given(
    st.floats(0, 1e8),
    st.floats(0, 1e8),
    st.integers(0, 10**6),
    st.none() | st.integers(1, 10**6),
)
def test_no_line_is_wider_than_the_screen(
    value: float, more: float, late: int, at_a_time: int | None
) -> None:
    end: Any = {"value": value, "low": value, "high": value + more}
    ends = ExpectedEnd(**end, late=late, at_a_time=at_a_time, time_limit=10)
    assert all(len(line) <= 76 for line in ends_lines(ends, 76))
