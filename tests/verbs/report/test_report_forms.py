"""Paper, ticket and the list of my jobs."""

import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import JOB, Say, SomeJob, Task, record_of, write_job
from transcript import check_transcript

from weigh.model.job import JobRequest
from weigh.model.record import State
from weigh.review.runs import covered_time
from weigh.runner.watch import record_time_text
from weigh.store import shards
from weigh.store.identity import MachineIdentity
from weigh.units import GIB, HOUR


@pytest.fixture
def sweep(root: str) -> str:
    """Leave a job of 20 tasks on GPUs, one of which failed twice."""
    tasks = tuple(
        Task(
            wall_time=HOUR * 1.0,
            memory=2 * GIB,
            cpus=1.0,
            gpu_memory=3 * GIB,
            busy=50.0,
            energy=3.6e6,
            state="FAILED" if n == 4 else "COMPLETED",
            attempts=2 if n == 4 else 1,
            parameters={"lr": 10.0**-n, "model": "base" if n % 2 else "large"},
        )
        for n in range(1, 21)
    )
    wanted = JobRequest(cpus=4, memory=8 * GIB, time_limit=3 * HOUR, gpus=1)
    write_job(root, f"{Path(root).parent}/plan/p", SomeJob(tasks=tasks, wanted=wanted))
    return JOB


def test_a_paper_counts_every_run_failed_ones_included(sweep: str, say: Say) -> None:
    _, out, _ = say("report", sweep, "--paper")
    assert "- **Runs:** 21 in total, of which 2 failed" in out
    assert "21 hours of runs, failed ones included" in out
    assert "- **GPUs:** V100\\-SXM2" in out or "V100-SXM2-32GB, 32.0 GiB" in out
    assert "at most 3.00 GiB" in out or "3.00 GiB" in out


def test_a_paper_gives_the_ranges_of_the_sweep(sweep: str, say: Say) -> None:
    _, out, _ = say("report", sweep, "--paper")
    assert r"lr from 1e\-20 to 0.1 \(20 values\)" in out or "lr from 1e-20" in out
    assert r"model \{base, large\}" in out or r"model \{large, base\}" in out


def test_a_paper_states_the_energy_and_how_many_runs_measured_it(
    sweep: str, say: Say
) -> None:
    _, out, _ = say("report", sweep, "--paper")
    assert "- **Energy of the GPUs:** 1 kWh, measured in 20 of 21 runs" in out


def test_runs_that_share_a_gpu_count_its_time_and_energy_once(
    root: str, say: Say
) -> None:
    task = Task(wall_time=1.0 * HOUR, gpu_memory=2 * GIB, busy=90.0, energy=7.2e5)
    job = SomeJob(tasks=(task,) * 8, together=4)
    write_job(root, f"{Path(root).parent}/plan/p", job)
    _, out, _ = say("report", JOB, "--paper")
    # two elements at the same time on one made-up card: an hour of it at 200 W
    assert "8 hours of runs, failed ones included, 7.2 CPU hours, 1 GPU hours" in out
    assert "0.2 kWh" in out


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=8))
def test_time_that_spans_cover_is_what_counting_seconds_gives(
    pairs: list[tuple[int, int]],
) -> None:
    spans = [(start, start + wall) for start, wall in pairs]
    seconds = {second for start, end in spans for second in range(start, end)}
    assert covered_time(spans) == len(seconds)


def test_a_ticket_states_where_when_how_and_the_errors_tail(
    sweep: str, say: Say
) -> None:
    code, out, _ = say("report", sweep, "--ticket")
    assert code == 0
    assert f"job         {sweep}_3 task 4" in out
    assert "node        node01" in out
    assert "ended       FAILED, exit code 1" in out
    assert "attempts    2, of which 2 ended this way" in out
    assert out.endswith("  ValueError: probabilities contain NaN\n")
    assert max(map(len, out.splitlines())) <= 80


