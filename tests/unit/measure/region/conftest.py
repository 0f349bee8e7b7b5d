from collections.abc import Iterator

import pytest

from weigh.flow.run import regions
from weigh.measure.region import tracker as region_tracker
from weigh.measure.region.tracker import RegionTracker


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegionTracker]:
    """Give this process a tracker of its own for a test, and none afterwards."""
    tracker = RegionTracker({})
    process = region_tracker.ProcessRegions(regions._render)
    process.tracker = tracker
    monkeypatch.setattr(region_tracker, "process", process)
    yield tracker
    tracker.finish()
