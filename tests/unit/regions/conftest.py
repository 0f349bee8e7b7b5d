from collections.abc import Iterator

import pytest

from weigh.flow.run import regions
from weigh.measure.region import this_process
from weigh.measure.region.tracker import Tracker


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracker]:
    """Give this process a tracker of its own for a test, and none afterwards."""
    tracker = Tracker({})
    process = this_process._Process()
    process.report = regions._render
    process.tracker = tracker
    monkeypatch.setattr(this_process, "_process", process)
    yield tracker
    tracker.finish()
