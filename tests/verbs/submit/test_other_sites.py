"""Sites that are set up otherwise: GPUs not tracked, accounting down or not kept."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from following import Weigh, until
from run_captured import run_captured
from written_programs import kill_processes_with, write_program

pytestmark = pytest.mark.alone

CI = Path(__file__).parents[3] / "ci"


def bring_up(**settings: str) -> None:
    """Start the rig anew, with other settings; the same paths and ports."""
    subprocess.run(
        [CI / "slurm-up.sh"],
        env={**os.environ, **settings},
        check=True,
        timeout=300,
        capture_output=True,
    )


@pytest.fixture
def sites(slurm: dict[str, str]) -> Iterator[Iterator[str]]:
    """Set up one Slurm after the other; after them the usual one is back."""
    assert slurm

    def one_by_one() -> Iterator[str]:
        for untracked in ({"WEIGH_RIG_TRES": ""}, {"WEIGH_RIG_DB": "0"}):
            bring_up(**untracked)
            yield str(untracked)

    yield one_by_one()
    bring_up()


def forget(job: str) -> None:
    """Make the controller forget a job that has ended, as it does after MinJobAge."""
    text = Path(os.environ["SLURM_CONF"]).read_text()
    conf = Path(os.environ["SLURM_CONF"])
    conf.write_text(text.replace("MinJobAge=600", "MinJobAge=2"))
    subprocess.run(["scontrol", "reconfigure"], check=True, timeout=90)
    try:
        until(lambda: not listed(job), what=lambda: f"{job} is still listed")
    finally:
        conf.write_text(text)
        subprocess.run(["scontrol", "reconfigure"], check=True, timeout=90)


def listed(job: str) -> bool:
    return bool(squeue_states(job).strip())


def squeue_states(job: str) -> str:
    argv = ["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]
    return run_captured(argv, timeout=90).stdout


def rewind(here: Weigh, job: str) -> None:
    """Make weigh forget what it knows of a job that was submitted long ago."""
    jobs = here.folder / ".weigh/jobs.jsonl"
    text = jobs.read_text()
    assert job in text
    before = time.time() - 9000
    jobs.write_text(text.replace('"submitted":', f'"submitted":{before:.0f},"was":'))
    (here.folder / ".weigh/queue/slurm.json").unlink(missing_ok=True)


@pytest.mark.slurm
def test_gpus_and_elements_are_as_requested_on_every_site(
    sites: Iterator[str], real: Weigh
) -> None:
    for number, site in enumerate(sites):
        for words in (("--gpus", "v100"), ("-p", "gpu", "--gpus", "a100:2")):
            name = f"p{number}{len(words)}"
            plan = real.plan("sleep 1", "sleep 1", name=name)
            code, _, err = real("submit", plan, "--on", "slurm", *words)
            assert (code, "requested, but" in err) == (0, False), f"{site}: {err}"


@pytest.mark.slurm
def test_a_job_that_was_killed_is_not_repeated_while_accounting_is_down(
    real: Weigh,
) -> None:
    job = real.submit("--memory", "60M", "--time", "5m", "--", "bash", "-c", "sleep 40")
    real.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    kill_processes_with(f"SLURM_JOB_ID={job}")
    until(lambda: "RUNNING" not in squeue_states(job))
    pid_file = Path(os.environ["SLURM_CONF"]).parents[1] / "pid/slurmdbd.pid"
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    try:
        forget(job)
        rewind(real, job)
        unknown = real.status(job)
        out = real("resume", job)[1]
    finally:
        bring_up()

    assert unknown["tasks"] == {"UNKNOWN": 1}
    assert "accounting does not answer: sacct" in unknown["unknown"][0]["reason"]
    assert f"weigh resume {job} --also unknown" in out


@pytest.mark.slurm
def test_a_step_that_runs_out_of_memory_is_resumed_with_more(real: Weigh) -> None:
    eats = "srun python3 -c 'x = bytearray(1 << 29)'\necho done"
    write_program(real.folder / "job.sh", eats)
    job = real.submit("--memory", "100M", "--time", "5m", "--", "./job.sh")

    real.finish(job)
    # the queue lists the end of the job before accounting has that of the step
    until(lambda: real.status(job)["tasks"] == {"OUT_OF_MEMORY": 1})
    assert "1 task: 1 out of memory" in real("status", job)[1]
    again = real.resume(job, "--dry-run")["again"][0]
    report = " ".join("".join(real("report", job)[:2][1:]).split())
    assert again["wanted"]["memory"] >= 190 << 20
    assert "out of memory" in report
    until(lambda: "--mem=200M" in real("request", "--for", "flags")[1])
    (real.folder / "tasks").write_text("./job.sh\n")
    code, out, _ = real("plan", "tasks", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["ask"]["memory"] >= 190 << 20
