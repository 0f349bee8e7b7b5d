from pathlib import Path

import pytest
from called_weigh import called_here, work_alone_in
from planning import HUNDRED, Keep, Weigh, a_run, keep_run


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


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Keep a record of a command that held so much on each of its GPUs."""

    def keep_it(command: str, *held: int, busy: float | None = None) -> None:
        keep_run(tmp_path, a_run(command, *held, busy=busy))

    return keep_it
