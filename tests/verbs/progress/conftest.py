import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import HASTY_WEIGH, Weigh

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


@pytest.fixture
def weigh(tmp_path: Path) -> Iterator[Weigh]:
    """Return weigh in a folder of its own; afterwards nothing it started is left."""
    weigh = Weigh(tmp_path, program=HASTY_WEIGH)
    yield weigh
    weigh.close()
