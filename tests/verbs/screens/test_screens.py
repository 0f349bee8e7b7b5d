"""Each screen of a job's life, whole: what a change of words or figures changes.

Jobs and a Slurm cluster are made up, so that their figures are the same each time; of
what runs here sizes and times are masked.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from called_weigh import CalledWeigh, called_apart, called_here, work_alone_in
from msgspec.structs import replace
from some_jobs import BEGAN, JOB, SomeJob, Task, record_of, write_job
from transcript import check_transcript, file_writer

from weigh.cli.main import run_cli
from weigh.flow import doctor
from weigh.flow.site import cluster
from weigh.model.doctor import DiskSpace
from weigh.model.job import ElementState, JobRequest
from weigh.model.record import ReportedProgress
from weigh.schedulers import client
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.store import shards
from weigh.store.identity import this_machine
from weigh.units import GIB, HOUR, MIB

HERE = Path(__file__).parent
CAPTURED = HERE.parents[1] / "unit" / "schedulers" / "captured"
# the questions that are answered from captured text
SLURM = {
    slurm_cluster.NODES: "slurm-22.05-node.txt",
    slurm_cluster.PARTITIONS: "slurm-22.05-partition.txt",
    slurm_cluster.CONFIG: "slurm-22.05-config.txt",
    slurm_cluster.JOBS: "slurm-22.05-squeue.txt",
}
HALF = ReportedProgress(
    done=500, total=1000, source="steps", time=1800.0, remaining=1800.0
)
GOOD = Task(memory=900 * MIB, cpus=0.95, prints="loss 0.5\n")
WANTED = JobRequest(cpus=1, memory=2 * GIB, time_limit=2 * HOUR)


def slurm_in(folder: Path) -> None:
    """Write commands of Slurm that answer from captured text, and submit nothing."""
    cases = "".join(
        f"  '{' '.join(argv)}') cat {CAPTURED / name} ;;\n"
        for argv, name in SLURM.items()
    )
    script = (
        "#!/bin/sh\nPATH=/usr/bin:/bin\n"
        f'case "${{0##*/}} $*" in\n{cases}  sbatch*) echo 481520 ;;\nesac\n'
    )
    for name in ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sacct"):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)


def job_of(folder: Path, *tasks: Task, **states: ElementState) -> None:
    """Leave a job of these tasks; *states* are what Slurm reports of other elements."""
    root = str(folder / ".weigh")
    write_job(
        root, str(folder / "plan" / "ppo-sweep"), SomeJob(tasks=tasks, wanted=WANTED)
    )
    poll = client.load_poll(root, "slurm")
    of_job = {**poll.states[JOB], **{int(n[1:]): one for n, one in states.items()}}
    for number in (int(name[1:]) for name in states):
        log = folder / "plan" / "ppo-sweep" / "log" / f"tasks_{number}.joblog"
        log.unlink()
        written = Path(f"{log}.events.jsonl")
        # of an element that runs the start of its task, of one that waits nothing
        begun = written.read_text().splitlines(keepends=True)[:2]
        written.write_text("".join(begun if number == 1 else ()))
    client.save_poll(root, "slurm", msgspec.structs.replace(poll, states={JOB: of_job}))


def planned(folder: Path) -> None:
    """Leave a plan of twenty tasks, and two hundred others."""
    (folder / "many.txt").write_text("sleep 120\n" * 200)
    (folder / "tasks.txt").write_text("true\nsleep 1\n" * 10)
    words = ("tasks.txt", "--memory", "1GiB", "--time", "10m", "--cpus", "1")
    assert run_cli(("plan", *words, "--replace"), []) == 0


V100 = ("Tesla V100-SXM2-16GB", 16160 * MIB)
A100 = ("NVIDIA A100-SXM4-40GB", 40536 * MIB)


def seeds(
    folder: Path,
    *ran_on: tuple[str, int],
    other: tuple[tuple[str, int] | None, ...] = (),
) -> None:
    """Leave eight tasks, of which some ran on such GPUs, and three of a program."""
    if ran_on:  # else it is shown which GPU a word of Slurm's may be
        sizes = '[gpus]\na100 = "40536MiB"\nv100 = "16160MiB"\n'
        (folder / "weigh.toml").write_text(sizes)
    lines = ["# the seeds", "", *(f"python3 task.py --seed {n}" for n in range(1, 9))]
    programs: list[tuple[str, tuple[str, int] | None]]
    programs = [("task.py", one) for one in ran_on]
    if other:
        lines += ["# those", *(f"python3 evaluate.py --seed {n}" for n in (1, 2, 3))]
        programs += [("evaluate.py", one) for one in other]
    (folder / "tasks.txt").write_text("".join(f"{line}\n" for line in lines))
    for number, (program, gpu) in enumerate(programs):
        ran = record_of(Task(gpu_memory=9 * GIB if gpu else None, busy=90.0), number)
        assert ran.usage is not None
        gpus = tuple(
            replace(one, name=gpu[0], memory_total=gpu[1])
            for one in ran.usage.gpus
            if gpu
        )
        command = ("python3", program, "--seed", "1")
        ran = replace(ran, command=command, usage=replace(ran.usage, gpus=gpus))
        shards.append_record(str(folder / ".weigh"), ran, this_machine())


def disk_of(path: str) -> DiskSpace:
    """Return a disk that nodes share, and that is nearly full."""
    return DiskSpace(
        path=path,
        kind="nfs4",
        is_shared=True,
        size=1000 * GIB,
        free=5 * GIB,
        files_free=10**6,
        writable=True,
    )


FAILED = Task(state="FAILED", wall_time=60.0)
KILLED = Task(state="OUT_OF_MEMORY", memory=2 * GIB, words="Killed")
LATE = Task(state="TIMEOUT", wall_time=2.0 * HOUR, progress=HALF, words="step 500")
RUNNING = ElementState(state="RUNNING", started=BEGAN, node="node02")
WAITING = ElementState(state="PENDING", reason="Resources")
SITUATIONS: dict[str, Callable[[Path], object]] = {
    "a job whose tasks all succeeded": lambda here: job_of(here, GOOD, GOOD, GOOD),
    "a job that runs": lambda here: job_of(
        here, GOOD, GOOD, GOOD, _1=RUNNING, _2=WAITING
    ),
    "a job with tasks of each end": lambda here: job_of(
        here, GOOD, FAILED, FAILED, KILLED, LATE
    ),
    "a plan": lambda here: (here / "tasks.txt").write_text("true\nsleep 1\n" * 10),
    "a plan that was made": planned,
    "a script that asks for what is not there": lambda here: (
        here / "job.sh"
    ).write_text(
        "#!/bin/bash\n#SBATCH -d afterok:4711\n#SBATCH --gres=gpu:p100:1\nsleep 1\n"
    ),
    "seeds": seeds,
    "seeds that ran on a V100": lambda here: seeds(here, V100),
    "seeds that ran on each kind, and a program that ran on one": lambda here: seeds(
        here, V100, A100, other=(A100,)
    ),
    "seeds that ran on each kind, and a program that uses no GPU": lambda here: seeds(
        here, V100, A100, other=(None,)
    ),
    "a script": lambda here: (here / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --mem=4G\n#SBATCH --gres=gpu:v100:1\n\npython train.py\n"
    ),
    "a script with mistakes": lambda here: (here / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --mem 4GB\n#SBATCH --tiem=1:00\n"
        "\nmodule load cuda\n#SBATCH -n 4\npython train.py &\n"
    ),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose name is always as long: lines are folded behind it."""
    with tempfile.TemporaryDirectory(prefix="weigh-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def weigh(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CalledWeigh:
    """Call weigh in this process, on the login node of a made-up cluster."""
    work_alone_in(folder, monkeypatch)
    monkeypatch.setenv("WEIGH_POLL", "1000000h")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setattr(cluster, "current_user", lambda: "ada")
    monkeypatch.setattr(doctor, "read_disk", disk_of)
    monkeypatch.setattr(doctor, "gpu_may_be_present", lambda _env: False)
    monkeypatch.setattr(doctor, "find_scratch", lambda _env: None)
    monkeypatch.setattr(time, "time", lambda: BEGAN + 1.5 * HOUR)
    (folder / "bin").mkdir()
    slurm_in(folder / "bin")
    return called_here(capsys)


@pytest.mark.parametrize("name", ["jobs", "cluster"])
def test_the_screens_of_jobs_are_as_they_were_reviewed(
    weigh: CalledWeigh, folder: Path, name: str
) -> None:
    def given(situation: str) -> None:
        for made in (".weigh", "plan"):
            shutil.rmtree(folder / made, ignore_errors=True)
        SITUATIONS[situation](folder)

    masks = {str(folder): "FOLDER", r"weigh doctor on .*": "weigh doctor on HOST"}
    check_transcript(HERE / f"{name}.transcript", weigh, masks, given)


# ids, and figures of what runs here
MASKS = {
    r"\b(scan|check)-[0-9a-f]{6}\b": r"\1-ID",
    r"\b[0-9a-f]{12}\b": "ID",
    r"(?m)^(.*memory +).*": r"\1FIGURES",
    r"(?m)^(.*cpu +).*": r"\1FIGURES",
    r"(?m)^(  request +).*": r"\1FIGURES",
    r"(?m)^(#SBATCH --mem=).*": r"\1SIZE",
    r"(exit \d) (?:at once|after [\d.]+ \w+)": r"\1",  # a busy machine is slower
    r"\d+ at once": "N at once",
    r"\d\d:\d\d:\d\d": "TIME",
    r"(COMPLETED|FAILED) +(?:up to )?\d.* (fine|exit)": r"\1  FIGURES  \2",
    r"(?m)^(  task  parameters).*": r"\1  FIGURES",
    r"(n=1) .* (FAILED)": r"\1  FIGURES  \2",
    r"\d[\d.]* (?:[KMG]iB|B)\b *": "SIZE  ",
    r"\d[\d.]* (?:ms|us|s)\b *": "SECONDS  ",
    r"(?m)[\d.]+ of \d+ CPUs": "N of N CPUs",
    r"weigh top .*": "weigh top   HOST   TIME",
    r"(?<=\S) {2,}": "  ",  # columns are as wide as their figures
}


def test_the_screens_of_what_runs_here_are_as_they_were_reviewed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")

    def call(*words: str) -> tuple[int, str, str]:
        done = called_apart(folder, *words)
        return done.returncode, done.stdout, done.stderr

    tasks = "true\nsh -c 'echo no; exit 3'\ntrue\n"
    (folder / "tasks.txt").write_text(tasks)
    masks = {str(folder): "FOLDER"} | MASKS
    check_transcript(HERE / "here.transcript", call, masks, file_writer(folder))
