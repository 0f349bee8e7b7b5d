"""Failures that the exit code of a line or a script does not show."""

import subprocess
from pathlib import Path

import pytest
from transcript import named_texts
from written_programs import write_program

from weigh.schedulers.hidden_exit import hidden_exit

# FAILS stands for a program that exits with 3; in silent ones nothing of the task can
# fail unseen
TEXTS = named_texts(Path(__file__).with_name("hidden_exits.texts"))
HIDES, SHOWS, SILENT = (
    [line.replace("\\n", "\n") for line in TEXTS[name].splitlines()]
    for name in ("hides", "shows", "silent")
)


def _exit_code(line: str, folder: str) -> int:
    text = line.replace("FAILS", "./fails")
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, capture_output=True, check=False
    ).returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("hidden")
    write_program(path / "fails", "exit 3")
    return str(path)


@pytest.mark.parametrize("line", HIDES)
def test_a_line_that_bash_ends_with_0_whatever_fails_is_found(
    line: str, folder: str
) -> None:
    assert _exit_code(line, folder) == 0
    hidden = hidden_exit(line.replace("FAILS", "./fails"))
    assert hidden is not None
    assert "fails" in hidden.text


@pytest.mark.parametrize("line", SHOWS)
def test_a_line_whose_failure_bash_reports_is_not(line: str, folder: str) -> None:
    assert _exit_code(line, folder) != 0
    assert hidden_exit(line.replace("FAILS", "./fails")) is None


@pytest.mark.parametrize("line", SILENT)
def test_a_line_in_which_nothing_that_matters_can_fail_unseen_is_not(line: str) -> None:
    assert hidden_exit(line) is None


def test_the_line_and_what_hides_it_are_named() -> None:
    hidden = hidden_exit("#!/bin/bash\nmodule load x\npython3 bad.py 2>&1 | tee log\n")
    assert hidden is not None
    assert hidden.line == 3
    assert hidden.effect == "the exit code is that of tee, not of python3"
    assert hidden.cure == "set -o pipefail before it"


def test_options_of_the_interpreter_count() -> None:
    text = "#!/bin/bash -eo pipefail\npython3 bad.py | tee log\n"
    assert hidden_exit(text, ("/bin/bash", "-eo", "pipefail")) is None
