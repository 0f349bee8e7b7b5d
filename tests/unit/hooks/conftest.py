from collections.abc import Callable

import pytest

from weigh.measure.region import tracker as region_tracker
from weigh.measure.region.tracker import RegionTracker
from weigh.model.record import ProgramRegions


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> Callable[[], ProgramRegions]:
    """Give what is measured in this test alone."""
    tracker = RegionTracker({"WEIGH_EXACT_PHASES": "0"})
    monkeypatch.setattr(region_tracker.process, "tracker", tracker)
    return tracker.regions
