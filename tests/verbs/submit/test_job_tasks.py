"""How a task stands, by its joblog, its events and the element that it is in."""

import subprocess
from pathlib import Path
from typing import cast

import msgspec
import pytest
from some_requests import a_submitted_job, some_plan
from transcript import named_texts

from weigh.errors import NO_TIME_LEFT
from weigh.flow.follow.task_history import JoblogHistory, history_of
from weigh.flow.follow.tasks import (
    ElementTasks,
    judge_by_log,
    last_lines_of_output,
    read_tasks,
)
from weigh.joblog import HEADER
from weigh.model.element_time import NOT_STARTED
from weigh.model.job import ElementState, OwnScript, SubmittedJob
from weigh.model.plan import (
    Plan,
    PlannedElement,
    PlannedQueue,
)
from weigh.model.record import Record, RecordedJob, ReportedProgress, State
from weigh.runner import events
from weigh.runner.shared_queue import OwnClaims, QueueOwner
from weigh.schedulers.job_script import AGAIN, ENDED, NEAR
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store import shards
from weigh.store.identity import ProcessIdentity, this_machine

KILL = 9
LOCAL = LocalScheduler(env={}, root="", machine=this_machine())


def a_job(folder: Path, *, tasks: int) -> tuple[SubmittedJob, Plan]:
    """Return a job of one element with so many tasks."""
    element = PlannedElement("tasks_0.txt", tuple(range(1, tasks + 1)), 0, 0, 1)
    plan = some_plan(tasks=tasks, elements=(element,))
    job = a_submitted_job(
        scheduler="local",
        folder=str(folder),
        cwd=str(folder),
        script="job.sh",
        tasks=tasks,
    )
    return job, plan


def writes(
    folder: Path, rows: str, *written: msgspec.Struct, name: str = "tasks_0"
) -> None:
    """Write rows `SEQ EXIT SIGNAL` of a joblog, and its events."""
    joblog = folder / f"log/{name}.joblog"
    joblog.parent.mkdir(exist_ok=True)
    ends = (row.split() for row in rows.splitlines())
    lines = (f"{n}\t:\t1.0\t1.0\t0\t0\t{code}\t{by}\ta\n" for n, code, by in ends)
    joblog.write_text(f"{HEADER}\n{''.join(lines)}")
    text = b"".join(msgspec.json.encode(one) + b"\n" for one in written)
    if written:
        Path(f"{joblog}{events.SUFFIX}").write_bytes(text)


def prints_killed(folder: Path, *, state: str) -> None:
    """Write what weigh exec writes when the first task is killed."""
    ended = events.AttemptEnded(1, 1, 2.0, state, None, KILL, "r")
    writes(folder, f"1 0 {KILL}", ended)


def prints_failed(folder: Path, *, at: float, closed: float | None) -> None:
    """Write what weigh exec writes when the first task exits with 1."""
    said: list[msgspec.Struct] = [events.AttemptEnded(1, 1, at, "FAILED", 1, None, "r")]
    if closed is not None:
        said.append(events.RunClosed("run", closed, "stopped by a signal"))
    writes(folder, "1 1 0", *said)


def states_of(
    job: SubmittedJob, plan: Plan, state: State, **known: float | str
) -> list[str]:
    """Return the state of each task, in an element of this state."""
    element = ElementState(state=state, **known)  # type: ignore[arg-type]
    return [task.state for task in read_tasks(history_of(job), plan, LOCAL, [element])]


