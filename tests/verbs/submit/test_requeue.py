"""A job that goes back into its queue goes on where it was."""

import subprocess

import pytest
from following import Weigh, until
from rigs import mainly

# a program that goes on from its checkpoint, and needs two runs
TWO_RUNS = (
    "trap 'exit 1' TERM; echo run >>runs; echo step $(wc -l <runs); touch {0}/began; "
    "[ $(wc -l <runs) = 2 ] || {{ sleep 60 & wait $!; }}"
)


@pytest.mark.slurm
def test_a_requeued_job_repeats_nothing_that_is_done(real: Weigh) -> None:
    waits = "touch began; for i in $(seq 300); do [ -e go ] && exit; sleep 0.2; done"
    meets = "sleep 0.3; echo one >>done"  # side by side with the one that waits
    job = real.submit(real.plan(meets, waits, together=2))
    until(lambda: real.status(job)["tasks"] == {"COMPLETED": 1, "RUNNING": 1})

    subprocess.run(["scontrol", "requeue", job], check=True, timeout=90)
    (real.folder / "go").touch()

    assert real.finish(job) == {"COMPLETED": 2}
    assert (real.folder / "done").read_text() == "one\n"


@pytest.mark.slurm
def test_the_warning_puts_only_the_element_back_that_it_is_for(real: Weigh) -> None:
    lines = ("echo one >>done", TWO_RUNS.format(real.folder))
    job = real.submit(real.plan(*lines), "--requeue", "--time", "10m")
    until((real.folder / "began").exists)
    until(lambda: real.status(job)["tasks"] == {"COMPLETED": 1, "RUNNING": 1})

    warn = ["scancel", "--batch", "-s", "USR1", f"{job}_1"]
    subprocess.run(warn, check=True, timeout=90)

    assert real.finish(job) == {"COMPLETED": 2}
    assert (real.folder / "runs").read_text() == "run\nrun\n"
    assert (real.folder / "done").read_text() == "one\n"


@mainly("slurm")
def test_a_job_out_of_time_goes_on_in_another_run(weigh: Weigh) -> None:
    if weigh.scheduler == "local":
        pytest.skip("jobs on this machine have no queue")
    scratch = weigh.folder.parent / "scratch"
    scratch.mkdir()
    (weigh.folder / "weigh.toml").write_text(f'scratch = "{scratch}"\n')
    staged = ("--stage-out", "results")
    plan = weigh.plan(TWO_RUNS.format(weigh.folder))

    job = weigh.submit(plan, "--requeue", "--time", "18s", *staged)

    assert weigh.finish(job) == {"COMPLETED": 1}
    assert (weigh.folder / "results/runs").read_text() == "run\nrun\n"
    assert not list((weigh.folder / "results").glob("partial-*"))