@pytest.fixture
def month(root: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Leave jobs 11 to 13: wasteful, well requested, always failing."""
    here = f"{Path(root).parent}/plan"
    ten = JobRequest(cpus=4, memory=8 * GIB, time_limit=3 * HOUR)
    tight = JobRequest(cpus=1, memory=2 * GIB + GIB // 2, time_limit=2 * HOUR)
    some = Task(wall_time=1.0 * HOUR, memory=2 * GIB, cpus=1.0)
    bad = Task(wall_time=0.5 * HOUR, memory=GIB, cpus=1.0, state="FAILED")
    for number, (name, wanted, task) in enumerate(
        (("wasteful", ten, some), ("tight", tight, some), ("broken", tight, bad))
    ):
        made = SomeJob(tasks=(task,) * 5, name=name, id=f"{11 + number}", wanted=wanted)
        write_job(root, f"{here}/{name}", made)
    monkeypatch.setattr(time, "time", lambda: 1_795_300_000.0)
    return root


SACCT = """\
JobID|JobName|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|MaxRSS|TotalCPU
9|align|COMPLETED|1800|60|4G|2||00:45:00
9.batch|batch|COMPLETED|1800|||2|3G|00:45:00
10_1|array|COMPLETED|600|20|1G|1||00:01:00
10_1.batch|batch|COMPLETED|600|||1|100M|00:01:00
10_2|array|OUT_OF_MEMORY|60|20|1G|1||00:01:00
10_2.batch|batch|OUT_OF_MEMORY|60|||1|1G|00:01:00
11_0|wasteful|COMPLETED|3600|180|8G|4||01:00:00
14|later|PENDING|0|60|4G|2||00:00:00
"""


def test_my_jobs_are_a_line_each_from_accounting_and_records(
    month: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 of 8 GiB, 1 of 3 h and 1 of 4 CPUs were used of job 11, 45 of 60 CPU minutes
    # of job 9
    del month
    (tmp_path / "bin").mkdir()
    for name, text in (("sacct", SACCT), ("sbatch", ""), ("squeue", "")):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n/bin/cat <<'.'\n{text}.\n")
        program.chmod(0o755)

    def given(situation: str) -> None:
        path = str(tmp_path / "bin") if situation == "accounting" else "/nowhere"
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("FORCE_COLOR", "1" if situation == "a terminal" else "")

    check_transcript(
        Path(__file__).with_name("job_list.transcript"), say, {"\x1b": "ESC"}, given
    )


def test_a_paper_of_a_time_counts_runs_outside_of_jobs_once(
    month: str, say: Say
) -> None:
    late = msgspec.structs.replace(
        record_of(Task(), 0xABC), started=record_time_text(1_795_299_000.0)
    )
    shards.append_record(month, late, MachineIdentity("node01", "0" * 32, None, None))
    _, out, _ = say("report", "--since", "30d", "--paper")
    assert "16 in total" in out


@pytest.mark.parametrize("form", [(), ("--paper",)])
def test_all_of_time_is_a_time_too(sweep: str, say: Say, form: tuple[str, ...]) -> None:
    del sweep
    code, _, err = say("report", "--since", "99999999999999999d", *form)
    assert (code, err) == (0, "")


def test_a_ticket_of_a_kill_names_the_signal_next_to_the_last_words(
    root: str, say: Say
) -> None:
    killed = Task(state="FAILED", words="step 20", signal=9)
    write_job(root, f"{Path(root).parent}/plan/p", SomeJob(tasks=(killed, killed)))
    _, out, _ = say("report", JOB)
    assert "signal 9, after: step 20" in " ".join(out.split())


def test_a_ticket_of_a_run_outside_of_jobs_names_no_command_of_jobs(
    root: str, say: Say
) -> None:
    record = record_of(Task(state="FAILED"), 1)
    shards.append_record(root, record, MachineIdentity("node01", "0" * 32, None, None))
    _, out, _ = say("report", record.id, "--ticket")
    assert "weigh resume" not in out


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED"])
def test_a_ticket_where_nothing_failed_is_reported(
    root: str, say: Say, state: State
) -> None:
    record = msgspec.structs.replace(record_of(Task(), 1), state=state)
    shards.append_record(root, record, MachineIdentity("node01", "0" * 32, None, None))
    code, out, _ = say("report", record.id, "--ticket", "--strict")
    assert f"ended       {state}" in out
    assert code == 0


def test_a_paper_states_no_gpu_that_nobody_requested_or_used(
    root: str, say: Say
) -> None:
    record = record_of(Task(gpu_memory=0), 1)
    shards.append_record(root, record, MachineIdentity("node01", "0" * 32, None, None))
    _, out, _ = say("report", record.id, "--paper")
    assert "none were used" in out
    assert "GPU hours" not in out
