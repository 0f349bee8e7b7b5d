"""What a task's program told of its phases, added to what was seen of it."""

import time

from weigh.flow.run.channel import with_regions
from weigh.model.record import Measurement


def with_told(path: str, measured: Measurement) -> Measurement:
    """Add what a task's program told of itself to what was seen of it."""
    from weigh.measure.region.channel import clock, read_channel  # noqa: PLC0415 - few tasks

    started = clock() - (time.time() - measured.started)
    ended = started + measured.usage.wall_time
    regions = read_channel(path, started=started, ended=ended)
    return with_regions(measured, regions)
