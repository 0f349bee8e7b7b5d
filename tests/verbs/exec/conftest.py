import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from batches import Batch

collect_ignore_glob: list[str] = []
if sys.platform != "linux":
    collect_ignore_glob.append("test_*.py")


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Batch]:
    """Return a task file to run in a folder of its own; nothing of it is left after."""
    batch = Batch(tmp_path)
    yield batch
    for pid in batch.marked():
        with suppress(ProcessLookupError):  # it may be ending
            os.kill(pid, signal.SIGKILL)
    for started in batch.started:
        started.kill()
        started.communicate()
    subprocess._cleanup()  # type: ignore[attr-defined]


@pytest.fixture
def small_disk(tmp_path: Path, mount_namespace: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that run a command where ``small/`` is a disk of 64 KiB."""
    (tmp_path / "small").mkdir()
    mount = f"mount -t tmpfs -o size=64k none {tmp_path}/small"
    # the disk goes with the namespace: what is on it is copied out at the end
    line = f'{mount}; "$@"; code=$?; cp -r small/. kept; exit $code'
    return (*mount_namespace, line, "sh")
