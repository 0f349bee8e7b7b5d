"""Job scripts and submissions as commands: their directives would be lost."""

import os
import re
from pathlib import Path

import pytest
from following import Weigh
from transcript import check_answers

from weigh.errors import UsageError
from weigh.flow.job_scripts import lost_directives, refuse_submissions

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


def test_what_a_line_runs_decides_whether_directives_are_lost(folder: Weigh) -> None:
    os.mkfifo(folder.folder / "pipe.sh")

    def lost(line: str) -> str:
        why = lost_directives([line], cwd=str(folder.folder), path=os.environ["PATH"])
        return "nothing" if why is None else why.partition(" ")[0]

    def refused(lines: str) -> str:
        try:
            refuse_submissions("tasks.txt", lines.split("\\n"))
        except UsageError as error:
            return re.split(r": |, but", str(error))[0].removeprefix("tasks.txt ")
        return "is none"

    asked = {"lost with": lost, "refused as a task file that": refused}
    check_answers(Path(__file__).with_name("launched_scripts.texts"), asked)


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
