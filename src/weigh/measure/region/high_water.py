"""The kernel's one high-water mark, shared out to every region that is open.

Every edge of a region reads the mark, keeps it for all open spans and the process's own
maximum, and starts it anew. A spike of another thread between reading and resetting is
lost; nothing else is. The caller holds a lock.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from weigh.measure.region.account import Span
from weigh.measure.region.gpu_meter import GpuMark, GpuMeter, GpuSpan, most
from weigh.probe.own_memory import OwnMemory
from weigh.units import KIB, Bytes, Seconds

_SLACK = 64 * KIB  # VmHWM's own counters are off by as much
_GPU_AGE = 0.1
_FEW = 100  # marks more than twice the open spans, before some are forgotten


class Highest:
    """The highest of all marks since any moment, however many ask.

    Only marks that none has reached since are kept, so they fall from first to last.
    """

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._marks: list[Bytes] = []
        self._now = 0

    def __len__(self) -> int:
        return len(self._marks)

    def moment(self) -> int:
        """Begin a moment: what is taken from here on is since then."""
        self._now += 1
        return self._now

    def take(self, mark: Bytes) -> None:
        """Take a mark in."""
        while self._marks and self._marks[-1] <= mark:
            self._marks.pop()
            self._moments.pop()
        if not self._moments or self._moments[-1] < self._now:
            self._marks.append(mark)
            self._moments.append(self._now)

    def since(self, moment: int) -> Bytes | None:
        """Give the highest mark since *moment*; None if there was none."""
        at = bisect_left(self._moments, moment)
        return self._marks[at] if at < len(self._marks) else None

    def keep_since(self, moments: Iterable[int]) -> None:
        """Forget the marks that matter to none of *moments*."""
        places = {bisect_left(self._moments, moment) for moment in moments}
        places.discard(len(self._marks))
        kept = sorted(places)
        self._moments = [self._moments[at] for at in kept]
        self._marks = [self._marks[at] for at in kept]


class HighWater:
    """Peaks of all that is open; ``peak`` is the process's own.

    Args:
        memory: where this process's memory is read.
        meter: where the GPUs' is.
        resets: whether the mark may be reset.
        before_reset: told the process's peak before a reset would lose it; where it
            gives False, nothing is reset from then on.
    """

    def __init__(
        self,
        memory: OwnMemory,
        meter: GpuMeter,
        *,
        resets: bool,
        before_reset: Callable[[Bytes], bool],
    ) -> None:
        self.resets = resets
        self.peak: Bytes | None = None
        self._memory = memory
        self._meter = meter
        self._before_reset = before_reset
        self._open: set[Span] = set()
        self._highest = Highest()
        self._marks: tuple[GpuMark, ...] = ()

    def open(self, span: Span, *, often: bool = False) -> None:
        """Begin *span*; where that happens *often*, GPUs are not read each time."""
        marks = self._read_gpus(_GPU_AGE if often else 0.0)
        span.gpus = GpuSpan(marks) if marks else None
        resident, mark = self.edge()
        span.before = resident
        span.mark = mark
        span.peak = resident if self.resets else mark
        span.moment = self._highest.moment()
        self._open.add(span)

    def close(self, span: Span, *, often: bool = False) -> None:
        """End *span*."""
        self.look(span, often=often)
        span.closed = True
        self._open.discard(span)

    def look(self, span: Span, *, often: bool = False) -> None:
        """Bring a span that is open up to date."""
        self._read_gpus(_GPU_AGE if often else 0.0)
        resident, mark = self.edge()
        span.after = resident
        span.peak = most(span.peak, self._highest.since(span.moment))
        rose = mark is not None and span.mark is not None and mark > span.mark
        span.exact = self.resets or span.exact or rose

    def edge(self) -> tuple[Bytes | None, Bytes | None]:
        """Keep the mark for all that is open, then start it anew.

        Returns:
            What is resident, and what the mark was.
        """
        reading = self._memory.read()
        if reading is None:
            self.resets = False
            return None, None
        resident, mark = reading
        self._highest.take(mark)
        if len(self._highest) > 2 * len(self._open) + _FEW:
            self._highest.keep_since(span.moment for span in self._open)
        self.peak = max(self.peak or 0, mark)
        if self.resets and mark > resident + _SLACK:
            self.resets = self._before_reset(self.peak) and self._memory.reset()
        return resident, mark

    def _read_gpus(self, at_most_old: Seconds) -> tuple[GpuMark, ...]:
        marks = self._meter.read(at_most_old)
        if marks is not self._marks:  # of the same look, all open spans know
            self._marks = marks
            for span in tuple(self._open):
                if span.gpus is not None:
                    span.gpus.fold(marks)
        return marks