@pytest.mark.parametrize(
    ("element", "tasks", "printed", "expected"),
    [
        ("RUNNING", 1, "FAILED", "RUNNING"),  # the scheduler will soon say why
        ("RUNNING", 2, "FAILED", "FAILED"),  # the others go on: it alone was killed
        ("OUT_OF_MEMORY", 1, "FAILED", "OUT_OF_MEMORY"),
        ("CANCELLED", 1, "FAILED", "CANCELLED"),
        ("FAILED", 1, "FAILED", "FAILED"),
        # what the kernel killed for memory ran out of it
        ("RUNNING", 1, "OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("FAILED", 1, "OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("COMPLETED", 1, "OUT_OF_MEMORY", "OUT_OF_MEMORY"),
    ],
)
def test_a_killed_task_waits_for_its_element_to_state_why(
    tmp_path: Path, element: State, tasks: int, printed: str, expected: State
) -> None:
    job, plan = a_job(tmp_path, tasks=tasks)
    prints_killed(tmp_path, state=printed)

    assert states_of(job, plan, element)[0] == expected


@pytest.mark.parametrize(
    ("state", "reason", "attempts", "expected"),
    [
        ("PREEMPTED", events.STOPPED_FOR_MEMORY, 1, "OUT_OF_MEMORY"),
        ("OUT_OF_MEMORY", "killed for memory", 1, "OUT_OF_MEMORY"),
        ("OUT_OF_MEMORY", "killed for memory", 2, "TIMEOUT"),  # it ran when time ended
        ("FAILED", None, 1, "TIMEOUT"),
    ],
)
def test_a_task_that_waited_for_memory_until_the_time_limit_lacked_memory_not_time(
    tmp_path: Path, state: str, reason: str | None, attempts: int, expected: State
) -> None:
    """A task beside it hung, and held the memory that it needed."""
    job, plan = a_job(tmp_path, tasks=1)
    written: list[msgspec.Struct] = []
    for attempt in range(1, attempts + 1):
        written.append(events.AttemptStarted(1, attempt, "run", 1.0, 1, 5, 6, "task"))
        if attempt == 1:
            ended = events.AttemptEnded(
                1, 1, 2.0, state, None, KILL, "r", reason, again=True
            )
            written.append(ended)
    writes(tmp_path, "", *written)

    reason = "stopped before its time limit"
    assert states_of(job, plan, "TIMEOUT", reason=reason) == [expected]


@pytest.mark.parametrize(
    ("exits", "killed", "expected"),
    [
        ((0,), (), ["OUT_OF_MEMORY"]),
        ((0, 0), (), ["OUT_OF_MEMORY", "OUT_OF_MEMORY"]),  # which one is not known
        ((0, 1), (), ["COMPLETED", "OUT_OF_MEMORY"]),
        ((0, 0), (2,), ["COMPLETED", "COMPLETED"]),  # and it was tried again
    ],
)
def test_a_kill_that_only_the_scheduler_saw_is_that_of_the_tasks_it_may_be(
    tmp_path: Path, exits: tuple[int, ...], killed: tuple[int, ...], expected: list[str]
) -> None:
    job, plan = a_job(tmp_path, tasks=len(exits))
    ends = [
        *(
            events.AttemptEnded(n, 1, 2.0, "OUT_OF_MEMORY", None, KILL, "r")
            for n in killed
        ),
        *(
            events.AttemptEnded(n, 2, 2.0, "x", code, None, "r")
            for n, code in enumerate(exits, 1)
        ),
    ]
    rows = (f"{n} {code} 0\n" for n, code in enumerate(exits, 1))
    writes(tmp_path, "".join(rows), *ends)

    assert states_of(job, plan, "OUT_OF_MEMORY") == expected


@pytest.mark.parametrize(
    ("element", "before", "expected"),
    [
        ("CANCELLED", 0.5, "CANCELLED"),  # a trap of its own: exit 1
        ("CANCELLED", 19.0, "CANCELLED"),
        ("CANCELLED", 60.0, "FAILED"),  # long before anybody cancelled anything
        ("FAILED", 0.5, "FAILED"),
    ],
)
@pytest.mark.parametrize("closed", [True, False])
def test_a_task_that_ends_as_its_element_is_cancelled_was_cancelled(
    tmp_path: Path,
    element: State,
    before: float,
    expected: State,
    *,
    closed: bool,
) -> None:
    job, plan = a_job(tmp_path, tasks=2)
    prints_failed(tmp_path, at=1000.0, closed=1000.0 + before if closed else None)

    assert states_of(job, plan, element, ended=1000.0 + before)[0] == expected


def test_a_failure_is_a_failure_where_nobody_knows_when_the_element_ended(
    tmp_path: Path,
) -> None:
    job, plan = a_job(tmp_path, tasks=2)
    prints_failed(tmp_path, at=1000.0, closed=None)

    assert states_of(job, plan, "CANCELLED")[0] == "FAILED"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -9 $BASHPID & wait $!\n(kill -9 $BASHPID)", "job.sh: line 2: Killed"),
        ("(kill -SEGV $BASHPID)", "job.sh: line 1: Segmentation fault"),
        ("no-such-program", "job.sh: line 1: no-such-program: command not found"),
        ("echo /data/a.txt: line 3: bad; exit 1", "a.txt: line 3: bad"),
        ("echo 'ValueError: 12 Killed  x'", "ValueError: 12 Killed  x"),
    ],
)
def test_what_a_shell_prints_of_its_script_is_a_reason_that_fits_a_list(
    tmp_path: Path, script: str, reason: str
) -> None:
    path = tmp_path / "a/long/way/down/to/job.sh"
    path.parent.mkdir(parents=True)
    path.write_text(f"{script}\n")
    log = tmp_path / "log"
    with log.open("wb") as file:
        subprocess.run(
            ["bash", path], stdout=file, stderr=subprocess.STDOUT, check=False
        )
    assert last_lines_of_output(str(log)) == (reason,)


