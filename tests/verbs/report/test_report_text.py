"""``weigh report`` as people see it: golden text, 80 columns, ASCII and unicode."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from some_jobs import Say, SomeJob, Task, write_job
from some_reports import reports

from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.report import JobReport
from weigh.render.columns import columns_of
from weigh.render.report_lines import report_screen_text
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


def test_a_sweep_reads_as_in_the_golden_file(root: str) -> None:
    write_job(root, f"{Path(root).parent}/plan/ppo-sweep", sweep())
    words = (sys.executable, "-m", "weigh", "report", "481516")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(words, env=env, capture_output=True, check=True)
    assert ran.stdout.decode() == (GOLDEN / "sweep.txt").read_text()


def test_a_job_of_one_element_takes_at_most_one_screen(root: str, say: Say) -> None:
    job = SomeJob(tasks=(Task(state="FAILED", growing=True, busy=3.0, gpu_memory=9),))
    write_job(root, f"{Path(root).parent}/plan/one", job)
    _, out, _ = say("report", "last")
    assert 4 < len(out.splitlines()) <= MOST_LINES


@given(reports())
def test_no_line_is_wider_than_80_columns(report: JobReport) -> None:
    lines = report_screen_text(report).splitlines()
    assert max(map(columns_of, lines)) <= 80
