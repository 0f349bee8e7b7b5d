"""A job that Slurm puts back into its queue goes on where it was."""

import subprocess

import pytest
from following import Weigh, until


@pytest.mark.slurm
def test_a_requeued_job_repeats_nothing_that_is_done(
    here: Weigh, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in slurm.items():
        monkeypatch.setenv(key, value)
    here.scheduler = "slurm"
    waits = "touch began; for i in $(seq 300); do [ -e go ] && exit; sleep 0.2; done"
    meets = "sleep 0.3; echo one >>done"  # side by side with the one that waits
    job = here.submit(here.plan(meets, waits, together=2), "--requeue=")
    until(lambda: here.status(job)["tasks"] == {"COMPLETED": 1, "RUNNING": 1})

    subprocess.run(["scontrol", "requeue", job], check=True, timeout=20)
    (here.folder / "go").touch()

    assert here.finish(job) == {"COMPLETED": 2}
    assert (here.folder / "done").read_text() == "one\n"
