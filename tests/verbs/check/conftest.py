from collections.abc import Callable
from pathlib import Path

import pytest

from weigh.cli.main import run_cli
from weigh.schedulers import KINDS

Weigh = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weigh(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Weigh:
    """``weigh`` in a folder of its own, without records or settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIGH_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    # a scheduler that this machine may have is not queried
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "lists", "no-such-command")

    def call(*argv: str) -> tuple[int, str, str]:
        code = run_cli(argv, [])
        out, err = capsys.readouterr()
        return code, out, err

    return call
