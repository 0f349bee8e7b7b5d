"""Advice that is followed to the letter: the runs it rests on would have lived."""

from pathlib import Path

import msgspec
import pytest
from some_jobs import BEGAN, Say, Task, record_of
from some_runs import keep_runs
from written_programs import write_program

from weigh.model.record import Allocation, RecordedJob
from weigh.model.report import JobReport, ReportNote
from weigh.render.report_lines import report_note_lines
from weigh.units import GIB, record_time_text


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
    keep_runs(Path(root).parent, record)


def test_a_run_that_filled_a_gpu_and_failed_without_a_word_may_have_lacked_it(
    root: str, say: Say
) -> None:
    filled = Task(state="FAILED", gpu_memory=31 * GIB, busy=80.0)
    keep_runs(Path(root).parent, record_of(filled, 1))
    _, out, _ = say("report", "last")
    assert "GPU mem   GPU memory was full (31.0 of 32.0 GiB): a smaller batch" in out


def test_a_run_in_a_script_is_next_to_its_own_element_and_advised_for_the_whole_job(
    root: str, say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The job did an hour's work before, beside a larger element."""
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
    fake = write_program(tmp_path / "bin/sacct", "\n".join(("cat <<E", *lines, "E")))
    monkeypatch.setenv("PATH", f"{fake.parent}:/bin")
    in_a_script(root)
    for name in ("own", "000000000001"):
        _, out, _ = say("report", name)
        assert "sacct Elapsed: 1 h 10 m" in out
        assert "7.00 GiB" not in out
    told = msgspec.json.decode(say("report", "own", "--json")[1], type=JobReport)
    flags = {note.about: note.flag for note in told.notes if note.flag}
    assert "time" not in flags or flags["time"] >= "--time=01:15:00"
    assert flags["memory"] == "--mem=3700M"
    told = msgspec.json.decode(say("report", "77", "--json")[1], type=JobReport)
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
