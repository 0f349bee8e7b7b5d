import sys
from pathlib import Path

import pytest
from called_weigh import CalledWeigh
from run_captured import run_captured


@pytest.fixture
def weigh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CalledWeigh:
    """``weigh`` in a folder of its own, without records or settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIGH_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def call(*argv: str) -> tuple[int, str, str]:
        # a process of its own: what runs tasks becomes the parent of all that is left
        done = run_captured([sys.executable, "-m", "weigh", *argv])
        return done.returncode, done.stdout, done.stderr

    return call
