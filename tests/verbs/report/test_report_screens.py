"""What ``weigh report`` prints in each situation: report.transcript has all of it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from some_jobs import BEGAN, JOB, Say, SomeJob, Task, record_of, write_job
from transcript import check_transcript

from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.record import (
    LAUNCHER_FLOOR,
    Allocation,
    CpuWait,
    JvmHeap,
    RecordedJob,
    ReportedProgress,
    Request,
    State,
)
from weigh.schedulers import client
from weigh.store import shards
from weigh.store.identity import MachineIdentity
from weigh.units import GIB, HOUR, MIB

Situation = Callable[[str], object]  # it gets the folder of an empty store
NODE = MachineIdentity("node01", "0" * 32, None, None)
HERE = Path(__file__)
WAITED = CpuWait(time=40.0, wanted=1.0, alone=58.0, threads=1, cpus=2, others=1.5)
STEPS = ReportedProgress(
    done=80, total=1000, source="steps", time=40.0, remaining=460.0
)
# of a job and of a run: nothing is advised where it is not what a screen is for
FITTING = JobRequest(cpus=1, memory=GIB + 300 * MIB, time_limit=4500)
FITS = Request(1, GIB + 300 * MIB, None, time_limit=4500, headroom=0.2, runs=3)


def measured(root: str, number: int, task: Task | None = None, **words: Any) -> None:
    """Leave a record of a run outside any job that weigh submitted."""
    record = msgspec.structs.replace(record_of(task or Task(), number), **words)
    shards.append_record(root, record, NODE)


def job(*tasks: Task, **how: Any) -> Situation:
    """Return what leaves a job of these tasks."""
    made = SomeJob(tasks=tasks, **how)
    return lambda root: write_job(root, f"{Path(root).parent}/plan/p", made)


def run(task: Task | None = None, **words: Any) -> Situation:
    """Return what leaves one run."""
    return lambda root: measured(root, 7, task, **words)


def sweep_of_100_tasks(root: str) -> None:
    """Leave tasks of which four share a GPU, one failed, and one node is slow."""
    tasks = (
        Task(
            wall_time=(3.5 if n // 4 % 5 == 2 else 2.5) * HOUR + 30 * (n % 7),
            memory=(1200 + 3 * (n % 40)) * MIB,
            node=f"node0{n // 4 % 5 + 5}",
            gpu_memory=(2300 + n % 30) * MIB,
            busy=71.0,
            state="FAILED" if n == 57 else "COMPLETED",
        )
        for n in range(100)
    )
    wanted = JobRequest(cpus=4, memory=8 * GIB, time_limit=23400, gpus=1)
    card = TargetGpu("P100 12 GiB", 12 * GIB)
    job(*tasks, together=4, wanted=wanted, card=card)(root)


def tried_twice(root: str) -> None:
    """Leave 20 tasks on GPUs, one of which failed twice."""
    tasks = (
        Task(
            memory=2 * GIB,
            cpus=1.0,
            gpu_memory=3 * GIB,
            busy=50.0,
            energy=3.6e6,
            state="FAILED" if n == 4 else "COMPLETED",
            attempts=2 if n == 4 else 1,
        )
        for n in range(1, 21)
    )
    wanted = JobRequest(cpus=2, memory=2600 * MIB, time_limit=4500, gpus=1)
    job(*tasks, wanted=wanted)(root)


def resumed(root: str, *, failed: int = 1, state: State = "OUT_OF_MEMORY") -> None:
    """Leave a job one of whose tasks was killed, and again in the job after it."""
    good = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7)
    bad = Task(state=state, wall_time=6.0 * HOUR, memory=6 * GIB, cpus=3.7)
    first = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
    twice = JobRequest(cpus=4, memory=16 * GIB, time_limit=12 * HOUR)
    tasks = [good] * 4
    tasks[failed - 1] = bad
    job(*tasks, wanted=first)(root)
    again = SomeJob(
        tasks=(bad if failed == 1 else good,), wanted=twice, id="481999", resumes=JOB
    )
    write_job(root, f"{Path(root).parent}/plan/p/resume_1", again)


def half_a_job(root: str) -> None:
    """Leave a job without its records, two joblogs and the end of another."""
    job(Task(), Task(), Task(), wanted=FITTING)(root)
    log = Path(root).parent / "plan" / "p" / "log"
    events = log / "tasks_1.joblog.events.jsonl"
    events.write_bytes(events.read_bytes()[:-40])
    (log / "tasks_0.joblog").unlink()  # its events know what ended
    (log / "tasks_2.joblog").unlink()
    (log / "tasks_2.joblog.events.jsonl").unlink()
    for path in shards.store_shards(root)[0]:
        Path(path).unlink()


def plan_gone(root: str) -> None:
    job(Task(), Task(), wanted=FITTING)(root)
    Path(root).parent.joinpath("plan/p/plan.json").unlink()


def job_without_answer(root: str) -> None:
    """Leave a task of which only the scheduler knows, which cannot be queried."""
    half_a_job(root)
    client.save_poll(root, "slurm", client.SchedulerPoll())


def half_a_record(root: str) -> None:
    measured(root, 1, label="whole")
    for path in map(Path, shards.store_shards(root)[0]):
        line = path.read_bytes()
        path.write_bytes(line + line.replace(b'"id":"0000', b'"id":"1111')[:900])


def four_runs(root: str) -> None:
    for number in range(4):
        measured(root, number, label="tag")


def runs_too_short_to_measure(root: str) -> None:
    """Leave two runs that ended at once, and one whose own memory was seen."""
    for number, size in enumerate((24, 24, 30)):
        record = record_of(Task(memory=size * MIB, wall_time=0.1), number)
        assert record.usage is not None
        peak = record.usage.peak_memory
        if peak is not None and size == 24:
            peak = msgspec.structs.replace(peak, source=LAUNCHER_FLOOR)
        usage = msgspec.structs.replace(record.usage, peak_memory=peak)
        measured(root, number, label="short" if number else "tiny", usage=usage)


def run_after_the_job(root: str) -> None:
    job(Task())(root)
    measured(root, 0xFFFF, label="late", started="2030-01-01T00:00:00Z")


def run_in_a_script_after_the_job(root: str) -> None:
    job(Task())(root)
    in_script = RecordedJob(id="999", element=None, task=None, attempt=None)
    measured(
        *(root, 0xFFFF),
        label="late",
        started="2030-01-01T00:00:00Z",
        allocation=Allocation(scheduler="slurm", cpus=1),
        job=in_script,
    )


def plan_not_submitted(root: str) -> None:
    measured(root, 1)
    plan = Path(root).parent / "plan"
    plan.mkdir()
    (plan / "plan.json").write_text("{}")


def log_with_a_gpu_table(root: str) -> None:
    task = Task(gpu_memory=7603000000, busy=60.0)
    job(task, wanted=msgspec.structs.replace(FITTING, gpus=1))(root)
    table = HERE.with_name("gpu_table.txt").read_text()
    log = Path(root).parent / "plan" / "p" / "log" / f"{JOB}.out"
    log.write_text(f"{table}weigh: exit code 0\n")


def log_of_a_script(root: str) -> None:
    """Leave a run in a script of the user's own, with Grid Engine's log beside it."""
    folder = Path(root).parent
    shutil.copy(HERE.with_name("gpu_table.txt"), folder / "tag.o12")
    shutil.copy(HERE, folder / "tag.o123")
    measured(
        *(root, 7, Task(gpu_memory=7603000000, busy=60.0)),
        label="tag",
        cwd=str(folder),
        allocation=Allocation(scheduler="gridengine", cpus=2, gpus=1),
        job=RecordedJob(id="12", element=None, task=None, attempt=None),
    )


def jvm_run(root: str) -> None:
    usage = record_of(Task(memory=321 * MIB)).usage
    assert usage is not None
    heap = JvmHeap(6 * GIB, 484 * MIB, 0.3)
    usage = msgspec.structs.replace(
        usage, max_process_memory=321 * MIB, virtual_memory=9 * GIB, jvm=heap
    )
    measured(root, 7, label="hog", usage=usage)


def hostile(root: str) -> None:
    evil = "\x1b[2J\x07<script>\u202e"
    job(Task(state="FAILED", words=evil, node=evil), name=evil)(root)


SITUATIONS: dict[str, Situation] = {
    "a sweep of 100 tasks": sweep_of_100_tasks,
    "a task of 20 that failed twice": tried_twice,
    "a job resumed in vain": resumed,
    "a job resumed in vain, twice out of time": lambda root: resumed(
        root, state="TIMEOUT"
    ),
    "a job resumed without the task that failed": lambda root: resumed(root, failed=2),
    "eight tasks, four of which share a GPU": job(
        *[Task(gpu_memory=2 * GIB, busy=90.0, energy=7.2e5)] * 8, together=4
    ),
    "half a job": half_a_job,
    "a job whose plan is gone": plan_gone,
    "a job of which the scheduler does not answer": job_without_answer,
    "two tasks killed by a signal": job(
        *[Task(state="FAILED", words="step 20", signal=9)] * 2,
        scheduler="gridengine",  # whose elements have names of their own
    ),
    "a task whose progress needs more time": job(
        Task(state="TIMEOUT", wall_time=40.0, progress=STEPS),
        wanted=JobRequest(cpus=1, memory=FITTING.memory, time_limit=60),
    ),
    "a task that waited for a CPU": job(
        Task(
            wall_time=100.0,
            cpus=0.58,
            cpu_wait=WAITED,
        ),
        wanted=JobRequest(cpus=1, memory=FITTING.memory, time_limit=300),
    ),
    "a task that was cancelled while it waited for a CPU": job(
        Task(state="CANCELLED", wall_time=100.0, cpus=0.58, cpu_wait=WAITED)
    ),
    "names that would steer a terminal": hostile,
    "a log with the scheduler's GPU table": log_with_a_gpu_table,
    "a script with Grid Engine's log beside it": log_of_a_script,
    "a run that requested what it needs": run(label="good", requested=FITS),
    "a run out of time": run(
        Task(wall_time=60.0),
        label="late",
        state="TIMEOUT",
        progress=STEPS,
        requested=Request(1, 2 * GIB, None, time_limit=60, headroom=0.2, runs=3),
    ),
    "a run granted far more than it used": run(
        label="tag", allocation=Allocation(scheduler="slurm", cpus=4, memory=64 * GIB)
    ),
    "a run of Java": jvm_run,
    "a run without a label": run(command=("/opt/r/bin/Rscript", "fit.R", "--long" * 9)),
    "a run that failed": run(Task(state="FAILED")),
    "a run that was cancelled": run(state="CANCELLED"),
    "half a record": half_a_record,
    "four runs of a label": four_runs,
    "runs too short to measure": runs_too_short_to_measure,
    "a run after the job": run_after_the_job,
    "a run in a script after the job": run_in_a_script_after_the_job,
    "a plan that was not submitted": plan_not_submitted,
}


def test_reports_are_as_they_were_reviewed(
    root: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: BEGAN + 8 * HOUR)

    def given(situation: str) -> None:
        for made in (root, tmp_path / "plan"):
            shutil.rmtree(made, ignore_errors=True)
        # of a situation without an answer the last one is out of date
        polled = "0s" if "does not answer" in situation else "1000000h"
        monkeypatch.setenv("WEIGH_POLL", polled)
        SITUATIONS[situation](root)

    path = HERE.with_name("report.transcript")
    check_transcript(path, say, {str(tmp_path): "FOLDER"}, given)
