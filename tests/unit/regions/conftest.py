from collections.abc import Iterator

import pytest

from weigh.flow.run import regions
from weigh.measure.region import this_process
from weigh.measure.region.tracker import RegionTracker


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegionTracker]:
    """Give this process a tracker of its own for a test, and none afterwards."""
    tracker = RegionTracker({})
    process = this_process._ProcessState()
    process.report = regions._render
    process.tracker = tracker
    monkeypatch.setattr(this_process, "_process", process)
    yield tracker
    tracker.finish()
