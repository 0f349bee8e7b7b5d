"""What the tests of reports share: a store of their own, and ``weigh`` as a call."""

from pathlib import Path

import pytest
from called_weigh import CalledWeigh


@pytest.fixture
def root(tmp_path: Path, weigh: CalledWeigh, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the folder of an empty store, and be beside it."""
    del weigh
    monkeypatch.setenv("WEIGH_POLL", "1000000h")
    return str(tmp_path / ".weigh")


@pytest.fixture
def say(root: str, weigh: CalledWeigh) -> CalledWeigh:
    del root
    return weigh
