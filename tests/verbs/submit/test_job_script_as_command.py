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


def test_commands_that_only_name_a_job_script_are_submitted(folder: Weigh) -> None:
    os.mkfifo(folder.folder / "pipe.sh")  # it does not block
    lines = (
        "bash plain.sh",
        "cat job.sh",
        "timeout 60 cat job.sh",
        "python3 -c 'print(1)' job.sh",
        "python3 -m http job.sh",
        "bash -c 'wc -l job.sh'",
        "bash no-such-file.sh",
        "bash",
        "bash plain.sh job.sh",
        "bash pipe.sh",
    )
    plan = folder.plan(*lines)

    code, _, err = folder("submit", plan, "--on", "local", "--dry-run")

    assert code == 0, err
    words = ("--dry-run", "--", "cat", "job.sh")
    assert folder("submit", "--on", "local", *words)[0] == 0


def test_exec_warns_of_lost_directives_and_not_of_a_loop_or_of_a_chain(
    folder: Weigh,
) -> None:
    """A task may be a loop on one line, or submit the next job at its end."""
    loops = "for i in 1 2; do echo $i >>ran; done\nwhile false; do :; done < job.sh\n"
    others = "bash grid.sh\ntrue; command -v sbatch job.sh\n"
    Path(folder.folder, "tasks.txt").write_text(others + loops)

    code, _, err = folder("exec", "tasks.txt")

    assert (code in {0, 1}, "submits jobs itself" in err) == (True, False)
    assert "grid.sh has 1 directive that would be lost: -l ngpus=1" in err
    assert Path(folder.folder, "ran").read_text() == "1\n2\n"
