"""One command of a scheduler, run: it ends in time, and in forms that we read."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from following import until
from run_captured import run_captured
from written_programs import processes_with, write_program

from weigh.errors import SchedulerError
from weigh.schedulers.command import run_scheduler_command


def test_what_a_silent_command_started_is_killed_with_it(tmp_path: Path) -> None:
    # what is not killed writes the file before it ends
    script = f"(sleep 20; touch {tmp_path}/survived) & wait"
    env = {**os.environ, "STARTED_BY": str(tmp_path)}

    with pytest.raises(SchedulerError, match=r"did not answer within 0.5 seconds"):
        run_scheduler_command(("sh", "-c", script), env, timeout=0.5)

    until(lambda: not processes_with(variable=f"STARTED_BY={tmp_path}"))
    assert not (tmp_path / "survived").exists()


@pytest.mark.parametrize("submits", [False, True])
def test_a_user_s_own_defaults_change_no_answer_and_are_left_to_a_job(
    *, submits: bool
) -> None:
    formats = dict.fromkeys(("SQUEUE_FORMAT", "SACCT_FORMAT", "SINFO_PARTITION"), "%i")
    env = {"PATH": os.environ["PATH"], "LC_ALL": "de_DE.UTF-8", **formats}

    ran = run_scheduler_command(("env",), env, timeout=10, submits=submits)

    seen = dict(line.split("=", 1) for line in ran.out.splitlines())
    assert seen == env if submits else not {*formats} & {*seen}


def test_a_job_gets_no_variable_that_the_interpreter_sets(tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "sacct", "scontrol"):
        write_program(tmp_path / name, "")
    write_program(tmp_path / "sbatch", f"env >{tmp_path}/env\necho 7")
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --mem=1G -t 5\ntrue\n")
    words = (sys.executable, "-m", "weigh", "submit", "--no-checks", "job.sh")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}

    subprocess.run(words, cwd=tmp_path, env=env, check=True, capture_output=True)

    seen = dict(row.split("=", 1) for row in (tmp_path / "env").read_text().split())
    assert {*seen} - {"PWD", "_", "SHLVL", "OLDPWD"} == {*env}


def test_an_interrupt_while_sbatch_runs_names_the_job_and_how_to_see_it(
    tmp_path: Path,
) -> None:
    write_program(tmp_path / "bin/sbatch", "kill -INT $PPID; exec sleep 60")
    variables = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = ("submit", "--no-checks", "--on", "slurm", "--", "true")

    ended = run_captured(
        [sys.executable, "-m", "weigh", *command],
        cwd=tmp_path,
        env={**os.environ, **variables, "WEIGH_HOME": str(tmp_path / "store")},
    )

    assert ended.returncode == -signal.SIGINT
    outcome = "true: not known whether slurm accepted the job (interrupted)"
    assert f"weigh: {outcome}; weigh status settles it" in ended.stderr
