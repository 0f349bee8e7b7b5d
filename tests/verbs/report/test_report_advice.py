"""Advice that is followed to the letter: the runs it rests on would have lived."""

import re
from pathlib import Path

import msgspec
import pytest
from some_jobs import BEGAN, JOB, Say, SomeJob, Task, record_of, write_job

from weigh.flow.here import here_of
from weigh.flow.report.report import build_job_report
from weigh.model.job import JobRequest
from weigh.model.record import Allocation, RecordedJob
from weigh.model.report import JobReport, ReportNote
from weigh.render.report_lines import report_note_lines
from weigh.store import shards
from weigh.store.identity import MachineIdentity
from weigh.units import GIB, HOUR, MIB, MINUTE, record_time_text

ASKED = JobRequest(
    cpus=4, memory=8 * GIB, virtual_memory=12 * GIB, time_limit=6 * HOUR, gpus=1
)
EARLY = Task(state="FAILED", wall_time=5.0, memory=30 * MIB, cpus=0.9, gpu_memory=0)


def report_of(root: str, *tasks: Task, **how: str) -> JobReport:
    """Leave a job of these tasks, an element each; report on it."""
    job = SomeJob(tasks=tasks, wanted=ASKED, **how)  # type: ignore[arg-type]
    write_job(root, f"{Path(root).parent}/plan/p", job)
    return build_job_report(
        here_of(str(Path(root).parent), {"PATH": "", "WEIGH_POLL": "9h"}), JOB
    )


def flags_of(told: JobReport) -> dict[str, str]:
    """Give the flag of each note that has one."""
    return {note.about: note.flag for note in told.notes if note.flag}


def asks_for(flags: str) -> int:
    """Give the bytes that Grid Engine flags come to: h_vmem for each slot."""
    per_slot = re.search(r"h_vmem=(\d+)([MG])", flags)
    slots = re.search(r"-pe smp (\d+)", flags)
    assert per_slot
    unit = {"M": MIB, "G": GIB}[per_slot[2]]
    number = 1 if "no -pe" in flags else int(slots[1]) if slots else 4
    return int(per_slot[1]) * unit * number


def test_runs_that_all_failed_are_no_reason_to_request_less(root: str) -> None:
    told = report_of(root, EARLY, EARLY, EARLY)
    assert flags_of(told) == {}
    assert {note.about for note in told.notes} == {"failed"}


def test_a_few_minutes_less_are_not_worth_a_line(root: str) -> None:
    wanted = JobRequest(cpus=1, memory=8 * GIB, time_limit=15 * MINUTE)
    job = SomeJob(tasks=(Task(wall_time=9.0, memory=7 * GIB),) * 3, wanted=wanted)
    folder = Path(root).parent
    write_job(root, f"{folder}/plan/p", job)
    here = here_of(str(folder), {"PATH": "", "WEIGH_POLL": "9h"})

    assert build_job_report(here, JOB).notes == ()


def test_an_element_that_was_killed_at_once_does_not_count_for_cpus(root: str) -> None:
    done = Task(wall_time=600.0, memory=GIB, cpus=0.1, gpu_memory=0)
    killed = Task(state="OUT_OF_MEMORY", wall_time=0.8, memory=GIB, cpus=1.6)
    flags = flags_of(report_of(root, done, done, done, killed))
    assert flags["CPUs"] == "--cpus-per-task=1"


def test_one_that_completed_is_reason_enough_and_is_doubted(root: str) -> None:
    done = Task(wall_time=600.0, memory=GIB, cpus=1.0, gpu_memory=0)
    told = report_of(root, done, EARLY, EARLY)
    assert flags_of(told)
    assert any(note.words.startswith("1 run: run it three") for note in told.notes)


@pytest.mark.parametrize("about", ["memory", "CPUs"])
def test_grid_engines_memory_is_enough_for_the_slots_that_are_advised(
    root: str, about: str
) -> None:
    # 3 GiB of address space each
    small = Task(wall_time=5.0 * HOUR, memory=2 * GIB, cpus=1.0, gpu_memory=GIB)
    told = report_of(root, small, small, small, scheduler="gridengine")
    flags = flags_of(told)
    assert asks_for(flags[about]) >= 3 * GIB
    assert asks_for(f"{flags['CPUs']} {flags['memory']}") >= 3 * GIB
    assert "-pe" in flags["CPUs"]


def test_fewer_slots_keep_the_memory_that_is_well_requested(root: str) -> None:
    full = Task(wall_time=5.0 * HOUR, memory=7 * GIB, cpus=1.0, gpu_memory=GIB)
    flags = flags_of(report_of(root, full, full, full, scheduler="gridengine"))
    assert "memory" not in flags
    assert asks_for(flags["CPUs"]) >= 8 * GIB


