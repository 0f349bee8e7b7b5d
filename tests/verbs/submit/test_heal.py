"""Arrays that heal: a job that follows resumes what memory or time ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from following import Weigh, until
from sessions import check_session

ONCE = "[ -e {0} ] || {{ touch {0}; exit 9; }}"
BUG = "python3 -c 'print(1 / 0)'"


def logs() -> list[str]:
    """Return what each healer printed."""
    return [path.read_text() for path in Path("plan/p/sent").glob("*/log/*.out")]


def healed() -> str:
    """Wait for the last healer; return what it printed."""
    until(lambda: any("stopped" in text for text in logs()))
    return next(text for text in logs() if "stopped" in text)


def test_worked_examples_of_chains(tmp_path: Path) -> None:
    names = {"root": str(tmp_path)}
    check_session(Path(__file__).with_name("chains.session"), names)


def test_only_the_bug_is_left_and_status_shows_each_round(here: Weigh) -> None:
    job = here.submit(here.plan("true", ONCE.format("x"), BUG), "--heal")
    assert here.status(job)["healing"]["state"] == "PENDING"

    last = healed()

    assert "task 3: a bug: ZeroDivisionError" in last
    assert here.finish(job) == {"COMPLETED": 2, "FAILED": 1}
    assert len(here.status(job)["jobs"]) == 2
    assert len(logs()) == 2
    out = here("status", job)[1]
    assert "round 2  1 task failed once" in out
    assert "stopped  nothing left that a retry could fix: 1 task: a bug" in out


def test_rounds_are_limited_and_resuming_by_hand_keeps_on_healing(here: Weigh) -> None:
    job = here.submit(here.plan(ONCE.format("x") + "; exit 3"), "--heal=rounds=1")
    assert "as many as --heal allows" in healed()
    assert here.finish(job) == {"FAILED": 1}

    answer = here.resume(job)

    assert answer["healer"] is not None
    assert answer["again"][0]["job"]["round"] == 2


def test_a_setting_heals_without_an_option(here: Weigh) -> None:
    Path("weigh.toml").write_text("[submit]\nheal = 'rounds=2'\n")
    folder = here.plan("true")

    assert here("submit", folder, "--on", "local", "--heal=no", "--dry-run")[0] == 0
    _, out, _ = here("submit", folder, "--on", "local")

    assert "at most 2 rounds" in out


def test_a_cancelled_healer_is_replaced(here: Weigh) -> None:
    waits = "until [ -e go ]; do sleep 0.1; done"
    job = here.submit(here.plan(waits, ONCE.format("x")), "--heal")
    first = here.status(job)["healing"]["healer"]
    process = Path(".weigh/local", first, "pid")
    here.wait_for(job, lambda _: process.exists())
    os.killpg(int(process.read_text()), signal.SIGKILL)
    here.wait_for(job, lambda one: one["healing"]["state"] != "PENDING")

    answer = here.resume(job, "--heal")

    assert answer["healer"]["id"] != first
    Path("go").touch()
    healed()
    assert here.finish(job) == {"COMPLETED": 2}


def test_of_several_that_heal_at_once_one_sends_the_round(here: Weigh) -> None:
    job = here.submit(here.plan(ONCE.format("x"), "true"))
    here.finish(job)
    heal = [sys.executable, "-m", "weigh", "resume", "--heal", job]

    senders = [subprocess.Popen(heal, stdout=subprocess.PIPE) for _ in range(3)]
    answers = [one.communicate()[0] for one in senders]

    assert [one.returncode for one in senders] == [0, 0, 0]
    assert sum(b"resumed 1 task" in answer for answer in answers) == 1
    healed()
    assert here.finish(job) == {"COMPLETED": 2}
    assert len(here.status(job)["jobs"]) == 2


def test_a_plan_that_is_submitted_again_has_a_healer_of_its_own(here: Weigh) -> None:
    """Status, cancel and resume looked for it among those of the first submission."""
    plan = here.plan("[ -e go ] || sleep 300")
    Path("go").touch()
    here.finish(here.submit(plan, "--heal"))
    here.wait_for("p", lambda one: one["healing"]["stopped"] is not None)
    Path("go").unlink()

    job = here.submit(plan, "--heal", "--again")

    assert here.status(job)["healing"]["state"] == "PENDING"
    assert here("cancel", job)[1].count("cancelled") == 2
