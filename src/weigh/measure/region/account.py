"""Figures of regions: one account per open region, one node per place."""

import time
from contextvars import ContextVar
from types import ModuleType

from weigh.measure.region.durations import DurationSummary
from weigh.measure.region.gpu_meter import GpuSpan
from weigh.model.record import BatchTimes, LengthPeak, ProgramPhase
from weigh.units import Bytes, Seconds

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

RESET = "kernel high-water mark, started anew at each region"
ROSE = "kernel high-water mark, which rose in it"
BOUND = "upper bound: the process's high-water mark, not reset"


class RegionSpan:
    """Memory from the start of a region to its end, or to its last reading.

    ``mark`` is the process's high-water mark at the start, ``moment`` the number of the
    start; ``exact`` is known at the end.
    """

    __slots__ = ("after", "before", "closed", "exact", "gpus", "mark", "moment", "peak")

    def __init__(self) -> None:
        self.before: Bytes | None = None  # bytes now, None: not known
        self.after: Bytes | None = None
        self.peak: Bytes | None = None  # bytes; None: not known
        self.mark: Bytes | None = None
        self.moment = 0
        self.exact = False
        self.gpus: GpuSpan | None = None  # None: no GPU is visible
        self.closed = False


class RegionPeak:
    """The highest peak of several spans, and whether it is exact."""

    __slots__ = ("exact", "value")

    def __init__(self) -> None:
        self.value: Bytes | None = None
        self.exact = False

    def fold(self, region_span: RegionSpan) -> None:
        """Add a span."""
        if region_span.peak is None or region_span.peak < (self.value or 0):
            return
        # several spans may have the same peak: one exact figure is enough
        self.exact = region_span.exact or (
            self.exact and region_span.peak == self.value
        )
        self.value = region_span.peak

    def source(self, *, resets: bool) -> str | None:
        """Return the description of the figure's source."""
        if self.value is None:
            return None
        if not self.exact:
            return BOUND
        return RESET if resets else ROSE


class RegionNode:
    """All calls of one region at one place in the nesting; times add up.

    ``calls`` counts the ended ones, ``entered`` the started ones.
    """

    __slots__ = (
        "after",
        "before",
        "calls",
        "changed",
        "cpu",
        "end",
        "entered",
        "gpus",
        "path",
        "peak",
        "start",
        "wall",
    )

    def __init__(self, path: tuple[str, ...], start: Seconds) -> None:
        self.path = path
        self.entered = self.calls = 0  # calls begun; calls ended
        self.start = self.end = start
        self.wall = self.cpu = 0.0
        self.before: Bytes | None = None
        self.after: Bytes | None = None
        self.peak = RegionPeak()
        self.gpus = GpuSpan()
        self.changed = True

    def add(self, account: "OpenRegion", end: Seconds) -> None:
        """Add a call that has ended."""
        span = account.span
        self.calls += 1
        self.end = end
        self.wall += account.wall
        self.cpu += account.cpu
        self.after = span.after
        self.peak.fold(span)
        if span.gpus is not None:
            self.gpus.merge(span.gpus.memory())
        self.changed = True

    def phase(self, origin: Seconds, *, resets: bool) -> ProgramPhase:
        """Return the calls so far, with times since *origin*."""
        return ProgramPhase(
            name=self.path[-1],
            depth=len(self.path) - 1,
            calls=self.calls,
            start=self.start - origin,
            end=self.end - origin,
            wall_time=self.wall,
            cpu_time=self.cpu if self.calls else None,
            memory_before=self.before,
            memory_after=self.after,
            peak_memory=self.peak.value,
            gpus=self.gpus.memory(),
            source=self.peak.source(resets=resets),
        )


class OpenRegion:
    """One open region at its place; ``owner`` is the tracker that opened it."""

    __slots__ = ("cpu", "node", "owner", "parent", "span", "start", "sync", "wall")

    def __init__(
        self, owner: object, cluster_node: RegionNode, parent: "OpenRegion | None"
    ) -> None:
        self.owner = owner
        self.node = cluster_node
        self.parent = parent
        self.span = RegionSpan()
        self.start = self.wall = self.cpu = 0.0
        self.sync = False