def test_h_vmem_after_a_kill_is_twice_what_it_was(root: str) -> None:
    killed = Task(state="OUT_OF_MEMORY", wall_time=HOUR, memory=GIB, cpus=3.9)
    flags = flags_of(report_of(root, killed, scheduler="gridengine"))
    assert asks_for(flags["memory"]) >= 2 * 12 * GIB


def in_a_script(root: str) -> None:
    """Leave a record of ``weigh run`` in a job script of the user's own."""
    granted = Allocation(scheduler="slurm", cpus=1, memory=8 * GIB)
    record = msgspec.structs.replace(
        record_of(Task(wall_time=600.0, memory=GIB), 1),
        label="own",
        allocation=granted,
        job=RecordedJob(id="77", element=3, task=None, attempt=None),
        started=record_time_text(BEGAN),
    )
    shards.append_record(root, record, MachineIdentity("node01", "0" * 32, None, None))


def test_a_run_that_filled_a_gpu_and_failed_without_a_word_may_have_lacked_it(
    root: str, say: Say
) -> None:
    filled = Task(state="FAILED", gpu_memory=31 * GIB, busy=80.0)
    shards.append_record(
        root, record_of(filled, 1), MachineIdentity("node01", "0" * 32, None, None)
    )
    _, out, _ = say("report", "last")
    assert "GPU memory was full (31.0 of 32.0 GiB): a smaller batch, or a" in out


@pytest.fixture
def sacct(root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave a sacct whose job did an hour's work before, beside a larger element."""
    del root
    lines = (
        (
            "JobID|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|TotalCPU|MaxRSS|AllocTRES"
            "|NodeList|TRESUsageInMax|ConsumedEnergyRaw"
        ),
        "77_3|COMPLETED|4200|120|8G|1|01:09:00||cpu=1|n1||",
        "77_3.batch|COMPLETED|4200|||1|01:09:00|3G|cpu=1|n1||0",
        "77_4|COMPLETED|7000|120|8G|1|01:50:00||cpu=1|n1||",
        "77_4.batch|COMPLETED|7000|||1|01:50:00|7G|cpu=1|n1||0",
    )
    fake = tmp_path / "bin" / "sacct"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\ncat <<E\n" + "\n".join(lines) + "\nE\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/bin")


@pytest.mark.usefixtures("sacct")
@pytest.mark.parametrize("name", ["own", "000000000001"])
def test_a_run_in_a_script_is_next_to_its_own_element_alone(
    root: str, say: Say, name: str
) -> None:
    in_a_script(root)
    _, out, _ = say("report", name)
    assert "sacct Elapsed: 1 h 10 m" in out
    assert "7.00 GiB" not in out


@pytest.mark.usefixtures("sacct")
def test_advice_for_a_script_is_of_all_that_the_job_did(root: str, say: Say) -> None:
    in_a_script(root)
    _, out, _ = say("report", "own", "--json")
    told = msgspec.json.decode(out, type=JobReport)
    flags = flags_of(told)
    assert "time" not in flags or flags["time"] >= "--time=01:15:00"
    assert flags["memory"] == "--mem=3700M"


@pytest.mark.usefixtures("sacct")
def test_what_a_script_held_counts_the_whole_job(root: str, say: Say) -> None:
    in_a_script(root)
    _, out, _ = say("report", "77", "--json")
    told = msgspec.json.decode(out, type=JobReport)
    assert told.cpu_hours == pytest.approx(4200 / 3600)


def test_several_flags_are_written_whole_however_long_together() -> None:
    flags = (
        "--mem=6300M",
        "--cpus-per-task=16",
        f"--gres=gpu:{'h' * 50}:4",
        "--time=1",
    )
    lines = list(
        report_note_lines(
            ReportNote(about="request", words="this", flag=" ".join(flags))
        )
    )
    assert [word for line in lines[1:] for word in line.split()] == list(flags)
    assert max(map(len, lines)) <= 80


def test_less_memory_is_no_advice_where_its_h_vmem_would_be_more(root: str) -> None:
    tight = msgspec.structs.replace(ASKED, virtual_memory=3 * GIB)
    small = Task(wall_time=5.0 * HOUR, memory=2 * GIB, cpus=3.7, gpu_memory=GIB)
    job = SomeJob(tasks=(small, small, small), wanted=tight, scheduler="gridengine")
    write_job(root, f"{Path(root).parent}/plan/p", job)
    env = {"PATH": "", "WEIGH_POLL": "9h"}
    told = build_job_report(here_of(str(Path(root).parent), env), JOB)
    assert "memory" not in flags_of(told)
