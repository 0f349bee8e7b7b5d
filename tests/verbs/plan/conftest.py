from pathlib import Path

import pytest
from called_weigh import called_here, work_alone_in
from planning import HUNDRED, Weigh


@pytest.fixture
def weigh(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Weigh:
    """``weigh`` in a folder of its own, without records, settings or a scheduler."""
    work_alone_in(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "tasks.txt").write_text(HUNDRED)

    return called_here(capsys)