def test_a_kill_that_only_the_scheduler_saw_is_shown_of_a_shared_queue(
    tmp_path: Path,
) -> None:
    """A worker was killed, and its command exited with 0 all the same."""
    killed = ElementState(state="OUT_OF_MEMORY", reason="killed for memory")
    history = JoblogHistory(str(tmp_path / "tasks_0.joblog"))

    # of a queue of three tasks it claimed one
    one = ElementTasks("7", 0, (1, 2, 3), killed, history, seqs=frozenset({2}))

    assert [task.state for task in one.tasks({2: True})] == ["OUT_OF_MEMORY"]


def test_the_last_task_of_an_element_of_a_queue_waits_for_why_it_was_killed(
    tmp_path: Path,
) -> None:
    prints_killed(tmp_path, state="FAILED")
    history = JoblogHistory(str(tmp_path / "log" / "tasks_0.joblog"))
    runs = ElementState(state="RUNNING")

    one = ElementTasks("7", 0, (1, 2, 3), runs, history, seqs=frozenset({1}))

    assert [task.state for task in one.tasks({1: False})] == ["RUNNING"]


def test_a_task_whose_command_holds_a_carriage_return_is_done(tmp_path: Path) -> None:
    job, plan = a_job(tmp_path, tasks=1)
    (tmp_path / "log").mkdir()
    line = f"{HEADER}\n1\t:\t1.0\t1.0\t0\t0\t0\t0\tprintf 'a\rb'\n"
    (tmp_path / "log/tasks_0.joblog").write_bytes(line.encode())

    assert states_of(job, plan, "FAILED") == ["COMPLETED"]


def claims_of(folder: Path, name: str, joblog: str) -> OwnClaims:
    """Return the claims of a run that pulls from the queue in *folder*."""
    owner = QueueOwner(
        name=name,
        joblog=joblog,
        run=name,
        machine=this_machine(),
        process=ProcessIdentity(1),
        folder=str(folder),
    )
    claims = OwnClaims(str(folder), owner)
    claims.enter()
    return claims


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        # 1 is done, 2 failed, and a round claimed it and 3; 4 has nobody, 5 was begun,
        # and 6 was done by hand
        ("RUNNING", "COMPLETED FAILED PENDING PENDING RUNNING COMPLETED"),
        ("NODE_FAIL", "COMPLETED FAILED INTERRUPTED INTERRUPTED NODE_FAIL COMPLETED"),
        ("CANCELLED", "COMPLETED FAILED CANCELLED CANCELLED CANCELLED COMPLETED"),
    ],
)
def test_a_task_of_a_queue_is_as_its_owner_left_it_or_free(
    tmp_path: Path, element: State, expected: str
) -> None:
    job, plan = a_job(tmp_path, tasks=6)
    numbers = tuple(range(1, 7))
    queue = PlannedQueue(folder="queue", tasks=numbers, kinds=(0,) * 6, slots=1)
    plan = msgspec.structs.replace(plan, queue=queue)
    folder = tmp_path / "queue"
    folder.mkdir()
    own = claims_of(folder, "tasks_0", "../log/tasks_0.joblog")
    assert all(own.take(unit, 0) for unit in (0, 1, 4))
    resumed = claims_of(folder, "round_2", "")
    assert resumed.take(1, 1)
    assert resumed.take(2, 0)
    assert claims_of(folder, "login1", "../log/login1.joblog").take(5, 0)
    written = [
        events.AttemptStarted(5, 1, "tasks_0", 1.0, 1, 5, 6, "task"),
        events.AttemptEnded(2, 1, 2.0, "FAILED", 1, None, "r"),
    ]
    writes(tmp_path, "1 0 0\n2 1 0", *written)
    writes(tmp_path, "6 0 0", name="login1")

    read = list(read_tasks(history_of(job), plan, LOCAL, [ElementState(state=element)]))

    assert [task.state for task in read] == expected.split()
    assert [task.claims for task in read] == [1, 2, 1, 0, 1, 1]


