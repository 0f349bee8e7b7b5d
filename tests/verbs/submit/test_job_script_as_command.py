"""What only looks like a job script that is given as a command: it runs.

What is one is refused (mistakes.transcript): its directives would be lost.
"""

import os
from pathlib import Path

import pytest
from following import Weigh

DIRECTIVES = """#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --mem=14G   # enough
#SBATCH --time=12:00:00

python train.py
#SBATCH --qos=ignored
"""


@pytest.fixture
def folder(here: Weigh) -> Weigh:
    script = here.folder / "job.sh"
    script.write_text(DIRECTIVES)
    script.chmod(0o755)
    (here.folder / "grid.sh").write_text("#!/bin/bash\n#$ -l ngpus=1\ntrue\n")
    (here.folder / "plain.sh").write_text("#!/bin/bash\n# SBATCH is a word\necho hi\n")
    (here.folder / "job.py").write_text("#!/usr/bin/python3\n#SBATCH --mem=9G\n")
    return here


@pytest.mark.parametrize(
    "command",
    [
        ("bash", "plain.sh"),
        ("cat", "job.sh"),
        ("timeout", "60", "cat", "job.sh"),
        ("python3", "-c", "print(1)", "job.sh"),
        ("python3", "-m", "http", "job.sh"),
        ("bash", "-c", "wc -l job.sh"),
        ("bash", "no-such-file.sh"),
        ("bash",),
        ("bash", "plain.sh", "job.sh"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_names_a_job_script_is_submitted(
    folder: Weigh, command: tuple[str, ...]
) -> None:
    code, _, err = folder("submit", "--on", "local", "--dry-run", "--", *command)

    assert code == 0, err


def test_a_loop_on_one_line_is_a_task(folder: Weigh) -> None:
    line = "for i in 1 2; do echo $i >>ran; done\nwhile false; do :; done < job.sh\n"
    Path(folder.folder, "tasks.txt").write_text(line)

    assert folder("exec", "tasks.txt")[0] == 0
    assert Path(folder.folder, "ran").read_text() == "1\n2\n"


def test_a_task_that_submits_the_next_job_at_its_end_runs(folder: Weigh) -> None:
    lines = "true; command -v sbatch job.sh\necho 2\n"
    Path(folder.folder, "tasks.txt").write_text(lines)

    code, _, err = folder("exec", "tasks.txt")

    assert "submits jobs itself" not in err
    assert code in {0, 1}


def test_a_named_pipe_as_script_does_not_block(folder: Weigh) -> None:
    os.mkfifo(folder.folder / "pipe.sh")

    code, _, err = folder(
        "submit", "--on", "local", "--dry-run", "--", "bash", "pipe.sh"
    )

    assert code == 0, err


def test_exec_warns_of_a_task_that_is_a_job_script(folder: Weigh) -> None:
    Path(folder.folder, "tasks.txt").write_text("true\nbash grid.sh\n")

    code, _, err = folder("exec", "tasks.txt")

    assert code == 0, err
    assert "grid.sh has 1 directive that would be lost: -l ngpus=1" in err
