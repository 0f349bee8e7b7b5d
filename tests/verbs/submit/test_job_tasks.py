"""How a task stands, by its joblog, its events and the element that it is in."""

import subprocess
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace
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


def written_events(lines: str) -> tuple[str, list[msgspec.Struct]]:
    """Return a joblog and events of such lines, which a program wrote.

    `line SEQ EXIT SIGNAL` is one of the joblog, `begun SEQ.ATTEMPT` and `ended
    SEQ.ATTEMPT STATE CODE` of the events, where a CODE below 0 is a signal.
    """
    rows, written = [HEADER], list[msgspec.Struct]()
    for kind, _, text in (line.partition(" ") for line in lines.splitlines()):
        words = text.split()
        options = dict(word.split("=") for word in words if "=" in word)
        seq, _, attempt = words[0].partition(".")
        if kind == "line":
            command = " ".join(words[3:]).replace("\\r", "\r") or "a"
            rows.append("\t".join((seq, *":1100", *words[1:3], command)))
        elif kind == "begun":
            memory = int(options["memory"]) if options else None
            start = events.AttemptStarted(
                int(seq), int(attempt), "run", 1.0, 1, 5, 6, "task"
            )
            alone = memory is not None
            written.append(replace(start, memory=memory, alone=alone))
        elif kind == "closed":
            written.append(events.RunClosed("run", float(text), "stopped by a signal"))
        else:
            reason, code = options.get("reason"), int(words[2])
            ended = events.AttemptEnded(
                int(seq),
                int(attempt),
                float(options.get("at", 2.0)),
                words[1],
                code if code >= 0 else None,
                -code if code < 0 else None,
                "r",
                getattr(events, reason or "", reason),
                again="again" in words,
                peak_memory=int(options["peak"]) if "peak" in options else None,
            )
            written.append(ended)
    return "".join(f"{row}\n" for row in rows), written


def writes(folder: Path, lines: str, name: str = "tasks_0") -> None:
    """Write a joblog and its events."""
    joblog = folder / f"log/{name}.joblog"
    joblog.parent.mkdir(exist_ok=True)
    text, written = written_events(lines)
    joblog.write_bytes(text.encode())
    if written:
        encoded = (msgspec.json.encode(one) + b"\n" for one in written)
        Path(f"{joblog}{events.SUFFIX}").write_bytes(b"".join(encoded))


# the state of the element, and of its tasks; what was written of them
STATES = named_texts(Path(__file__).with_name("task_states.texts"))
REASONS = {"time": "stopped before its time limit"}


@pytest.mark.parametrize("situation", STATES)
def test_a_task_stands_as_it_ended_and_its_element(
    tmp_path: Path, situation: str
) -> None:
    head, _, lines = STATES[situation].partition("\n")
    known, _, expected = head.partition(" -> ")
    state, *more = known.split()
    options = dict(one.split("=") for one in more)
    job, plan = a_job(tmp_path, tasks=len(expected.split()))
    writes(tmp_path, lines)

    element = ElementState(
        state=cast("State", state),
        ended=float(options["ended"]) if "ended" in options else None,
        reason=REASONS.get(options.get("reason", "")),
    )
    read = read_tasks(history_of(job), plan, LOCAL, [element])

    assert [task.state for task in read] == expected.split()


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
    writes(tmp_path, "line 1 0 9\nended 1.1 FAILED -9")
    history = JoblogHistory(str(tmp_path / "log" / "tasks_0.joblog"))
    runs = ElementState(state="RUNNING")

    one = ElementTasks("7", 0, (1, 2, 3), runs, history, seqs=frozenset({1}))

    assert [task.state for task in one.tasks({1: False})] == ["RUNNING"]


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
    plan = replace(plan, queue=queue)
    folder = tmp_path / "queue"
    folder.mkdir()
    own = claims_of(folder, "tasks_0", "../log/tasks_0.joblog")
    assert all(own.take(unit, 0) for unit in (0, 1, 4))
    resumed = claims_of(folder, "round_2", "")
    assert resumed.take(1, 1)
    assert resumed.take(2, 0)
    assert claims_of(folder, "login1", "../log/login1.joblog").take(5, 0)
    begun_and_failed = "begun 5.1\nended 2.1 FAILED 1\n"
    writes(tmp_path, f"{begun_and_failed}line 1 0 0\nline 2 1 0")
    writes(tmp_path, "line 6 0 0", name="login1")

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

    plan = replace(plan, queue=queue)
    read = read_tasks(history_of(job), plan, LOCAL, [ElementState(state="FAILED")])

    assert [(task.state, task.reason) for task in read] == [("INTERRUPTED", LEFT)]


@pytest.mark.parametrize(
    ("element", "end", "known"),
    [
        # a signal ended it, as nothing moved
        (
            "FAILED",
            "line 1 0 15\nended 1.1 STUCK -15 reason=stuck",
            {"state": "STUCK", "reason": "stuck", "signal": 15},
        ),
        # it was to run again with more memory when its node was lost
        (
            "NODE_FAIL",
            "ended 1.1 OUT_OF_MEMORY -9 again peak=6",
            {"state": "NODE_FAIL", "short": True, "alone": True, "peak": 6},
        ),
    ],
)
def test_how_an_attempt_ended_is_read_from_its_events(
    tmp_path: Path, element: State, end: str, known: dict[str, object]
) -> None:
    job, plan = a_job(tmp_path, tasks=1)
    writes(tmp_path, f"begun 1.1 memory=5\n{end}")

    (task,) = read_tasks(history_of(job), plan, LOCAL, [ElementState(state=element)])

    assert {name: getattr(task, name) for name in known} == known


@pytest.mark.parametrize("is_script", [False, True])
def test_how_long_a_killed_task_would_have_taken_is_in_its_newest_record(
    tmp_path: Path, *, is_script: bool
) -> None:
    job, _ = a_job(tmp_path, tasks=2)
    if is_script:
        job = replace(job, own=OwnScript())
    writes(tmp_path, "begun 1.1\nbegun 1.2")  # killed with their element: no end
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
