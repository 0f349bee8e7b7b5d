"""``weigh report`` as it is called: what it takes, what it refuses, exit codes."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from processes import until
from run_captured import run_captured
from some_jobs import BEGAN, JOB, Say, SomeJob, Task, record_of, write_job
from some_requests import a_submitted_job
from some_runs import keep_runs
from transcript import check_transcript
from written_programs import room_for, write_program

from weigh.flow.follow.view import JobView, work_of
from weigh.flow.report.runs import runs_of_view
from weigh.model.job import (
    ElementState,
    OwnScript,
    TaskState,
)
from weigh.model.record import (
    Allocation,
    RecordedJob,
)
from weigh.model.report import JobReport
from weigh.runner import events
from weigh.schedulers import client
from weigh.schedulers.reachable import JobSnapshot
from weigh.units import GIB, MIB


def measured(root: str, number: int, **words: object) -> str:
    """Keep a record of a run outside any job; give its id."""
    record = msgspec.structs.replace(record_of(Task(), number), **words)
    keep_runs(Path(root).parent, record)
    return record.id


def report_of(say: Say, name: str) -> JobReport:
    return msgspec.json.decode(say("report", name, "--json")[1], type=JobReport)


def test_mistakes_are_one_line_with_the_way_out(
    root: str, say: Say, tmp_path: Path
) -> None:
    def given(situation: str) -> None:
        if situation == "nothing":
            Path(root).unlink(missing_ok=True)
        if situation == "a run":
            measured(root, 1)
        if situation == "a file in place of the records":
            Path(root).write_text("")

    path, folder = Path(__file__).with_name("mistakes.transcript"), str(tmp_path)
    check_transcript(path, say, {folder: "FOLDER"}, given)


def test_the_id_of_another_project_is_not_found(
    root: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(root, 1)
    theirs = measured(str(tmp_path / "other" / ".weigh"), 0xABCDEF)
    monkeypatch.chdir(tmp_path)
    code, _, err = say("report", theirs)
    assert code == 2
    assert "no record called" in err


def test_a_program_gets_the_same_report(root: str, say: Say) -> None:
    write_job(root, f"{Path(root).parent}/plan/p", SomeJob(tasks=(Task(),)))
    code = (
        "import weigh, msgspec\n"
        f"print(msgspec.json.encode(weigh.report({JOB!r})).decode())\n"
        "print(type(weigh.report()).__name__)"
    )
    done = run_captured((sys.executable, "-c", code), check=True)
    own, regions = done.stdout.splitlines()
    assert json.loads(own) == json.loads(say("report", JOB, "--json")[1])
    assert regions == "ProgramRegions"


def test_a_run_of_no_job_is_advised_in_the_flags_of_the_scheduler_that_is_here(
    root: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(root, 1, parameters={"n": 1})
    measured(root, 2, parameters={"n": 2})
    for name, flags in (("sbatch", "--time="), ("qsub", "-l h_rt=")):
        monkeypatch.setenv("PATH", str(tmp_path / name))
        write_program(tmp_path / name / name, "exit 1")
        for words in (
            ("report", "last"),
            ("scan", "n", "--from", "all", "--target", "3"),
        ):
            code, out, err = say(*words)
            assert (code, flags in out) == (0, True), (words, out, err)


def test_a_sweep_run_here_is_reported_by_its_own_figures_and_parameters(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    holds = "x = bytearray({mib} << 20); assert {mib}, 'no luck'"
    assert say("sweep", "mib=100,0", "--", sys.executable, "-c", holds)[0] == 0
    assert say("plan", "tasks.txt", "--memory", "1G", "--time", "5m")[0] == 0
    assert say("submit", "--on", "local", "plan/tasks")[0] == 0
    until(lambda: not re.search("running|waiting", say("status", "last")[1]))

    # a task has ended before its figures are written
    until(lambda: all(row.memory for row in report_of(say, "last").rows))
    told = report_of(say, "last")
    assert told.states == {"COMPLETED": 1, "FAILED": 1}
    memory = next(one for one in told.measures if one.name == "memory")
    assert 100 * MIB < (memory.most or 0) < 150 * MIB
    assert [row.parameters for row in told.rows] == [{"mib": 100}, {"mib": 0}]
    assert [row.error for row in told.rows] == [None, "AssertionError: no luck"]
    assert {row.wall_time is not None for row in told.rows} == {True}
    assert (told.rows[1].output or "").endswith("/2.out")


def test_a_task_that_still_runs_has_no_error(root: str, say: Say) -> None:
    folder = f"{Path(root).parent}/plan/p"
    write_job(root, folder, SomeJob(tasks=(Task(state="FAILED", words="step 3"),)))
    Path(folder, "log", "tasks_0.joblog").write_text("")
    told = Path(folder, "log", f"tasks_0.joblog{events.SUFFIX}")
    begun = [line for line in told.read_bytes().splitlines() if b"ended" not in line]
    told.write_bytes(b"\n".join(begun) + b"\n")
    now = ElementState(state="RUNNING", started=1_795_253_989.0)
    said = client.SchedulerPoll(asked=1e10, tried=1e10, states={JOB: {0: now}})
    client.save_poll(root, "slurm", said)
    (row,) = report_of(say, JOB).rows
    assert (row.state, row.error) == ("RUNNING", None)
    assert row.memory == GIB  # no event names its record


def test_hours_of_a_label_are_of_what_each_run_was_granted(root: str, say: Say) -> None:
    for number, cpus in enumerate((1, 4), start=1):
        granted = Allocation(scheduler="slurm", cpus=cpus)
        measured(root, number, label="tag", allocation=granted)
    assert report_of(say, "tag").cpu_hours == pytest.approx(5.0)


def test_a_page_is_written_to_a_file_or_to_standard_output(
    root: str, say: Say, tmp_path: Path
) -> None:
    measured(root, 1, label="train")
    written = say("report", "train", "-o", "out.html")
    assert written == (0, "", "weigh: wrote out.html\n")
    html = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>train 000000 - weigh report</title>" in html
    assert say("report", "train", "-o", "-") == (0, html, "")

    line = f"{sys.executable} -m weigh report -o - | /usr/bin/head -c 9"
    ran = subprocess.run(["/bin/bash", "-c", line], capture_output=True, check=False)
    assert (ran.stdout, ran.stderr) == (b"<!DOCTYPE", b"")


def test_a_page_that_cannot_be_written_leaves_the_one_before(
    root: str, say: Say, tmp_path: Path
) -> None:
    measured(root, 1)
    code, _, err = say("report", "last", "-o", "no/such/out.html")
    assert (code, err.endswith("(create it first: mkdir -p no/such)\n")) == (125, True)
    page = tmp_path / "out.html"
    page.write_text("the page before")
    page.chmod(0o644)
    with room_for(2048):
        code, _, err = say("report", "last", "-o", "out.html")
    assert (code, err) == (125, "weigh: cannot write out.html: File too large\n")
    assert page.read_text() == "the page before"
    assert [one.name for one in tmp_path.glob("out.html*")] == ["out.html"]
    assert say("report", "last", "-o", "out.html")[0] == 0
    assert page.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("scheduler", "started", "is_its"),
    [
        ("slurm", "2026-11-26T10:00:05Z", True),
        ("gridengine", "2026-11-26T10:00:05Z", False),
        ("slurm", "2026-09-01T10:00:05Z", False),
    ],
)
def test_a_record_of_another_job_with_the_same_id_is_not_of_the_job(
    tmp_path: Path, scheduler: str, started: str, *, is_its: bool
) -> None:
    """Each scheduler counts from 1, again where it was installed again."""
    record = msgspec.structs.replace(
        record_of(Task(memory=GIB), 1),
        allocation=Allocation(scheduler=scheduler, cpus=1),
        job=RecordedJob(id="2"),
        started=started,
    )
    keep_runs(tmp_path, record)
    job = a_submitted_job(
        id="2",
        name="fit",
        script="/p/fit.sh",
        submitted=datetime.fromisoformat("2026-11-26T10:00:00Z").timestamp(),
        own=OwnScript(),
    )
    task = TaskState(task=1, job="2", element=0, seq=1, state="COMPLETED")
    states = (ElementState(state="COMPLETED"),)
    snapshot = JobSnapshot(states={}, asked=0.0)
    view = JobView(job, None, states, (task,), snapshot, work_of(job))  # type: ignore[arg-type]
    (run,) = runs_of_view(view, f"{tmp_path}/.weigh")
    assert (run.row.memory == GIB) is is_its


def test_an_element_that_began_after_the_scheduler_answered_runs(
    root: str, say: Say
) -> None:
    write_job(root, f"{Path(root).parent}/plan/p", SomeJob(tasks=(Task(), Task())))
    joblog = Path(root).parent / "plan/p/log/tasks_0.joblog"
    joblog.unlink()
    written = Path(f"{joblog}.events.jsonl")
    written.write_text("".join(written.read_text().splitlines(keepends=True)[:2]))
    waits = client.SchedulerPoll(
        asked=BEGAN,
        tried=BEGAN,
        states={
            JOB: {0: ElementState(state="PENDING"), 1: ElementState(state="PENDING")}
        },
    )
    client.save_poll(root, "slurm", waits)
    os.utime(written, (BEGAN + 1, BEGAN + 1))
    os.utime(f"{str(joblog).replace('_0', '_1')}.events.jsonl", (BEGAN - 9, BEGAN - 9))

    status = json.loads(say("status", JOB, "--json")[1])["jobs"][0]["tasks"]
    report = json.loads(say("report", JOB, "--json")[1])["states"]

    assert status == report == {"RUNNING": 1, "COMPLETED": 1}
