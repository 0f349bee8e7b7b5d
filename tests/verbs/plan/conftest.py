from pathlib import Path

import pytest
from called_weigh import CalledWeigh
from planning import HUNDRED


@pytest.fixture
def weigh(weigh: CalledWeigh, tmp_path: Path) -> CalledWeigh:
    """Return weigh in a folder with a hundred tasks."""
    (tmp_path / "tasks.txt").write_text(HUNDRED)
    return weigh
