"""The rows of the table of qsub's mistakes: each is caught before submission."""

from typing import Any

import pytest
from some_scripts import CWD, HOME, of_gridengine, qsub, stated

from weigh.model.lint import CommandPlace

CONDA = CommandPlace(path="/home/me/miniconda3/bin/accelerate")
PYTHON = CommandPlace(path="/home/me/venv/bin/python3", bare_path="/usr/bin/python3")
HERE = {f"{HOME}/train.py": "missing", f"{CWD}/train.py": "file"}


@pytest.mark.parametrize(
    ("line", "known", "rule", "words"),
    [
        ("-hold_jid 99", {"jobs": {"99": None}}, "dependency", "dropped"),
        (
            *("-cwd -o logs/", {"paths": {f"{CWD}/logs": "missing"}}),
            *("log-directory", "Eqw"),
        ),
        (
            *("-o $HOME/logs/x", {"paths": {f"{HOME}/logs": "directory"}}),
            *("log-directory", None),
        ),
        (
            *("-o ~/logs/x", {"paths": {f"{HOME}/logs": "missing"}}),
            *("log-directory", ""),
        ),
        ("-wd nosuch", {"paths": {f"{CWD}/nosuch": "missing"}}, "chdir", ""),
        (
            *("-cwd -S /bin/zsh", {"paths": {"/bin/zsh": "missing"}}),
            *("interpreter", "/bin/zsh does not exist"),
        ),
    ],
)
def test_what_a_directive_names_is_looked_up(
    line: str, known: dict[str, Any], rule: str, words: str | None
) -> None:
    found = qsub(line, **known)
    assert rule not in found if words is None else stated(found, rule, "", words)


def test_windows_line_ends_are_eqw_only_if_the_interpreter_has_one() -> None:
    found = of_gridengine("#!/bin/bash\n#$ -cwd\nhostname\r\n")
    assert "Eqw" not in found["carriage-returns"].effect


def test_a_missing_interpreter_is_eqw() -> None:
    missing = {"/bin/bsah": "missing"}
    found = of_gridengine("#!/bin/bsah\nhostname\n", paths=missing)
    assert "Eqw" in found["interpreter"].effect


def test_a_comment_that_begins_with_a_variable_is_refused() -> None:
    found = qsub(body="#$PYTHON train.py\nhostname\n")
    assert not found["stray-word"].accepted


@pytest.mark.parametrize(
    ("line", "is_found"),
    [("-l s_rt=01:50:00", False), ("-notify", False), ("-cwd", True)],
)
def test_a_trap_waits_in_vain_for_a_warning_that_h_rt_does_not_send(
    line: str, *, is_found: bool
) -> None:
    body = "trap 'cp x y' USR1\npython train.py &\nwait\n"
    assert ("no-soft-limit" in qsub("-l h_rt=2:00:00", line, body=body)) is is_found
    assert "no-soft-limit" not in qsub("-l h_rt=2:00:00", line)


@pytest.mark.parametrize(
    ("line", "body", "known", "rule", "words"),
    [
        (
            *("-cwd", "accelerate launch x\n", {"commands": {"accelerate": CONDA}}),
            *("bare-path", "accelerate is not found"),
        ),
        (
            *("-V", "accelerate launch x\n", {"commands": {"accelerate": CONDA}}),
            *("bare-path", None),
        ),
        (
            *("-cwd", "python3 x\n", {"commands": {"python3": PYTHON}}),
            *("bare-path", "yours is /home/me/venv/bin/python3"),
        ),
        (
            *("-j y", "python train.py\n", {"paths": HERE}),
            *("missing-path", "#$ -cwd: start where it is submitted"),
        ),
        ("-cwd", "python train.py\n", {"paths": HERE}, "missing-path", None),
    ],
)
def test_programs_and_files_are_looked_up_as_the_job_does(
    line: str, body: str, known: dict[str, Any], rule: str, words: str | None
) -> None:
    found = qsub(line, body=body, **known)
    assert rule not in found if words is None else stated(found, rule, "", words)
