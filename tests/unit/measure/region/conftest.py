from collections.abc import Iterator

import pytest
from region_programs import TrackWith

from weigh.flow.run import regions
from weigh.measure.region import tracker as region_tracker
from weigh.measure.region.tracker import ProcessRegions, RegionTracker


@pytest.fixture
def track_with() -> Iterator[TrackWith]:
    """Return what gives this process a tracker for a test; with None it makes one."""
    before = region_tracker.process

    def set_for_test(tracker: RegionTracker | None) -> ProcessRegions:
        region_tracker.process = ProcessRegions(regions._render)
        region_tracker.process.tracker = tracker
        return region_tracker.process

    yield set_for_test
    region_tracker.process = before


@pytest.fixture
def tracker(track_with: TrackWith) -> Iterator[RegionTracker]:
    """Give this process a tracker of its own for a test, and none afterwards."""
    tracker = RegionTracker({})
    track_with(tracker)
    yield tracker
    tracker.finish()
