"""Reduce samples to a short series, and decide whether memory was still growing."""

from bisect import bisect_right
from collections.abc import Sequence

from weigh.model.record import Sample, Series
from weigh.units import Seconds

_LONGEST = 500  # columns of a series
_WORTH_ASKING = 20  # samples; avoids the import for the shortest runs


def thin_series(samples: Sequence[Sample], limit: int = _LONGEST) -> Series:
    """Return samples as columns of at most *limit* (3 or more) values, peaks included.

    The busy CPUs are counted since the previous kept sample; None where unknown, or
    where an ended process took its CPU time away.
    """
    kept = thin_samples(samples, limit)
    return Series(
        t=tuple(sample.time for sample in kept),
        memory=tuple(sample.memory for sample in kept),
        cpu=_cpus_busy(samples, kept),
    )


def thin_samples(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """Keep at most *limit* (3 or more) samples: first, last, and the peaks between.

    Each of equal stretches of time keeps its largest sample. Repeated thinning affects
    all parts alike.
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
        # CPU time may be read less often than memory: use the last reading before
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
    """Return whether the run ended while its memory was still rising.

    None for a run that is too short. Only the record's series is used, so that a later
    reader of the record gets the same answer.
    """
    if len(samples) < _WORTH_ASKING:
        return None
    from weigh.estimate import growth  # noqa: PLC0415 - start-up time

    kept = thin_samples(samples, _LONGEST)
    times = [sample.time for sample in kept]
    return growth.is_growing(times, [sample.memory for sample in kept])
