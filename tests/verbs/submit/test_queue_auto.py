"""``--queue auto``: all queues that take the job, and why the others do not."""

import re
from collections.abc import Callable

import pytest
from following import Weigh
from written_programs import write_program


def submit_to_any_queue(
    weigh: Weigh, *words: str, task: str = "true"
) -> tuple[str, str]:
    plan = weigh.plan(task)
    code, _, err = weigh(
        "submit", plan, "--on", weigh.scheduler, "--queue", "auto", *words
    )
    assert code == 0, err
    return queue_of_script(weigh, "job.sh"), " ".join(err.split())


def queue_of_script(weigh: Weigh, name: str) -> str:
    script = (weigh.folder / "plan" / "p" / name).read_text()
    found = re.search(r"^#(?:SBATCH --partition=|\$ -q )(\S+)$", script, re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.slurm
def test_slurm_takes_the_partitions_that_take_the_job_and_those_of_a_longer_one(
    real: Weigh,
) -> None:
    requested, err = submit_to_any_queue(real, "--time", "1h", task="sleep 60")

    assert requested == "long,gpu"
    assert "recorded" not in err  # a running job shows one of them

    real.wait_for("p", lambda one: "RUNNING" in one["tasks"])
    real("cancel", "p")
    real.finish("p")
    real.resume("p", "--time", "5h")
    assert queue_of_script(real, "resume_1/job.sh") == "long"


@pytest.mark.slurm
def test_what_sbatch_refuses_in_each_queue_is_shown_with_its_reason(
    real: Weigh,
) -> None:
    words = ("--on", "slurm", "--queue", "auto", "--licenses=matlab")
    code, _, err = real("submit", real.plan("true"), *words)

    assert code == 2
    why = "no queue takes the job: short: Invalid license specification; "
    assert f"--queue auto: {why}" in " ".join(err.split())
    assert real("status", "last")[0] == 2


@pytest.mark.slurm
def test_queues_that_would_take_too_long_are_not_asked_and_named(
    real: Weigh, shorten: Callable[[str, float], None]
) -> None:
    shorten("flow.submit.checks.LONGEST_ASKING_QUEUES", 0.0)
    words = ("--on", "slurm", "--queue", "auto", "--time", "1h")

    code, _, err = real("submit", real.plan("true"), *words)

    assert code == 2
    assert "; not asked, name one by --queue: long, gpu" in " ".join(err.split())


@pytest.mark.slurm
def test_a_status_asks_for_no_queues(
    real: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides on what is left as resume does, to name the next command."""
    job = real.submit(real.plan("exit 1"), "--queue", "auto")
    real.finish(job)
    write_program(real.folder / "bin/sbatch", f"echo >>{real.folder}/asked")
    monkeypatch.setenv("PATH", f"{real.folder}/bin", ":")

    assert f"next     weigh resume {job}" in real("status", job)[1]

    assert not (real.folder / "asked").exists()


@pytest.mark.gridengine
def test_grid_engine_gets_the_queues_that_take_the_job(cell: Weigh) -> None:
    requested, err = submit_to_any_queue(cell, "--time", "13h")

    assert requested == "serial,medium,long"
    assert "(not short: time is 13 h 00 m; allows 12 h 00 m)" in err
