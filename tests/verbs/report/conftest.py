"""What the tests of reports share: a store of their own, and ``weigh`` as a call."""

from pathlib import Path

import pytest
from called_weigh import called_here
from some_jobs import Say


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the folder of an empty store, and be beside it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("PATH", "/nowhere")  # no sacct of this machine's
    monkeypatch.setenv("WEIGH_POLL", "1000000h")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / ".weigh")


@pytest.fixture
def say(root: str, capsys: pytest.CaptureFixture[str]) -> Say:
    """Call weigh; give its exit code, and what was printed to stdout and stderr."""
    del root

    return called_here(capsys)
