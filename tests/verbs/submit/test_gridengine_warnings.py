"""Grid Engine warns a job's whole process group; its tasks can still save."""

import subprocess
import sys

import pytest
from following import Weigh, until

pytestmark = pytest.mark.gridengine

ONLY_TERM = """
import signal, sys, time
def save(*_):
    time.sleep(0.5)
    open("saved", "a").write("saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("began", "a").write("x")
time.sleep(120)
"""
ON_USR1 = "trap 'echo warned >>warned' USR1; printf x >>began; sleep 120 & wait; wait"
NO_HANDLER = "printf x >>began; sleep 120"
# --time 60s is too short for a warning of weigh's own
WARNED_SOON = ("--time", "60s", "--l=s_rt=4")


@pytest.fixture
def cell(cell: Weigh) -> Weigh:
    (cell.folder / "only_term.py").write_text(ONLY_TERM)
    return cell


def test_a_program_with_only_a_term_handler_saves_at_the_soft_limit(
    cell: Weigh,
) -> None:
    job = cell.submit(*WARNED_SOON, "--", sys.executable, "only_term.py")

    assert cell.finish(job) == {"TIMEOUT": 1}
    assert (cell.folder / "saved").read_text() == "saved\n"
    again = cell.resume(job, "--dry-run")
    (more,) = again["again"]
    assert more["reasons"] == ["ran out of time"]
    assert more["wanted"]["time_limit"] > 60


def test_tasks_side_by_side_each_get_what_they_can_handle(cell: Weigh) -> None:
    plan = cell.plan(f"{sys.executable} only_term.py", ON_USR1, NO_HANDLER, together=3)

    job = cell.submit(plan, *WARNED_SOON)

    assert cell.finish(job) == {"TIMEOUT": 3}
    assert (cell.folder / "saved").read_text() == "saved\n"
    assert (cell.folder / "warned").read_text() == "warned\n"


def test_qdel_with_notice_lets_a_program_save_and_is_no_time_out(cell: Weigh) -> None:
    job = cell.submit(
        "--time", "10m", "--notify", "true", "--", sys.executable, "only_term.py"
    )
    until((cell.folder / "began").exists)

    subprocess.run(["qdel", job], check=True, timeout=20)

    states = cell.finish(job)
    assert set(states) <= {"CANCELLED", "INTERRUPTED"}
    assert (cell.folder / "saved").read_text() == "saved\n"


def test_a_requeued_job_goes_back_at_the_soft_limit(cell: Weigh) -> None:
    text = 'import os\nif os.path.exists("saved"): raise SystemExit(0)\n'
    text += ONLY_TERM.replace("sys.exit(0)", "sys.exit(1)")
    (cell.folder / "goes_on.py").write_text(text)
    wanted = ("--requeue", *WARNED_SOON)

    job = cell.submit(*wanted, "--", sys.executable, "goes_on.py")

    assert cell.finish(job) == {"COMPLETED": 1}
    assert (cell.folder / "saved").read_text() == "saved\n"
