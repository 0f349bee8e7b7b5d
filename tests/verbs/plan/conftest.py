from pathlib import Path

import pytest
from planning import HUNDRED, Weigh

from weigh.cli.main import run_cli


@pytest.fixture
def weigh(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Weigh:
    """``weigh`` in a folder of its own, without records, settings or a scheduler."""
    monkeypatch.chdir(tmp_path)
    for name in ("WEIGH_DIR", "WEIGH_HEADROOM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "tasks.txt").write_text(HUNDRED)

    def call(*argv: str) -> tuple[int, str, str]:
        code = run_cli(argv, [])
        out, err = capsys.readouterr()
        return code, out, err

    return call
