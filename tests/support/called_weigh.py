"""weigh as a test calls it: in this process, or in one of its own."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from run_captured import CapturedRun, run_captured

from weigh.cli.main import run_cli

# words in; exit code, stdout and stderr out
CalledWeigh: TypeAlias = Callable[..., tuple[int, str, str]]


def called_here(capsys: pytest.CaptureFixture[str], *verb: str) -> CalledWeigh:
    """Return weigh in this process: *verb* comes before the words of a call."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_cli((*verb, *words), [])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def work_alone_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in *folder*, without settings, schedulers or a store from elsewhere."""
    monkeypatch.chdir(folder)
    for name in ("WEIGH_DIR", "WEIGH_CHANNEL", "WEIGH_HEADROOM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
    monkeypatch.setenv("PATH", str(folder / "bin"))


def called_apart(folder: Path, *words: str, **env: str) -> CapturedRun:
    """Call weigh in a process of its own, with a store in *folder*."""
    return run_captured(
        [sys.executable, "-m", "weigh", *words],
        cwd=folder,
        env={**os.environ, "WEIGH_DIR": str(folder / "store"), **env},
    )
