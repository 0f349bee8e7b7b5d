"""What shellcheck adds to `weigh check`, and what is reported without it."""

import os
import shutil
from pathlib import Path

import pytest
from written_programs import write_program

from weigh.flow.check.script import check_here
from weigh.flow.here import here_of
from weigh.model.lint import CheckedScript, LintFinding
from weigh.render.check_lines import script_check_lines

HEAD = "#!/bin/bash\n#SBATCH --time=1:00:00 --mem=1G\n"
needs_shellcheck = pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="no shellcheck here"
)


def checked(folder: Path, text: str, path: str | None = None) -> CheckedScript:
    (folder / "run.sh").write_text(text)
    env = {"HOME": str(folder), "PATH": os.environ["PATH"] if path is None else path}
    return check_here(here_of(str(folder), env), "run.sh", form="slurm")


def reported(folder: Path, body: str, head: str = HEAD) -> list[LintFinding]:
    found = checked(folder, head + body).findings
    return [one for one in found if one.rule == "shellcheck"]


@needs_shellcheck
@pytest.mark.parametrize(
    ("body", "severity"),
    [
        ("echo a \\ \n  --b 2\n", "problem"),
        ("if [ $a = 1]; then echo; fi\n", "problem"),
        ("N = 5\n", "problem"),
        ("for i in {1..$N}; do echo $i; done\n", "note"),
        ("while read -r a; do\n  ssh h ls $a\ndone < l.txt\n", "note"),
        ("rm -rf $OUT/*\n", "note"),
    ],
)
def test_mistakes_of_the_shell_are_those_of_shellcheck(
    tmp_path: Path, body: str, severity: str
) -> None:
    assert reported(tmp_path, body)[0].severity == severity


@needs_shellcheck
def test_lines_of_bash_under_sh_are_noted(tmp_path: Path) -> None:
    head = HEAD.replace("/bash", "/sh")
    (found,) = reported(tmp_path, "source venv/bin/activate\n", head)
    assert (found.line, found.severity) == (3, "note")
    assert "(SC3046)" in found.effect


@needs_shellcheck
@pytest.mark.parametrize(
    "body",
    [
        "echo $a `ls`\ncd x\nfor a in $(ls); do echo ${b[@]}; done\n",
        "source venv/bin/activate\necho $(date)\n",
        "if [ -f x ]; then\n  echo a\n",
    ],
)
def test_style_and_what_bash_reports_are_left_out(tmp_path: Path, body: str) -> None:
    assert reported(tmp_path, body) == []


@needs_shellcheck
def test_a_script_may_acknowledge_what_shellcheck_reports(tmp_path: Path) -> None:
    found = checked(tmp_path, f"{HEAD}N = 5  # weigh: ignore shellcheck\n")
    assert [one.rule for one in found.acknowledged] == ["shellcheck"]
    disabled = "# shellcheck disable=SC2283\nN = 5\n"
    assert reported(tmp_path, disabled) == []


def test_a_script_of_python_is_none_of_shellcheck_s(tmp_path: Path) -> None:
    head = HEAD.replace("/bin/bash", "/usr/bin/python3")
    assert reported(tmp_path, "N = 5\n", head) == []
    assert not checked(tmp_path, head, path="").lacks_shellcheck


def test_without_shellcheck_one_line_states_it(tmp_path: Path) -> None:
    lines = [*script_check_lines(checked(tmp_path, f"{HEAD}N = 5\n", path=""))]
    assert lines[-1] == "mistakes of the shell not checked: install shellcheck"


def test_a_shellcheck_that_fails_stops_no_check(tmp_path: Path) -> None:
    write_program(tmp_path / "shellcheck", "echo trouble\nexit 3")
    found = checked(tmp_path, f"{HEAD}N = 5\n", path=str(tmp_path))
    assert not any(one.rule == "shellcheck" for one in found.findings)
