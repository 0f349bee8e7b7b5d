"""A weigh that is forked from a server is the one that a process of its own is."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from processes import WEIGH
from run_captured import run_captured

SURROUNDINGS = "readlink /proc/self/fd/0; echo $MARK; grep '^Sig[BI]' /proc/self/status"
# a further option makes it a process of its own
HOW: dict[str, dict[str, Any]] = {"forked": {}, "alone": {"stdin": subprocess.DEVNULL}}


@pytest.mark.parametrize(
    "words", ["--version", "nosuch", "records", "exec gone.txt", "exec tasks.txt"]
)
def test_a_forked_weigh_does_as_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("MARK", "7")
    found = []
    for name, options in HOW.items():
        (tmp_path / name).mkdir()
        seen = tmp_path / name / "seen"
        seen.touch()
        (tmp_path / name / "tasks.txt").write_text(f"({SURROUNDINGS}) > seen; exit 3\n")
        done = run_captured([*WEIGH, *words.split()], cwd=tmp_path / name, **options)
        found.append((done.returncode, done.stderr.count("\n"), seen.read_text()))
    assert found[0] == found[1]


def test_what_python_reads_as_it_starts_is_that_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('begun')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with_it = run_captured([*WEIGH, "--version"]).stdout
    monkeypatch.undo()
    without_it = run_captured([*WEIGH, "--version"]).stdout
    assert ("begun" in with_it, "begun" in without_it) == (True, False)
