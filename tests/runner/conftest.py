import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from batches import Batch

collect_ignore_glob: list[str] = []
if sys.platform != "linux":
    collect_ignore_glob.append("test_*.py")


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Batch]:
    """Give a task file to run in a folder of its own; nothing of it is left after."""
    batch = Batch(tmp_path)
    yield batch
    for pid in batch.marked():
        os.kill(pid, signal.SIGKILL)
    for started in batch.started:
        started.kill()
        started.communicate()
    subprocess._cleanup()  # type: ignore[attr-defined]
