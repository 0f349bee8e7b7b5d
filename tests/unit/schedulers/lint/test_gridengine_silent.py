"""The rows of the table of qsub's mistakes: each is caught before submission."""

from some_scripts import CWD, HOME, of_gridengine

from weigh.model.lint import CommandPlace

CONDA = CommandPlace(path="/home/me/miniconda3/bin/accelerate")
PYTHON = CommandPlace(path="/home/me/venv/bin/python3", bare_path="/usr/bin/python3")
HERE = {f"{HOME}/train.py": "missing", f"{CWD}/train.py": "file"}


def test_windows_line_ends_are_eqw_only_if_the_interpreter_has_one() -> None:
    found = of_gridengine("#!/bin/bash\n#$ -cwd\nhostname\r\n")
    assert "Eqw" not in found["carriage-returns"].effect


def test_a_missing_interpreter_is_eqw() -> None:
    missing = {"/bin/bsah": "missing"}
    found = of_gridengine("#!/bin/bsah\nhostname\n", paths=missing)
    assert "Eqw" in found["interpreter"].effect
