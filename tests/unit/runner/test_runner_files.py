"""Locks, joblogs, memory groups: the runner's files, on trees made for the test."""

import os
from pathlib import Path
from tempfile import mkdtemp

import pytest
from sessions import check_session
from written_programs import write_program


def test_worked_examples_of_the_runner_s_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_squeue(answer: str) -> None:
        write_program(tmp_path / "bin/squeue", answer)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)

    path = Path(__file__).with_name("runner_files.session")
    names = {"folder": lambda: Path(mkdtemp(dir=tmp_path)), "has_squeue": has_squeue}
    check_session(path, names)
