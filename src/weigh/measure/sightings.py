"""What a portable run's samples add up to: the peak, its bounds, its source."""

import msgspec

from weigh.measure.reduce import thin_samples
from weigh.model.record import PeakMemory, Sample
from weigh.probe.psutil_tree import TreeReading
from weigh.units import Bytes, Seconds

_MOST_SAMPLES = 4000


class KernelPeak(msgspec.Struct, frozen=True):
    """The most the largest single process held, as the kernel saw it.

    Up to ``floor`` it may be the launching process's own memory.
    """

    size: Bytes
    floor: Bytes = 0

    @property
    def exact(self) -> Bytes | None:
        """The size, where it is surely the job's."""
        return self.size if self.size > self.floor else None


class Sightings:
    """What the samples of a run have shown so far."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.looks = 0
        self.largest: Bytes = 0
        self.unshared: Bytes = 0
        self.virtual: Bytes | None = None
        self.high: Bytes = 0
        self.top: Sample | None = None
        self.unread = 0

    def add(self, time: Seconds, seen: TreeReading) -> None:
        """Take one reading in."""
        self.looks += 1
        self.unread = max(self.unread, seen.unread)
        if seen.processes == 0:
            return
        sample = Sample(
            time, seen.memory, seen.memory_high, seen.cpu_time, seen.processes
        )
        self.samples.append(sample)
        if len(self.samples) >= _MOST_SAMPLES:
            self.samples = thin_samples(self.samples, _MOST_SAMPLES // 2)
        self.largest = max(self.largest, seen.largest_process)
        self.unshared = max(self.unshared, seen.unshared or 0)
        self.high = max(self.high, seen.memory_high)
        if seen.virtual_memory is not None:
            self.virtual = max(self.virtual or 0, seen.virtual_memory)
        if self.top is None or seen.memory > self.top.memory:
            self.top = sample


def peak_memory(
    seen: Sightings,
    largest: KernelPeak | None,
    *,
    processes: int,
    interval: Seconds,
) -> PeakMemory | None:
    """Join what was sampled with what the kernel says of the *largest* process.

    The bounds hold the truth unless several processes peaked between samples at once,
    or short ones were never seen.
    """
    exact = largest.exact if largest is not None else None
    sampled = seen.top.memory if seen.top is not None else 0
    value = max(sampled, exact or 0)
    unseen = max(0, largest.size - seen.largest) if largest is not None else 0
    high = max(value, (seen.high if processes > 1 else sampled) + unseen)
    if exact is not None and processes == 1:
        high = value
    if high == 0:
        return None
    at = seen.top.time if seen.top is not None and sampled == value else None
    return PeakMemory(
        value=value or high,
        low=min(value, max(seen.largest, exact or 0, seen.unshared)),
        high=high,
        anonymous=None,
        shared=None,
        file=None,
        source=_source(seen, exact, processes=processes, interval=interval),
        time=at,
    )


def _source(
    seen: Sightings, exact: Bytes | None, *, processes: int, interval: Seconds
) -> str:
    every = f"every {round(interval * 1000)} ms"
    if seen.top is None:
        known = "launcher floor" if exact is None else "largest process only"
        return f"kernel: {known}"
    if processes > 1:
        return (
            f"psutil: sum of resident sets, sampled {every}; "
            "shared pages counted more than once"
        )
    if exact is not None:
        return "kernel: peak of the one process"
    return f"psutil: peak of the one process, read {every}"
