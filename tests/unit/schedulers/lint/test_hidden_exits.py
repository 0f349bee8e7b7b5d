"""Failures that the exit code of a line or a script does not show."""

import subprocess

import pytest

from weigh.schedulers.hidden_exit import hidden_exit

# FAILS stands for a program that exits with 3
HIDES = [
    "FAILS 2>&1 | tee log",
    "FAILS |& tee -a log",
    "FAILS | tee log | tail -n 3",
    "FAILS > log 2>&1; echo done",
    "FAILS; date",
    "FAILS; exit 0",
    "FAILS || true",
    "FAILS || :",
    "FAILS || echo failed >> errors",
    "FAILS &",
    "FAILS & FAILS & wait",
    "time FAILS | cat",
    "X=1 FAILS | sort",
    "cd . && FAILS | tee log",
    "for i in 1 2; do FAILS $i; done | tee log",
    "for i in 1 2; do FAILS $i || true; done",
    "(cd . && FAILS) | tee log",
    "{ FAILS; } 2>&1 | tee log",
    "if true; then FAILS | tee log; fi",
    "set -e; FAILS | tee log",
    'bash -c "FAILS 2>&1 | tee log"',
    "f() {\n FAILS | tee log\n}\nf",
    "FAILS \\\n  --x 1 |\n  tee log",
    "FAILS\necho finished",
    "for i in 1 2; do\n  FAILS $i &\ndone\nwait",
]
SHOWS = [
    "FAILS",
    "set -o pipefail; FAILS | tee log",
    "set -euo pipefail; FAILS | tee log",
    "bash -o pipefail -c 'FAILS | tee log'",
    "FAILS && echo done",
    "FAILS || exit 1; echo done",
    "FAILS || { echo failed; exit 1; }",
    "set -e; FAILS; echo done",
    "set -e\nFAILS\necho done",
    "trap 'exit 1' ERR; FAILS; echo done",
    "echo start; FAILS",
    "cat /dev/null | FAILS",
    "FAILS | tee log; exit ${PIPESTATUS[0]}",
    "FAILS; code=$?; echo done; exit $code",
    "FAILS & pid=$!; wait $pid",
    'FAILS "a | tee b; echo done"',
    "FAILS || FAILS",
    "FAILS > log 2>&1",
]
# nothing of the task can fail unseen in these
SILENT = [
    "echo done",
    "grep -q x f || true",
    "mkdir -p a || true",
    "ls | tee x",
    "cat x | sort | uniq -c",
    "seq 10 | tee x",
    "rm -rf x; echo done",
    "if ./ask | grep -q ok; then echo yes; fi",
    "while ! ./probe | grep -q up; do sleep 1; done",
    "cat <<EOF > x\npython | tee a\nEOF\n./run",
    "./run\nif [ -f x ]; then echo yes; fi",
    "out=$(./run | tail -1); ./use $out",
    "echo 'unclosed",
    "x=1\ncase $x in\n*\\ $x\\ *)\n  ;;\n*)\n  y=2\n  ;;\nesac\necho $y\nexit 0",
    "case $x in start) y=1 ;; stop|halt) y=2 ;; esac; echo $y",
]


def _exit_code(line: str, folder: str) -> int:
    text = line.replace("FAILS", "./fails")
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, capture_output=True, check=False
    ).returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("hidden")
    (path / "fails").write_text("#!/bin/sh\nexit 3\n")
    (path / "fails").chmod(0o755)
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
