"""Programs with regions in them, run in processes of their own."""

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from run_captured import CapturedRun, run_captured

from weigh.measure.region.channel import read_channel
from weigh.measure.region.tracker import ProcessRegions, RegionTracker
from weigh.model.record import ProgramPhase, ProgramRegions

TrackWith = Callable[[RegionTracker | None], ProcessRegions]  # see conftest.py
PATIENCE = 90
_TELL = """
import msgspec
print(msgspec.json.encode(weigh.report()).decode())
"""


def run(code: str, **env: str) -> CapturedRun:
    """Run Python code with ``import weigh`` before it; *env* is added."""
    return run_captured(
        [sys.executable, "-W", "error", "-c", f"import weigh\n{code}"],
        env={**os.environ, **env},
    )


def report_of(code: str, **env: str) -> Any:
    """Run code, then ``weigh.report()``; give what that returned."""
    done = run(code + _TELL, **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def places(phases: Iterable[ProgramPhase]) -> list[tuple[str, int, int]]:
    """Return name, depth and calls of each phase."""
    return [(one.name, one.depth, one.calls) for one in phases]


class Channel:
    """A wrapper's side of the channel."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def run(self, code: str, **env: str) -> CapturedRun:
        """Run code that tells this channel."""
        return run(code, WEIGH_CHANNEL=str(self.path), **env)

    def regions(
        self, started: float = 0.0, ended: float | None = None
    ) -> ProgramRegions:
        """Read what was told."""
        return read_channel(str(self.path), started=started, ended=ended)

    def lines(self) -> list[dict[str, Any]]:
        """Return the raw lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@contextmanager
def held(size: int) -> Iterator[None]:
    """Hold memory that was written to, and give it back; malloc might keep it."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as ballast:
        for start in range(0, size, mmap.PAGESIZE):
            ballast[start] = 1
        yield