LEFT = f"{NOT_STARTED} 2 tasks, as the next needs 5 m"
WORDS = {"LEFT": LEFT, "ENDED": ENDED, "NEAR": NEAR, "AGAIN": AGAIN}
WORDS["NO_TIME_LEFT"] = NO_TIME_LEFT
# what the scheduler reports, what follows, and the end of the log
JUDGED = named_texts(Path(__file__).with_name("judged_logs.texts"))


@pytest.mark.parametrize("end", JUDGED)
def test_an_element_is_judged_by_the_end_of_its_log(tmp_path: Path, end: str) -> None:
    head, _, words = JUDGED[end].format(**WORDS).partition("\n")
    reported, _, expected = head.partition(" -> ")
    log = tmp_path / "7.out"
    log.write_text(words)

    judged = judge_by_log(ElementState(state=cast("State", reported)), str(log))

    why = "" if judged.reason is None else f": {judged.reason}"
    assert f"{judged.state}{why}" == expected


def test_tasks_that_an_element_left_for_want_of_time_say_so(tmp_path: Path) -> None:
    job, plan = a_job(tmp_path, tasks=1)
    queue = PlannedQueue(folder="queue", tasks=(1,), kinds=(0,), slots=1)
    log = Path(history_of(job).log(LOCAL, 0))
    log.parent.mkdir()
    log.write_text(f"weigh: {LEFT}\n{ENDED} {NO_TIME_LEFT}\n")

    plan = msgspec.structs.replace(plan, queue=queue)
    read = read_tasks(history_of(job), plan, LOCAL, [ElementState(state="FAILED")])

    assert [(task.state, task.reason) for task in read] == [("INTERRUPTED", LEFT)]


@pytest.mark.parametrize(
    ("element", "row", "end", "known"),
    [
        # a signal ended it, as nothing moved
        (
            "FAILED",
            "1 0 15",
            events.AttemptEnded(1, 1, 2.0, "STUCK", None, 15, "r", reason="stuck"),
            {"state": "STUCK", "reason": "stuck", "signal": 15},
        ),
        # it was to run again with more memory when its node was lost
        (
            "NODE_FAIL",
            "",
            events.AttemptEnded(
                1, 1, 2.0, "OUT_OF_MEMORY", None, 9, "r", again=True, peak_memory=6
            ),
            {"state": "NODE_FAIL", "short": True, "alone": True, "peak": 6},
        ),
    ],
)
def test_how_an_attempt_ended_is_read_from_its_events(
    tmp_path: Path,
    element: State,
    row: str,
    end: events.AttemptEnded,
    known: dict[str, object],
) -> None:
    job, plan = a_job(tmp_path, tasks=1)
    begun = events.AttemptStarted(1, 1, "r", 1.0, 1, 7, None, "t", memory=5, alone=True)
    writes(tmp_path, row, begun, end)

    (task,) = read_tasks(history_of(job), plan, LOCAL, [ElementState(state=element)])

    assert {name: getattr(task, name) for name in known} == known


def test_a_task_of_a_running_element_runs_once_it_has_begun(tmp_path: Path) -> None:
    job, plan = a_job(tmp_path, tasks=2)
    begun = events.AttemptStarted(1, 1, "run", 1.0, 1, 5, 6, "task")
    writes(tmp_path, "", begun)

    assert states_of(job, plan, "RUNNING") == ["RUNNING", "PENDING"]


@pytest.mark.parametrize("is_script", [False, True])
def test_how_long_a_killed_task_would_have_taken_is_in_its_newest_record(
    tmp_path: Path, *, is_script: bool
) -> None:
    job, _ = a_job(tmp_path, tasks=2)
    if is_script:
        job = msgspec.structs.replace(job, own=OwnScript())
    begun = [
        events.AttemptStarted(1, attempt, "r", 1.0, 1, 1, None, "")
        for attempt in (1, 2)
    ]
    writes(tmp_path, "", *begun)  # killed with their element: no end
    for attempt, remaining in ((1, 30.0), (2, 120.0)):
        progress = ReportedProgress(
            done=1.0, total=3.0, source="tqdm", time=60.0, remaining=remaining
        )
        record = Record(
            id=f"{attempt:012}",
            command=("true",),
            started="2026-11-26T10:00:05Z",
            job=RecordedJob(job.id, task=1, attempt=attempt),
            progress=progress,
        )
        shards.append_record(str(tmp_path), record, this_machine())

    assert history_of(job).whole_times(str(tmp_path)) == {(0, 1): 180.0}
