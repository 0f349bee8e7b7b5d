"""Samples to what is kept of them: a thinned series, and whether memory still rises."""

from bisect import bisect_right
from collections.abc import Sequence

from weigh.model.record import Sample, Series
from weigh.units import Bytes, Seconds

_FEWEST = 20  # samples, below which a trend is a guess
_SHORTEST = 1.0  # seconds, below which a run is all start-up
_SETTLED = 0.25  # of the run: loading may peak higher than all that follows
_TAILS = (0.5, 0.75)  # of the run: rising since the one and since the other
_GRID = 64  # moments a tail is looked at: 2,016 slopes, about a millisecond
_STEP_AHEAD = 0.1  # of the run
_MATERIAL = 0.02  # of the peak


def thin_series(samples: Sequence[Sample], limit: int = 500) -> Series:
    """Lay samples out in columns of at most *limit* (3 or more), keeping every peak.

    CPUs busy are those since the sample kept before; None where that is not known, or
    where the end of a process took its CPU time away.
    """
    kept = thin_samples(samples, limit)
    return Series(
        t=tuple(sample.time for sample in kept),
        memory=tuple(sample.memory for sample in kept),
        cpu=_cpus_busy(samples, kept),
    )


def thin_samples(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """Keep at most *limit* (3 or more) samples: first, last, and the peaks between.

    Each of equal stretches of time keeps its largest memory, and so the whole keeps
    its own. Thinning again what was thinned before wears no part more than another.
    """
    if len(samples) <= limit:
        return list(samples)
    start, end = samples[0].time, samples[-1].time
    stretches = limit - 2
    per_second = stretches / (end - start) if end > start else 0.0
    largest: dict[int, Sample] = {}
    for sample in samples[1:-1]:
        stretch = min(int((sample.time - start) * per_second), stretches - 1)
        if stretch not in largest or sample.memory > largest[stretch].memory:
            largest[stretch] = sample
    return [samples[0], *largest.values(), samples[-1]]


def _cpus_busy(
    samples: Sequence[Sample], kept: Sequence[Sample]
) -> tuple[float | None, ...]:
    known = [(s.time, s.cpu_time) for s in samples if s.cpu_time is not None]
    times = [time for time, _ in known]
    busy: list[float | None] = []
    before: tuple[Seconds, Seconds] | None = None
    for sample in kept:
        # CPU time may be read less often than memory: take the last reading by then
        at = bisect_right(times, sample.time) - 1
        now = known[at] if at >= 0 else None
        busy.append(_rate(before, now))
        before = now
    return tuple(busy)


def _rate(
    before: tuple[Seconds, Seconds] | None, now: tuple[Seconds, Seconds] | None
) -> float | None:
    if before is None or now is None:
        return None
    elapsed, used = now[0] - before[0], now[1] - before[1]
    return used / elapsed if elapsed > 0 and used >= 0 else None


def is_growing(samples: Sequence[Sample]) -> bool | None:
    """Tell whether the run ended while its memory was still rising.

    It was if the most held so far rose all through the last half of the run, and all
    through its last quarter, fast enough to add 2 % of the peak in a tenth of the run.
    Taking the most held so far makes flat batches and a final release look flat;
    taking the median of all slopes makes one late step look flat. None for a run too
    short to tell. What a run held in its first quarter does not count: a model may
    peak while it loads.

    Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau,
    JASA 63 (1968) 1379-1389, for the slope.
    """
    if len(samples) < _FEWEST or _duration(samples) < _SHORTEST:
        return None
    duration = _duration(samples)
    times, most = _most_so_far(samples, samples[0].time + _SETTLED * duration)
    peak = max(sample.memory for sample in samples)
    needed = _MATERIAL * peak / (_STEP_AHEAD * duration)
    end = samples[-1].time
    for tail in _TAILS:
        start = samples[0].time + tail * duration
        step = (end - start) / (_GRID - 1)
        grid = [start + step * turn for turn in range(_GRID - 1)] + [end]
        held = [most[max(bisect_right(times, time) - 1, 0)] for time in grid]
        if _median_slope(grid, held) <= needed:
            return False
    return True


def _duration(samples: Sequence[Sample]) -> Seconds:
    return samples[-1].time - samples[0].time


def _most_so_far(
    samples: Sequence[Sample], start: Seconds
) -> tuple[list[Seconds], list[Bytes]]:
    times, most, largest = [], [], 0
    for sample in samples:
        if sample.time >= start:
            largest = max(largest, sample.memory)
            times.append(sample.time)
            most.append(largest)
    return times, most


def _median_slope(times: Sequence[Seconds], values: Sequence[float]) -> float:
    """Give the median of the slopes between all pairs of points, the lower of two."""
    slopes = sorted(
        (values[later] - values[earlier]) / (times[later] - times[earlier])
        for later in range(len(times))
        for earlier in range(later)
    )
    return slopes[(len(slopes) - 1) // 2]
