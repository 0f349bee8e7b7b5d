"""The kernel's one high-water mark, shared out to every region that is open.

Every edge of a region reads the mark, folds it into all open spans and the process's
own maximum, and starts it anew. A spike of another thread between reading and resetting
is lost; nothing else is. The caller holds a lock.
"""

from collections.abc import Callable

from weigh.measure.account import Span
from weigh.measure.gpu_meter import GpuMark, GpuMeter, GpuSpan
from weigh.probe.own_memory import OwnMemory
from weigh.units import KIB, Bytes, Seconds

_SLACK = 64 * KIB  # VmHWM's own counters are off by as much
_GPU_AGE = 0.1


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

    def open(self, span: Span, *, often: bool = False) -> None:
        """Begin *span*; where that happens *often*, GPUs are not read each time."""
        marks = self._read_gpus(_GPU_AGE if often else 0.0)
        span.gpus = GpuSpan(marks) if marks else None
        resident, mark = self.edge()
        span.before = resident
        span.mark = mark
        span.peak = resident if self.resets else mark
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
        rose = mark is not None and span.mark is not None and mark > span.mark
        span.exact = self.resets or span.exact or rose

    def edge(self) -> tuple[Bytes | None, Bytes | None]:
        """Fold the mark into all that is open, then start it anew.

        Returns:
            What is resident, and what the mark was.
        """
        reading = self._memory.read()
        if reading is None:
            self.resets = False
            return None, None
        resident, mark = reading
        for span in tuple(self._open):
            if mark > (span.peak or 0):
                span.peak = mark
        self.peak = max(self.peak or 0, mark)
        if self.resets and mark > resident + _SLACK:
            self.resets = self._before_reset(self.peak) and self._memory.reset()
        return resident, mark

    def forget_all(self) -> tuple[Span, ...]:
        """Give what is still open, and open no more of it."""
        left, self._open = tuple(self._open), set()
        return left

    def _read_gpus(self, at_most_old: Seconds) -> tuple[GpuMark, ...]:
        marks = self._meter.read(at_most_old)
        for span in tuple(self._open):
            if span.gpus is not None:
                span.gpus.fold(marks)
        return marks
