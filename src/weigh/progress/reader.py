"""Reads along with what a run prints, and says when it will end."""

import math
import re
from collections.abc import Sequence

import msgspec

from weigh.model.progress import Forecast
from weigh.progress.choice import Chosen, chosen
from weigh.progress.lines import Line, Lines
from weigh.progress.marks import STEP, Mark
from weigh.progress.nest import Nest
from weigh.progress.parser import Parser
from weigh.units import Seconds

_FIGURES = b"0123456789.,"
_AT_ONCE: Seconds = 0.05
_LAST_NUMBER = re.compile(rb"[\d.,]+$")


class Reader:
    """Progress of one run, from the bytes it prints or the steps it tells.

    Args:
        patterns: The user's own regular expressions with the named groups ``done``
            and ``total``, or ``percent``.
        epochs: How many epochs the run makes, where it does not print that itself.

    Raises:
        FormatError: A pattern is no regular expression, or has no such group.
    """

    def __init__(
        self, patterns: Sequence[str] = (), *, epochs: float | None = None
    ) -> None:
        self._parser = Parser(patterns, epochs=epochs)
        self._lines = Lines()
        self._nest = Nest()
        self._held: Line | None = None
        self._shape = b""
        self._shape_since: Seconds = 0.0
        self._clock: Seconds = 0.0
        self._last: Seconds = 0.0

    def feed(self, chunk: bytes, now: Seconds) -> None:
        """Take in *chunk*, cut anywhere, that passed *now* seconds into the run."""
        self._read(self._lines.feed(chunk, self._passed(now)))

    def tell(self, done: float, total: float | None, now: Seconds, source: str) -> None:
        """Take in a count that the run told itself: *done* of *total* steps."""
        time = self._passed(now)
        self._release()
        if total is not None and not 0 < total < math.inf:
            total = None
        if 0 <= done < math.inf:
            self._nest.take(Mark(source, "", STEP, done, total), time)

    def forecast(self, now: Seconds, *, is_through: bool = False) -> Forecast | None:
        """Say when the run ends, as seen *now* seconds into it.

        None while nothing has counted. ``remaining`` is counted from *now*.
        *is_through*: it has ended well, and the epoch that it began last is done.
        """
        time = self._passed(now)
        self._read(self._lines.catch_up())
        waiting = self._lines.unended()
        # the number that a line breaks off with may have more digits to come
        self._read([Line(_LAST_NUMBER.sub(b"", waiting.text), waiting.time)])
        self._release()
        self._nest.settle()
        found = chosen(self._nest, is_through=is_through)
        return found and _forecast(found, now=self._last, waited=time - found.time)

    def _read(self, lines: list[Line]) -> None:
        """Take in *lines*; of many at once that differ in figures only, the last."""
        for line in lines:
            shape = line.text.translate(None, _FIGURES)
            is_same = shape == self._shape
            if not is_same or line.time - self._shape_since >= _AT_ONCE:
                self._release()
                self._shape, self._shape_since = shape, line.time
            self._held = line

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            for mark in self._parser.marks(held.text):
                self._nest.take(mark, held.time)

    def _passed(self, now: Seconds) -> Seconds:
        """Advance the inner clock to *now*; it stands still where clocks go back."""
        if not math.isfinite(now):
            return self._clock
        self._clock += max(0.0, now - self._last)
        self._last = now
        return self._clock


def _forecast(found: Chosen, *, now: Seconds, waited: Seconds) -> Forecast:
    """Make the forecast *waited* seconds after the last count.

    What was waited is taken off up to the usual time between two counts. Longer than
    that, the run is late, and nobody knows by how much: the high end goes up.
    """
    forecast = Forecast(
        done=found.done, total=found.total, time=now, source=found.source
    )
    if found.pace is None:
        return forecast
    step_time, remaining, margin, grain = found.pace
    forecast = msgspec.structs.replace(forecast, step_time=step_time)
    if found.total is None:
        return forecast
    taken = min(waited, grain)
    late = waited - taken
    return msgspec.structs.replace(
        forecast,
        remaining=max(0.0, remaining - taken),
        low=max(0.0, remaining - margin - taken),
        high=max(0.0, remaining + margin - taken) + late,
    )
