"""Jobs and records made up for reports: a store with all that weigh would have left."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import msgspec
from some_requests import a_submitted_job

from weigh.flow.plan import directory as plan_directory
from weigh.joblog import HEADER, output_name
from weigh.model.gpu import GpuUsage
from weigh.model.job import ElementState, JobRequest, SubmittedJob
from weigh.model.plan import BinCapacity, Plan, PlannedElement, PlanRequest, TargetGpu
from weigh.model.record import (
    Allocation,
    CodeProvenance,
    CpuWait,
    PeakMemory,
    Record,
    RecordedHost,
    RecordedJob,
    ReportedProgress,
    RunOutcome,
    SampleSeries,
    State,
    Usage,
)
from weigh.runner import events
from weigh.schedulers import client
from weigh.store import jobs, shards
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.units import GIB, HOUR, MIB, record_time_text

Say = Callable[..., tuple[int, str, str]]  # exit code, stdout, stderr
BEGAN = 1_795_253_989.0
JOB = "481516"
CARD = "Tesla V100-SXM2-32GB"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One task as it went. ``memory`` and ``gpu_memory`` in bytes, times in seconds."""

    wall_time: float = 3600.0
    memory: int = GIB
    cpus: float = 0.9
    state: State = "COMPLETED"
    node: str = "node01"
    gpu_memory: int | None = None
    busy: float | None = None
    prints: str = ""
    words: str = "ValueError: probabilities contain NaN"
    growing: bool | None = None
    energy: float | None = None
    slowed: dict[str, float] | None = None
    attempts: int = 1
    signal: int | None = None
    parameters: dict[str, int | float | str] = {}
    cpu_wait: CpuWait | None = None
    progress: ReportedProgress | None = None


class SomeJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of tasks, so many of them side by side in an element."""

    tasks: tuple[Task, ...]
    together: int = 1
    wanted: JobRequest = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
    name: str = "ppo-sweep"
    id: str = JOB
    scheduler: str = "slurm"
    card: TargetGpu | None = None
    points: int = 0
    resumes: str | None = None
    round: int = 1


def record_of(task: Task, number: int = 0, *, points: int = 0) -> Record:
    """Make the record of a task, with a series of so many points."""
    gpus: tuple[GpuUsage, ...] = ()
    if task.gpu_memory is not None:
        gpus = (
            GpuUsage(
                uuid=f"GPU-{task.node}",
                name=CARD,
                memory_total=32 * GIB,
                peak_memory=task.gpu_memory,
                process_peak_memory=task.gpu_memory,
                utilization_mean=task.busy,
                energy=task.energy,
                slowed=task.slowed,
            ),
        )
    good = task.state == "COMPLETED"
    step = task.wall_time / max(1, points)
    return Record(
        signal=task.signal,
        id=f"{number:012x}",
        command=("python", "run.py", "--task", str(number)),
        cwd="/home/someone/project",
        parameters=task.parameters,
        host=RecordedHost(name=task.node, system="Linux", cpus=16, memory=128 * GIB),
        started=record_time_text(BEGAN),
        ended=record_time_text(BEGAN + task.wall_time),
        state=task.state,
        exit_code=0 if good else 1,
        outcome=None if good else RunOutcome("exit code 1"),
        usage=Usage(
            wall_time=task.wall_time,
            cpu_time=task.cpus * task.wall_time,
            cpus_used=task.cpus,
            cpu_wait=task.cpu_wait,
            peak_memory=PeakMemory(
                value=task.memory,
                low=task.memory,
                high=task.memory,
                anonymous=task.memory,
                shared=0,
                file=0,
                source="made up",
            ),
            virtual_memory=task.memory + GIB,
            growing=task.growing,
            gpus=gpus,
        ),
        series=SampleSeries(
            t=tuple(step * n for n in range(points)),
            memory=tuple(task.memory * n // max(1, points) for n in range(points)),
            cpu=(task.cpus,) * points,
        ),
        progress=task.progress,
        provenance=CodeProvenance(git_commit="0123456789abcdef", python="3.12.1"),
    )


def write_job(root: str, folder: str, job: SomeJob) -> SubmittedJob:
    """Leave behind all that weigh and the scheduler would have; give the job."""
    cut = range(0, len(job.tasks), job.together)
    parts = [job.tasks[first : first + job.together] for first in cut]
    plan = Plan(
        name=job.name,
        task_file="tasks.txt",
        tasks=len(job.tasks),
        headroom=0.2,
        gpu=job.card,
        capacity=BinCapacity(),
        request=PlanRequest(cpus=job.wanted.cpus, memory=job.wanted.memory),
        kinds=(),
        elements=tuple(
            PlannedElement(
                file=f"tasks_{number}.txt",
                tasks=tuple(range(first + 1, first + len(part) + 1)),
                gpu_memory=0,
                memory=0,
                cpus=1,
            )
            for number, (first, part) in enumerate(zip(cut, parts, strict=True))
        ),
    )
    os.makedirs(f"{folder}/log")
    plan_file = Path(folder, plan_directory.FILE)
    plan_file.write_bytes(plan_directory.plan_document(plan))
    lines: list[bytes] = []
    for number, part in enumerate(parts):
        lines += _write_element(folder, number, part, job)
    # files of a plan that are later than its job are those of another plan
    for path in (plan_file, *Path(folder).glob("tasks_*.txt")):
        os.utime(path, (BEGAN - 120, BEGAN - 120))
    machine = MachineIdentity("node01", "0" * 32, None, None)
    month = shards.month_folder(record_time_text(BEGAN))
    shard = os.path.join(root, shards.RECORDS, month, shards.shard_name(machine))
    os.makedirs(os.path.dirname(shard), exist_ok=True)
    with open(shard, "ab") as file:
        file.write(b"".join(lines))
    submitted = a_submitted_job(
        scheduler=job.scheduler,
        id=job.id,
        name=job.name,
        folder=folder,
        cwd=os.path.dirname(folder),
        script=f"{folder}/job.sh",
        elements=len(parts),
        tasks=len(job.tasks),
        submitted=BEGAN - 60,
        request=job.wanted,
        resumes=job.resumes,
        round=job.round,
    )
    jobs.append_job(root, submitted)
    states = {number: _state_of(part) for number, part in enumerate(parts)}
    before = client.load_poll(root, job.scheduler)
    all_states = before.states | {job.id: states}
    said = client.SchedulerPoll(asked=BEGAN, tried=BEGAN, states=all_states)
    client.save_poll(root, job.scheduler, said)
    return submitted


def _state_of(part: tuple[Task, ...]) -> ElementState:
    good = all(task.state == "COMPLETED" for task in part)
    most = max(task.wall_time for task in part)
    return ElementState(
        state="COMPLETED" if good else "FAILED",
        exit_code=0 if good else 1,
        started=BEGAN,
        ended=BEGAN + most,
        node=part[0].node,
    )


def _write_element(
    folder: str, number: int, part: tuple[Task, ...], job: SomeJob
) -> Iterator[bytes]:
    """Write one element's joblog, events and outputs; yield its records' lines."""
    log = Path(folder, "log", f"tasks_{number}.joblog")
    run = f"run{number}"
    told: list[msgspec.Struct] = [
        events.RunOpened(
            run=run,
            time=BEGAN,
            machine=MachineIdentity(part[0].node, None, None, None),
            process=ProcessIdentity(1, 1),
            task_file=f"tasks_{number}.txt",
            tasks=len(part),
            weigh="0.1.0",
        )
    ]
    entries = [f"{HEADER}\n"]
    commands = []
    for seq, task in enumerate(part, start=1):
        unique = (crc32(job.id.encode()) % (1 << 20) << 24) + number * 1000 + seq
        good = task.state == "COMPLETED"
        record = msgspec.structs.replace(
            record_of(task, unique, points=job.points),
            allocation=Allocation(scheduler="slurm", cpus=job.wanted.cpus),
            job=RecordedJob(id=job.id, element=number, task=seq, attempt=task.attempts),
        )
        told += _attempts(seq, task, run, record)
        ends = (0 if good or task.signal else 1, task.signal or 0)
        fields = (seq, ":", BEGAN, task.wall_time, 0, 0, *ends)
        line = f"python run.py --task {unique}"
        commands.append(f"{line}\n")
        entries.append("\t".join(map(str, (*fields, line))) + "\n")
        if not good or task.prints:
            name = output_name(number * job.together + seq, task.attempts)
            out = Path(folder, "log", f"tasks_{number}.out", name)
            out.parent.mkdir(exist_ok=True)
            failure = f"Traceback (most recent call last):\n{task.words}\n"
            out.write_text(task.prints if good else failure)
        yield msgspec.json.encode(record) + b"\n"
    log.write_text("".join(entries))
    Path(folder, f"tasks_{number}.txt").write_text("".join(commands))
    Path(f"{log}{events.SUFFIX}").write_bytes(
        b"".join(msgspec.json.encode(event) + b"\n" for event in told)
    )


def _attempts(
    seq: int, task: Task, run: str, record: Record
) -> Iterator[events.AttemptStarted | events.AttemptEnded]:
    for attempt in range(1, task.attempts + 1):
        is_last = attempt == task.attempts
        yield events.AttemptStarted(
            seq=seq,
            attempt=attempt,
            run=run,
            time=BEGAN,
            slot=seq,
            pid=100,
            start_time=1,
            task="00000000",
        )
        yield events.AttemptEnded(
            seq=seq,
            attempt=attempt,
            time=BEGAN + task.wall_time,
            state=task.state if is_last else "FAILED",
            exit_code=record.exit_code if is_last else 1,
            signal=task.signal if is_last else None,
            record=record.id if is_last else f"{record.id}-{attempt}",
            reason=record.outcome.reason if record.outcome else None,
            wall_time=task.wall_time,
            cpu_time=task.cpus * task.wall_time,
            peak_memory=task.memory if is_last else 100 * MIB,
        )
