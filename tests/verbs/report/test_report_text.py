"""``weigh report`` as people see it: golden text, 80 columns, ASCII and unicode."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import Say, SomeJob, Task, record_of, write_job
from some_reports import reports

from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.report import JobReport, ReportMeasure
from weigh.render.columns import columns_of
from weigh.render.report_lines import (
    histogram_lines,
    report_screen_text,
    share_bar,
    value_bins,
)
from weigh.store import shards
from weigh.store.identity import MachineIdentity
from weigh.units import GIB, HOUR, MIB

GOLDEN = Path(__file__).parent / "golden"
MOST_LINES = 24  # one screen


def sweep() -> SomeJob:
    """Give a hundred tasks, four on a card: one failed, and one node is slow."""
    return SomeJob(
        tasks=tuple(
            Task(
                wall_time=(3.5 if n // 4 % 5 == 2 else 2.5) * HOUR + 30 * (n % 7),
                memory=(1200 + 3 * (n % 40)) * MIB,
                cpus=0.9,
                node=f"node0{n // 4 % 5 + 5}",
                gpu_memory=(2300 + n % 30) * MIB,
                busy=71.0,
                state="FAILED" if n == 57 else "COMPLETED",
            )
            for n in range(100)
        ),
        together=4,
        wanted=JobRequest(cpus=4, memory=8 * GIB, time_limit=23400, gpus=1),
        card=TargetGpu("P100 12 GiB", 12 * GIB),
    )


@pytest.mark.parametrize(
    ("form", "encoding"), [("ascii", "ascii"), ("unicode", "utf-8")]
)
def test_a_sweep_reads_as_in_the_golden_file(
    root: str, form: str, encoding: str
) -> None:
    write_job(root, f"{Path(root).parent}/plan/ppo-sweep", sweep())
    words = (sys.executable, "-m", "weigh", "report", "481516")
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = subprocess.run(words, env=env, capture_output=True, check=True)
    assert ran.stdout.decode(encoding) == (GOLDEN / f"sweep-{form}.txt").read_text()


def test_a_job_of_one_element_takes_at_most_one_screen(root: str, say: Say) -> None:
    job = SomeJob(tasks=(Task(state="FAILED", growing=True, busy=3.0, gpu_memory=9),))
    write_job(root, f"{Path(root).parent}/plan/one", job)
    _, out, _ = say("report")
    assert 4 < len(out.splitlines()) <= MOST_LINES


@given(reports(), st.booleans())
def test_no_line_is_wider_than_80_columns(report: JobReport, is_ascii: bool) -> None:  # noqa: FBT001
    lines = report_screen_text(report, is_ascii=is_ascii).splitlines()
    assert max(map(columns_of, lines)) <= 80


@given(st.floats(0, 3), st.booleans())
def test_a_bar_is_as_long_as_its_share_and_never_wider_than_its_frame(
    share: float,
    is_ascii: bool,  # noqa: FBT001
) -> None:
    drawn = share_bar(share, is_ascii=is_ascii, width=20)
    assert len(drawn) == 20
    full = len(drawn.rstrip())
    assert abs(full - min(share, 1.0) * 20) <= 1


@given(st.lists(st.floats(0, 1e15), min_size=1))
def test_a_histogram_counts_every_element_once_up_to_the_most(
    values: list[float],
) -> None:
    found = value_bins(values)
    assert sum(number for _, number in found) == len(values)
    assert found[-1][0] == max(values)
    below = 0
    for end, number in found:
        below += number
        assert below == sum(value <= end for value in values)


@given(st.floats(1, 1e12), st.lists(st.floats(0, 1e-3), min_size=8))
def test_no_two_bars_of_a_histogram_have_the_same_label(
    least: float, above: list[float]
) -> None:
    near = tuple(least * (1 + part) for part in above)
    one = ReportMeasure(name="memory", unit="bytes", values=near)
    lines = list(histogram_lines([one], noun="runs", is_ascii=True))[1:]
    labels = [line.split("|")[0].strip().removesuffix(" 0").strip() for line in lines]
    assert len(set(labels)) == len(labels)


def test_runs_outside_of_jobs_are_not_called_elements(root: str, say: Say) -> None:
    machine = MachineIdentity("node01", "0" * 32, None, None)
    for number in range(9):
        record = record_of(Task(memory=GIB + number * MIB), number)
        shards.append_record(
            root, msgspec.structs.replace(record, label="tag"), machine
        )
    _, out, _ = say("report", "tag")
    assert "runs by memory" in out
    assert "elements" not in out
