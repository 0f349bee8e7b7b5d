"""Control groups for memory: commands that are alone in one, or have so much of it."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import until

from weigh.probe.cgroup import memory_folder


@contextmanager
def alone_in_a_group(limit: int | None = None) -> Iterator[tuple[str, ...]]:
    """Yield the words before a command that is to be alone in a group, below ours."""
    own, version = memory_folder(Path("/proc/self/cgroup").read_text())
    if version != 1 or not os.access(own, os.W_OK):
        pytest.skip("no memory cgroup can be made here")
    group = Path(own, f"weigh-test-{os.getpid()}-{uuid.uuid4().hex}")
    group.mkdir()
    try:
        if limit is not None:
            (group / "memory.limit_in_bytes").write_text(str(limit))
        yield "sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"
    finally:
        until(lambda: not (group / "cgroup.procs").read_text())  # what was killed
        group.rmdir()
