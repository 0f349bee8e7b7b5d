"""Each command that a screen names as the next one does something when it is typed."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from following import Weigh, until

ONCE = "[ -e once ] || { touch once; exit 9; }"
BUG = "python3 -c 'print(1 / 0)'"
KNOWN = ("--memory", "50M", "--cpus", "1", "--time", "5m")
_TITLED = re.compile(
    r"^ +(?:next|fixed\?|follow)(?:: | +)(weigh .*)$|^weigh: .*?: (weigh \w+ .*)$"
)
_INLINE = re.compile(r"^ +(?:heals|waiting|left) .*?: (weigh .*)$")


def named(screen: str) -> list[list[str]]:
    """Return the commands that a screen names, each as its words."""
    joined = re.sub(r"\n {11,}(?=\S)", " ", screen)  # lines are folded at 80 columns
    found = (
        pattern.match(line)
        for line in joined.splitlines()
        for pattern in (_TITLED, _INLINE)
    )
    return [
        shlex.split(next(filter(None, one.groups())), comments=True)[1:]
        for one in found
        if one
    ]


def types_each(weigh: Weigh, screen: str, *, least: int = 1) -> list[str]:
    """Type what a screen names; return what that printed."""
    commands = named(screen)
    assert len(commands) >= least, screen
    printed = []
    for words in commands:
        code, out, err = weigh(*words)
        assert code == 0, f"{shlex.join(words)}: {out}{err}"
        assert "nothing resumed" not in out, f"{shlex.join(words)}: {out}"
        printed.append(out)
    return printed


def ended(weigh: Weigh, *lines: str, words: tuple[str, ...] = ()) -> str:
    """Submit these tasks and wait for their end; return the job."""
    job = weigh.submit(weigh.plan(*lines), *words)
    weigh.finish(job)
    return job


def status_of(*lines: str, resumed: bool = False) -> Callable[[Weigh], str]:
    """Return what shows the status of tasks that ended, and ended again."""

    def screen(weigh: Weigh) -> str:
        job = ended(weigh, *lines)
        if resumed:
            weigh.resume(job)
            weigh.finish("p")
        return weigh("status", "p")[1]

    return screen


def cancelled(weigh: Weigh, *words: str) -> str:
    job = weigh.submit(weigh.plan("[ -e again ] || sleep 300"), *words)
    weigh.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    weigh("cancel", job)
    weigh.finish(job)
    if words:
        weigh.wait_for(job, lambda one: one["healing"]["state"] == "CANCELLED")
    Path("again").touch()
    return weigh("status", job)[1]


def killed(weigh: Weigh) -> str:
    # what outlives its element ends by itself
    job = weigh.submit(weigh.plan("until [ -e again ]; do sleep 0.1; done"))
    weigh.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    os.killpg(int(Path(".weigh/local", job, "pid").read_text()), signal.SIGKILL)
    assert weigh.finish(job) == {"INTERRUPTED": 1}
    Path("again").touch()
    return weigh("status", job)[1]


def healed(weigh: Weigh) -> str:
    job = weigh.submit(weigh.plan(BUG, ONCE), "--heal")
    weigh.wait_for(job, lambda one: one["healing"]["stopped"] is not None)
    return weigh("status", job)[1]


def of_what_waits_in_vain(verb: str) -> Callable[[Weigh], str]:
    """Return what shows a job that waits for one that has failed."""

    def screen(weigh: Weigh) -> str:
        first = weigh.submit(weigh.plan(f"sleep 1; {ONCE}", name="a"))
        second = weigh.submit(weigh.plan("true", name="b"), "--after", first)
        weigh.finish(second)
        return weigh(verb, second)[1]

    return screen


def planned(weigh: Weigh) -> str:
    tasks = weigh.folder / "my tasks.txt"
    tasks.write_text("true\ntrue\n")
    return weigh("plan", str(tasks), *KNOWN)[1]


def checked(weigh: Weigh) -> str:
    (weigh.folder / "t.txt").write_text("true\ntrue\n")
    # not in this process: a thread of the test runner would take the signal of its end
    subprocess.run(
        [sys.executable, "-m", "weigh", "run", "-q", "--", "true"], check=True
    )
    return weigh("check", "t.txt")[1]


def replaced(weigh: Weigh) -> str:
    ended(weigh, "true")
    return weigh("plan", "p.txt", "--replace", *KNOWN)[1]


SCREENS: dict[str, Callable[[Weigh], str]] = {
    "failed once": status_of(ONCE, "true"),
    "only bugs": status_of(BUG, "true"),
    "a bug and more": status_of(BUG, ONCE),
    "failed twice": status_of("exit 9", resumed=True),
    "cancelled": cancelled,
    "killed": killed,
    "healed": healed,
    "healer was cancelled": lambda weigh: cancelled(weigh, "--heal"),
    "waits for what has failed": of_what_waits_in_vain("status"),
    "resuming what waits": of_what_waits_in_vain("resume"),
    "refused to resume": lambda weigh: weigh("resume", ended(weigh, BUG))[1],
    "planned": planned,
    "checked": checked,
    "replaced": replaced,
    "submitted": lambda weigh: weigh("submit", weigh.plan("true"), "--on", "local")[1],
    "resumed": lambda weigh: weigh("resume", ended(weigh, ONCE))[1],
}


@pytest.mark.parametrize("situation", SCREENS)
def test_a_command_that_a_screen_names_works(here: Weigh, situation: str) -> None:
    types_each(here, SCREENS[situation](here))


def test_no_command_is_named_where_none_helps(here: Weigh) -> None:
    job = ended(here, "true")

    assert named(here("status", job)[1]) == []
    assert "replaced" not in here("resume", job)[1]


@pytest.mark.slurm
def test_a_job_of_others_is_submitted_again_by_its_script(
    real: Weigh,
) -> None:
    script = real.folder / "my job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --mem=50M\n#SBATCH -t 5\nexit 3\n")
    sent = subprocess.run(
        ["sbatch", "--parsable", str(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    job = sent.stdout.strip()
    until(lambda: "FAILED" in real.status(job)["tasks"])

    (screen,) = types_each(real, real("status", job)[1])

    assert "submitted my job.sh" in screen


def test_resuming_a_plan_that_was_replaced_names_what_runs_the_new_one(
    here: Weigh,
) -> None:
    job = ended(here, BUG)
    here.plan("touch new", words=("--replace",))

    screen = here("resume", job)[1]
    types_each(here, screen.replace("fixed?", "done"))

    assert "the plan was written again since" in screen
    here.finish("p")
    assert Path("new").exists()
