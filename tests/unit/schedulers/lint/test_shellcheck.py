"""What shellcheck adds to `weigh check`."""

import os
import shutil
from pathlib import Path

import pytest
from some_scripts import checked_in

from weigh.model.lint import LintFinding

HEAD = "#!/bin/bash\n#SBATCH --time=1:00:00 --mem=1G\n"
needs_shellcheck = pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="no shellcheck here"
)


def reported(folder: Path, body: str, head: str = HEAD) -> list[LintFinding]:
    path = os.environ["PATH"]
    found = checked_in(folder, head + body, "slurm", PATH=path).findings
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
    text = f"{HEAD}N = 5  # weigh: ignore shellcheck\n"
    found = checked_in(tmp_path, text, "slurm", PATH=os.environ["PATH"])
    assert [one.rule for one in found.acknowledged] == ["shellcheck"]
    disabled = "# shellcheck disable=SC2283\nN = 5\n"
    assert reported(tmp_path, disabled) == []


def test_a_script_of_python_is_none_of_shellcheck_s(tmp_path: Path) -> None:
    head = HEAD.replace("/bin/bash", "/usr/bin/python3")
    assert reported(tmp_path, "N = 5\n", head) == []
    assert not checked_in(tmp_path, head, "slurm", PATH="").lacks_shellcheck
