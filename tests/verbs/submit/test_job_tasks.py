"""How a task stands, by its joblog, its events and the element that it is in."""

from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace
from sessions import check_session
from some_requests import a_submitted_job, some_plan
from transcript import named_texts

from weigh.errors import NO_TIME_LEFT
from weigh.flow.follow.task_history import history_of
from weigh.flow.follow.tasks import judge_by_log, read_tasks
from weigh.joblog import HEADER
from weigh.model.element_time import NOT_STARTED
from weigh.model.job import ElementState, SubmittedJob
from weigh.model.plan import Plan, PlannedElement
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


def test_why_an_element_never_began_is_shown_without_the_folder(tmp_path: Path) -> None:
    why = "job.sh: line 14: no/bin/activate: No such file or directory"
    state = ElementState(state="FAILED", reason=f"/home/u/plan/t/sent/w1/{why}")
    assert judge_by_log(state, str(tmp_path / "none")).reason == why


def keep_attempt(
    folder: Path, job: SubmittedJob, attempt: int, remaining: float
) -> None:
    """Keep the record of an attempt that was killed."""
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
    shards.append_record(str(folder), record, this_machine())


def test_worked_examples_of_tasks(tmp_path_factory: pytest.TempPathFactory) -> None:
    def a_folder(*folders: str) -> Path:
        folder = tmp_path_factory.mktemp("tasks")
        for name in folders:
            (folder / name).mkdir()
        return folder

    helpers = (a_folder, a_job, claims_of, keep_attempt, writes)
    names: dict[str, object] = {one.__name__: one for one in helpers}
    names |= WORDS | {"LOCAL": LOCAL, "a_path": Path}
    check_session(Path(__file__).with_name("task_history.session"), names)
