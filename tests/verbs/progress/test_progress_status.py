"""The state of jobs, and when they end, from what their elements left."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import JOB, SomeJob, Task, write_job
from some_requests import a_submitted_job

from weigh.flow.follow.status import ends_of, standings_of_jobs
from weigh.flow.follow.view import JobView, work_of
from weigh.flow.here import here_of
from weigh.flow.plan import directory as plan_directory
from weigh.joblog import HEADER
from weigh.model.job import ElementState, JobRequest, TaskState
from weigh.model.record import ReportedProgress, State
from weigh.render.progress_lines import ExpectedEnd, TaskEnd, ends_lines
from weigh.render.status_lines import JobStanding
from weigh.runner.events import RunningProgress, TaskHeadway, write_progress
from weigh.schedulers import client
from weigh.schedulers.reachable import JobSnapshot

HOUR = 3600.0
FINE = Task()


class Job:
    """The folder of a job with an element a task, as its elements wrote it."""

    def __init__(
        self, folder: Path, states: list[State], wanted: JobRequest | None = None
    ) -> None:
        self._log = folder / "log"
        self._log.mkdir(parents=True)
        self._now = time.time()
        count = len(states)
        elements = [
            {"file": f"tasks_{n}.txt", "tasks": [n + 1], "gpu_memory": 0, "memory": 1}
            | {"cpus": 1}
            for n in range(count)
        ]
        plan = {
            "name": "t",
            "task_file": "t.txt",
            "tasks": count,
            "headroom": 0.2,
            "card": None,
            "capacity": {},
            "ask": {"cpus": 1},
            "kinds": [],
            "elements": elements,
        }
        (folder / plan_directory.FILE).write_bytes(msgspec.json.encode(plan))
        self._states = states
        self._job = a_submitted_job(
            scheduler="local",
            name="t",
            folder=str(folder),
            cwd=str(folder),
            script="job.sh",
            elements=count,
            tasks=count,
            submitted=self._now,
            request=wanted or JobRequest(),
        )

    def done(self, element: int, took: float) -> None:
        """Write that its task is done."""
        line = f"1\t:\t{self._now:.3f}\t{took:.3f}\t0\t0\t0\t0\ttrue\n"
        (self._log / f"tasks_{element}.joblog").write_text(f"{HEADER}\n{line}")

    def runs(self, element: int, *, since: float, left: float | None = None) -> None:
        """Write that its task began, and that it says it has so much left."""
        joblog = f"{self._log}/tasks_{element}.joblog"
        started = self._now - since
        event = {"event": "started", "seq": 1, "attempt": 1, "run": "r"}
        event |= {"time": started, "slot": 1, "pid": 1, "start_time": None}
        event |= {"task": "00000000"}
        Path(f"{joblog}.events.jsonl").write_bytes(msgspec.json.encode(event) + b"\n")
        if left is None:
            return
        headway = ReportedProgress(
            done=50.0,
            total=100.0,
            source="tqdm",
            time=since,
            remaining=left,
            low=0.9 * left,
            high=1.1 * left,
        )
        headway_of_task = TaskHeadway(
            seq=1, attempt=1, started=started, headway=headway
        )
        progress = RunningProgress(
            run="r", time=self._now, slots=1, tasks=(headway_of_task,)
        )
        assert write_progress(f"{joblog}.progress", progress)

    def ends(self) -> ExpectedEnd | None:
        """Describe when it is done."""
        elements = tuple(
            ElementState(state=state, started=self._now - HOUR)
            for state in self._states
        )
        tasks = tuple(
            TaskState(task=n + 1, job="7", element=n, seq=1, state=state)
            for n, state in enumerate(self._states)
        )
        snapshot, work = JobSnapshot({}, self._now), work_of(self._job)
        view = JobView(self._job, None, elements, tasks, snapshot, work)  # type: ignore[arg-type]
        return ends_of([view], self._now)


def test_a_job_ends_with_the_task_that_runs_longest(tmp_path: Path) -> None:
    job = Job(tmp_path / "j", ["RUNNING", "RUNNING"])
    job.runs(0, since=HOUR, left=HOUR)
    job.runs(1, since=HOUR, left=2 * HOUR)
    found = job.ends()
    assert found is not None
    assert found.value == pytest.approx(2 * HOUR, rel=0.02)
    assert [(task.task, task.remaining) for task in found.tasks] == [
        (2, 2 * HOUR),
        (1, HOUR),
    ]


def test_elements_that_wait_take_what_those_done_took(tmp_path: Path) -> None:
    job = Job(tmp_path / "j", ["COMPLETED", "RUNNING", "PENDING", "PENDING"])
    job.done(0, HOUR)
    job.runs(1, since=HOUR / 2, left=HOUR / 2)
    found = job.ends()
    assert found is not None
    assert found.value == pytest.approx(2.5 * HOUR, rel=0.1)
    assert found.at_a_time == 1


def test_the_throttle_states_how_many_run_at_a_time(tmp_path: Path) -> None:
    job = Job(tmp_path / "j", ["RUNNING", "PENDING", "PENDING"], JobRequest(throttle=3))
    job.runs(0, since=HOUR / 2, left=HOUR / 2)
    found = job.ends()
    assert found is not None
    assert found.at_a_time == 3
    # the later of two that begin now and vary by .3: 1 + .3 / sqrt(pi) on average
    assert found.value == pytest.approx(1.17 * HOUR, rel=0.1)


def test_a_job_that_has_not_begun_has_no_end(tmp_path: Path) -> None:
    assert Job(tmp_path / "j", ["PENDING", "PENDING"]).ends() is None


@pytest.mark.parametrize(
    ("left", "late", "near"),
    [((2 * HOUR, HOUR / 2), 1, 0), ((HOUR,), 0, 1), ((HOUR / 2,), 0, 0)],
)
def test_elements_that_exceed_their_limit_or_may_are_counted(
    tmp_path: Path, left: Sequence[float], late: int, near: int
) -> None:
    limit = JobRequest(time_limit=2 * 3600)  # an hour is left of it
    job = Job(tmp_path / "j", ["RUNNING"] * len(left), limit)
    for element, seconds in enumerate(left):
        job.runs(element, since=HOUR, left=seconds)
    found = job.ends()
    assert found is not None
    assert (found.late, found.near) == (late, near)


def test_a_torn_progress_file_is_none(tmp_path: Path) -> None:
    job = Job(tmp_path / "j", ["RUNNING"])
    job.runs(0, since=HOUR, left=HOUR)
    (tmp_path / "j" / "log" / "tasks_0.joblog.progress").write_bytes(b'{"schema": "wei')
    assert job.ends() is None


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
    task = TaskEnd(
        task=17,
        done=42.0,
        total=100.0,
        source="tqdm",
        remaining=7200.0,
        low=6900.0,
        high=7500.0,
    )
    ends = ExpectedEnd(
        value=12 * HOUR,
        low=10.5 * HOUR,
        high=14 * HOUR,
        at_a_time=3,
        time_limit=24 * 3600,
        tasks=(task,),
    )
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
    ends = ExpectedEnd(
        value=value,
        low=value,
        high=value + more,
        late=late,
        at_a_time=at_a_time,
        time_limit=10,
    )
    assert all(len(line) <= 76 for line in ends_lines(ends, 76))