class LoopSum:
    """All loops over batches of one nominal size and expected count."""

    __slots__ = (
        "changed",
        "end",
        "gpus",
        "lengths",
        "peak",
        "samples",
        "shortest",
        "size",
        "start",
        "times",
        "total",
    )

    def __init__(self, size: int | None, start: Seconds = 0.0) -> None:
        self.size = size
        self.start = self.end = start
        self.times = DurationSummary()
        self.samples: int | None = 0  # None: a batch could not be counted
        self.total: int | None = None  # batches that are expected; None: unknown
        self.peak = RegionPeak()
        self.gpus = GpuSpan()
        self.shortest: int | None = None  # of the shortest batch; None: no lengths
        self.lengths: list[LengthPeak] = []  # each longer than the one before
        self.changed = True

    def add_total(self, total: int | None) -> None:
        """Expect *total* batches more."""
        if total is not None:
            self.total = (self.total or 0) + total

    def add(self, times: DurationSummary, samples: int | None) -> None:
        """Add batches; their samples are unknown if any are unknown."""
        self.times.merge(times)
        known = self.samples is not None and samples is not None
        # one unknown count makes the sum unknown
        self.samples = (self.samples or 0) + (samples or 0) if known else None
        self.changed = True

    def look(self, region_span: RegionSpan, current_time: Seconds) -> None:
        """Add the memory figures so far."""
        self.end = current_time
        self.peak.fold(region_span)
        if region_span.gpus is not None:
            self.gpus.merge(region_span.gpus.memory())

    def add_shortest(self, length: int | None) -> None:
        """Add the length of the shortest batch of a loop, if it has lengths."""
        if length is not None and (self.shortest is None or length < self.shortest):
            self.shortest = length

    def add_length(self, length: int, region_span: RegionSpan) -> None:
        """Add the memory by the end of a batch that may be the longest so far."""
        # a length that was seen already: the first reading belongs to it
        if self.lengths and length <= self.lengths[-1].length:
            return
        gpus = region_span.gpus.memory() if region_span.gpus is not None else ()
        on_gpu = max((gpu.of_program for gpu in gpus), default=None)
        self.lengths.append(LengthPeak(length, region_span.peak, on_gpu))

    def batches(self, origin: Seconds = 0.0) -> BatchTimes:
        """Return the figures so far, with times since *origin*."""
        times = self.times
        some = times.count > 0
        return BatchTimes(
            size=self.size,
            count=times.count,
            samples=self.samples,
            time_min=times.minimum if some else None,
            time_mean=times.total / times.count if some else None,
            time_median=times.median(),
            time_max=times.maximum if some else None,
            time_per_sample=times.total / self.samples if self.samples else None,
            peak_memory=self.peak.value,
            gpus=self.gpus.memory(),
            total=self.total,
            start=self.start - origin if some else None,
            end=self.end - origin if some else None,
            shortest=self.shortest,
            lengths=tuple(self.lengths),
        )


_innermost: ContextVar[OpenRegion | None] = ContextVar("weigh_region", default=None)


def here() -> OpenRegion | None:
    """Return this thread's or task's region; it may have ended, or be a parent's."""
    return _innermost.get()


def innermost(owner: object) -> OpenRegion | None:
    """Return the innermost region of *owner* open here, in this thread or task."""
    account = here()
    # regions may end in another order, and a fork inherits those of its parent
    while account is not None and (account.span.closed or account.owner is not owner):
        account = account.parent
    return account


def step_in(account: OpenRegion | None) -> OpenRegion | None:
    """Make *account* the innermost region here; return the previous one."""
    before = here()
    _innermost.set(account)
    return before


def step_out(account: OpenRegion) -> None:
    """Make the parent of *account* the innermost region, if *account* is that now."""
    # it may have ended in another task than it began in
    if here() is account:
        _innermost.set(account.parent)


def cpu_time() -> Seconds:
    """Return the CPU seconds of this process and its waited-for children."""
    if resource is None:
        return time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = float(children.ru_utime + children.ru_stime)
    return time.process_time() + waited_for
