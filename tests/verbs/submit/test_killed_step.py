"""A step that the kernel kills for memory: Slurm's account of it counts."""

import json

import pytest
from following import Weigh, until
from written_programs import write_program


@pytest.mark.slurm
@pytest.mark.alone
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
