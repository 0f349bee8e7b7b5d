"""A folder of a user, and weigh in it, with jobs on this machine only."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until
from run_captured import run_captured

from weigh.cli.main import run_cli

Weigh = Callable[..., tuple[int, str, str]]

# they wait for signals of their children
LAUNCHING = ("run", "exec", "scan", "check")


@pytest.fixture
def weigh(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Weigh:
    """Call weigh in a new folder; return its exit code, stdout and stderr."""
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "xdg" / name))
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    monkeypatch.setenv("WEIGH_POLL", "0s")
    monkeypatch.setenv("WEIGH_HEADROOM", "0")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(*words: str) -> tuple[int, str, str]:
        if words[0] in LAUNCHING:
            argv = [sys.executable, "-m", "weigh", *words]
            done = run_captured(argv)
            return done.returncode, done.stdout, done.stderr
        capfdbinary.readouterr()
        code = run_cli(words, [])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def last_has_ended(weigh: Weigh) -> bool:
    """Return whether the last job has: it writes the record of a task after its end."""
    (job,) = json.loads(weigh("status", "last", "--json")[1])["jobs"]
    return not {*job["tasks"], *job["elements"]} & {"PENDING", "RUNNING"}


@pytest.fixture
def submitted(weigh: Weigh) -> Callable[..., None]:
    """Plan lines of a task file, and submit the plan to this machine."""

    def submit(
        lines: str,
        *words: str,
        name: str = "pp",
        plan: tuple[str, ...] = (),
        wait: bool = True,
    ) -> None:
        Path(f"{name}.txt").write_text(lines)
        sizes = ("--memory", "100M", "--cpus", "1", "--time", "5m")
        code, _, err = weigh("plan", f"{name}.txt", *sizes, *plan)
        assert code == 0, err
        code, _, err = weigh("submit", f"plan/{name}", "--on", "local", *words)
        assert code == 0, err
        until(lambda: not wait or last_has_ended(weigh))

    return submit
