"""Records of made-up runs whose memory is a function of time."""

from collections.abc import Callable

from weigh.estimate.growth import is_memory_growing
from weigh.measure.series import thin_series
from weigh.model.record import PeakMemory, Record, TreeSample, Usage
from weigh.units import GIB, MINUTE, Bytes, Seconds

Curve = Callable[[Seconds], float]


def run(  # noqa: PLR0913 - keyword-only past the first
    curve: Curve,
    *,
    minutes: float = 60.0,
    name: str = "train",
    files: Bytes = 0,
    step: Seconds = 1.0,
    state: str = "COMPLETED",
) -> Record:
    """Return the record of a run whose memory was *curve*, in GiB, at each step."""
    times = [step * at for at in range(int(minutes * MINUTE / step) + 1)]
    sizes = [int(curve(at) * GIB) for at in times]
    samples = [
        TreeSample(at, size, None, 1) for at, size in zip(times, sizes, strict=True)
    ]
    series, peak = thin_series(samples), max(sizes)
    return Record(
        id=name,
        label=name,
        command=("train",),
        started="2026-11-26T09:00:00Z",
        state=state,
        usage=Usage(
            wall_time=times[-1],
            peak_memory=PeakMemory(
                value=peak,
                low=peak,
                high=peak,
                anonymous=peak - files,
                shared=0,
                file=files,
                source="proc",
            ),
            growing=is_memory_growing(series.t, series.memory),
        ),
        series=series,
    )
