"""Reduce the samples of a run to a short series."""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from weigh.model.record import PeakMemory, SampleSeries, TreeSample
from weigh.units import Seconds

TIMES_INTERVAL = 0.5  # seconds between reads of CPU time where there is no perf
MOST_COLUMNS = 500  # columns of a series
_SHORTEST_RATE = 0.02  # seconds between two readings of CPU time


def peak_in_samples(
    samples: Sequence[TreeSample], peak: PeakMemory | None
) -> list[TreeSample]:
    """Return the samples with *peak* as their largest, at its time.

    A sample may show a spike of one process that the settled peak does not have, and
    a peak may settle after its sample: a record has one figure for both.
    """
    if peak is None or not samples:
        return list(samples)
    kept = [
        msgspec.structs.replace(sample, memory=min(sample.memory, peak.value))
        for sample in samples
    ]
    # no sample reached the peak: put it at the nearest one
    if peak.time is not None and max(one.memory for one in kept) < peak.value:
        gaps = [abs(one.time - peak.time) for one in kept]
        place = gaps.index(min(gaps))
        kept[place] = msgspec.structs.replace(kept[place], memory=peak.value)
    return kept


def thin_series(
    samples: Sequence[TreeSample], limit: int = MOST_COLUMNS
) -> SampleSeries:
    """Return samples as columns of at most *limit* (3 or more) values, peaks included.

    The busy CPUs are the mean between the two readings around a sample; None where
    unknown, or where an ended process took its CPU time away.
    """
    kept = thin_samples(samples, limit)
    return SampleSeries(
        t=tuple(sample.time for sample in kept),
        memory=tuple(sample.memory for sample in kept),
        cpu=_cpus_busy(samples, kept),
    )


def thin_samples(samples: Sequence[TreeSample], limit: int) -> list[TreeSample]:
    """Keep at most *limit* (3 or more) samples: first, last, and the peaks between.

    Each of equal stretches of time keeps its largest sample. Repeated thinning affects
    all parts alike.
    """
    if len(samples) <= limit:
        return list(samples)
    start, end = samples[0].time, samples[-1].time
    stretches = limit - 2
    per_second = stretches / (end - start) if end > start else 0.0
    largest: dict[int, TreeSample] = {}
    for sample in samples[1:-1]:
        stretch = min(int((sample.time - start) * per_second), stretches - 1)
        if stretch not in largest or sample.memory > largest[stretch].memory:
            largest[stretch] = sample
    return [samples[0], *largest.values(), samples[-1]]


def _cpus_busy(
    samples: Sequence[TreeSample], kept: Sequence[TreeSample]
) -> tuple[float | None, ...]:
    # CPU time may be read less often than memory
    known = _cpu_readings(samples)
    times = [time for time, _ in known]
    busy: list[float | None] = []
    rate, before = None, 0
    for sample in kept:
        after = bisect_left(times, sample.time)
        if after == len(known):  # no reading followed
            busy.append(None)
            continue
        if after > before:
            rate, before = _rate(known[before], known[after]), after
        busy.append(rate)
    return tuple(busy)


def _cpu_readings(samples: Sequence[TreeSample]) -> list[tuple[Seconds, Seconds]]:
    """Return (time, CPU time), without readings that closely follow another.

    A reading takes some milliseconds itself, so that over a shorter time one process
    would seem to keep several CPUs busy.
    """
    known: list[tuple[Seconds, Seconds]] = []
    for sample in samples:
        if sample.cpu_time is None:
            continue
        if not known or sample.time - known[-1][0] >= _SHORTEST_RATE:
            known.append((sample.time, sample.cpu_time))
    return known


def _rate(
    before: tuple[Seconds, Seconds], now: tuple[Seconds, Seconds]
) -> float | None:
    used = now[1] - before[1]
    # the sum falls when a process ends and takes its time with it
    return used / (now[0] - before[0]) if used >= 0 else None
