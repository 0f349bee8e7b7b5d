"""HTCondor only: what it has not, what a job knows of itself, what its pool has."""

import json
import os
import subprocess
import sys

import pytest
from following import Weigh
from run_captured import run_captured

MIB = 1 << 20
NO_NODE = "no node of the queue has all of that: the job would never"


def script(weigh: Weigh, *words: str) -> str:
    """Return the script that would be sent."""
    argv = ("submit", weigh.plan("true"), "--on", "htcondor", "--dry-run", *words)
    code, out, err = weigh(*argv)
    assert code == 0, err
    return out


def test_its_own_commands_go_through(here: Weigh) -> None:
    words = ("--requirements=Memory > 4000", '--+Project="it\'s $mine"')

    lines = script(here, *words).splitlines()

    assert "requirements = (Memory > 4000)" in lines
    assert '+Project = "it\'s $(DOLLAR)mine"' in lines


REAL = pytest.mark.parametrize(
    "weigh", [pytest.param("htcondor", marks=pytest.mark.htcondor)], indirect=True
)


@REAL
def test_a_user_may_submit_the_script_without_weigh(weigh: Weigh) -> None:
    weigh.finish(weigh.submit(weigh.plan("true")))

    argv = ["condor_submit", "plan/p/job.sh"]
    sent = run_captured(argv, cwd=weigh.folder, timeout=30)

    assert (sent.returncode, sent.stderr) == (0, "")
    assert "1 job(s) submitted" in sent.stdout


@REAL
def test_a_run_in_a_job_knows_the_job_and_its_slot(weigh: Weigh) -> None:
    run = f"{sys.executable} -m weigh run -q -o {weigh.folder}/record.json -- true"
    weigh.plan(run)

    job = weigh.submit("plan/p", "--gpus", "v100:2", "--memory", "300M")

    assert weigh.finish(job) == {"COMPLETED": 1}
    record = json.loads((weigh.folder / "record.json").read_text())
    assert (record["job"]["id"], record["job"]["attempt"]) == (job, 1)
    allocation = record["allocation"]
    assert (allocation["scheduler"], allocation["gpus"]) == ("htcondor", 2)
    assert allocation["memory"] == 300 * MIB


@REAL
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cpus", "20"), NO_NODE),
        (("--memory", "64G"), NO_NODE),
        (("--gpus", "9"), NO_NODE),
        (("--requirements=Memory >",), "would reject the job: Parse error"),
    ],
)
def test_what_it_would_keep_for_ever_is_refused(
    weigh: Weigh, words: tuple[str, ...], reason: str
) -> None:
    code, _, err = weigh("submit", weigh.plan("true"), "--on", "htcondor", *words)

    assert code == 2
    assert reason in " ".join(err.split())


@REAL
def test_a_job_on_hold_shows_the_reason(weigh: Weigh) -> None:
    job = weigh.submit(weigh.plan("sleep 60"))
    weigh.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    subprocess.run(["condor_hold", job], check=True, timeout=30, capture_output=True)

    weigh.wait_for(job, lambda one: one["tasks"] == {"PENDING": 1})

    _, out, _ = weigh("status", job)
    assert "on hold by its user" in out
    weigh("cancel", job)
    assert weigh.finish(job) == {"CANCELLED": 1}
    assert os.getuid() != 0  # HTCondor runs no job of root's
