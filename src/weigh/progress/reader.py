"""Read the output of one run, and forecast when it ends (its remaining time, ETA)."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from weigh.model.record import ReportedProgress
from weigh.progress.counters import PATIENCE, ChosenCounter, NestedCounters
from weigh.progress.figures import PrintedEnds, RisingFigures
from weigh.progress.pace import AT_ONCE, TICK
from weigh.progress.parser import CounterRank, CountParser, StepCount, shown_pieces
from weigh.units import KIB, Seconds

LONGEST = 3 * KIB  # bytes of a line that are kept, and of a tick at both of its ends

_ENDS = re.compile(rb"[\r\n\b]+")


class OutputLine(NamedTuple):
    """One line without its end, and the time of its last byte."""

    text: bytes
    time: Seconds


class LineSplitter:
    """Splits a stream of bytes, which arrives in arbitrary chunks, into lines.

    Carriage returns and backspaces end a line, too. Within 0.2 s only the first and the
    last 3 KiB are read: a run that prints 10 MB/s costs no more than one that prints
    30 kB/s.
    """

    def __init__(self) -> None:
        self._open = OutputLine(b"", 0.0)
        self._in_gap = False  # the next bytes belong to a line that began in the gap
        self._tick = float("-inf")  # when the tick began
        self._room = 0  # bytes that may still be read at once
        self._late = OutputLine(b"", 0.0)  # what has come after these

    def feed(self, chunk: bytes, current_time: Seconds) -> list[OutputLine]:
        """Add *chunk*, and return the lines that ended; *current_time* never falls."""
        found: list[OutputLine] = []
        # a new tick: what was set aside in the last one comes first
        if current_time - self._tick >= TICK:
            found = self.catch_up()
            self._tick, self._room = current_time, LONGEST
        if self._room:
            head, chunk = chunk[: self._room], chunk[self._room :]
            self._room -= len(head)
            found += self._cut(head, current_time)
        if chunk:
            late = self._late.text + chunk[-LONGEST:]
            # what lies between is not read, nor the open line, which lost its middle
            if len(late) > LONGEST or len(chunk) > LONGEST:
                self._open, self._in_gap = OutputLine(b"", 0.0), True
            self._late = OutputLine(late[-LONGEST:], current_time)
        return found

    def catch_up(self) -> list[OutputLine]:
        """Return the lines that were set aside since the tick began."""
        late, self._late = self._late, OutputLine(b"", 0.0)
        return self._cut(late.text, late.time)

    def unended(self) -> OutputLine:
        """Return the line that has no end yet."""
        return self._open

    def _cut(self, data: bytes, current_time: Seconds) -> list[OutputLine]:
        first, *more = _ENDS.split(data)
        joined = (self._open.text + first)[-LONGEST:]
        pieces = [OutputLine(joined, current_time if first else self._open.time)]
        pieces += [OutputLine(piece[-LONGEST:], current_time) for piece in more]
        if self._in_gap:
            pieces[0] = OutputLine(b"", current_time)
            self._in_gap = not more
        self._open = pieces.pop()
        return [piece for piece in pieces if piece.text]


_FIGURES = b"0123456789.,"
_LAST_DIGITS = re.compile(rb"\d+$")
_LAST_NUMBER = re.compile(rb"[\d.,]+$")


class RunProgressReader:
    """Progress of one run, from the bytes it prints or the steps it reports.

    Its streams are read as one, as on a terminal: epochs on one may span the bars of
    another.

    Args:
        patterns: The user's own regular expressions with the named groups ``done``
            and ``total``, or ``percent``.

    Raises:
        FormatError: A pattern is not a regular expression, or lacks these groups.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._parser = CountParser(patterns)
        self._splitters = defaultdict[int, LineSplitter](LineSplitter)  # by stream
        self._nest = NestedCounters()
        self._figures = RisingFigures()
        self._ends = PrintedEnds()
        self._peeked: Seconds = 0.0  # when a line without an end was last read
        # the last line, which is read once another kind follows
        self._held: OutputLine | None = None
        self._shape = b""  # its text without figures
        self._shape_since: Seconds = 0.0
        self._clock: Seconds = 0.0  # never goes back, unlike the times that are given
        self._last: Seconds = 0.0  # the last time given

    def feed(self, chunk: bytes, current_time: Seconds, *, stream: int = 0) -> None:
        """Read *chunk*, cut anywhere, *current_time* seconds into the run."""
        time = self._passed(current_time)
        splitter = self._splitters[stream]
        self._read(splitter.feed(chunk, time))
        if time - self._peeked >= TICK:
            self._peek(splitter.unended().text, time)

    def report(
        self, done: float, total: float | None, current_time: Seconds, source: str
    ) -> None:
        """Add a count that the run itself reports: *done* of *total* steps."""
        time = self._passed(current_time)
        self._release()
        if total is not None and not 0 < total < math.inf:
            total = None
        if 0 <= done < math.inf:
            count = StepCount(source, "", CounterRank.STEP, 0, done, total)
            self._nest.take(count, time)

    def forecast(
        self, current_time: Seconds, *, is_through: bool = False
    ) -> ReportedProgress | None:
        """Forecast the end of the run, *current_time* seconds into it.

        Return None while there is no count. ``remaining`` is counted from
        *current_time*. *is_through* means that the run has completed, including its
        last epoch.
        """
        time = self._passed(current_time)
        for splitter in self._splitters.values():
            self._read(splitter.catch_up())
            waiting = splitter.unended()
            # of bars below each other the moves that show which is drawn come last
            is_cut = not waiting.text.endswith(b"A") and self._nest.has_bars_below()
            if is_cut and time - waiting.time < AT_ONCE:
                continue
            # more digits may follow the number at the end of an unfinished line
            self._read([OutputLine(_LAST_NUMBER.sub(b"", waiting.text), waiting.time)])
        self._release()
        self._nest.settle()
        found = self._chosen(is_through=is_through)
        if found is None:
            return None
        pace, waited = found.pace, time - found.time
        # it has been silent for longer than all of the rest: nobody knows for how long
        is_refuted = pace is not None and waited > max(PATIENCE, 2 * pace.high)
        if is_refuted and not is_through:
            pace = None
        forecast = ReportedProgress(
            done=found.done,
            total=found.total,
            time=self._last,
            source=found.source,
            step_time=None if pace is None else pace.step_time,
        )
        if pace is None or found.total is None:
            return forecast
        # beyond the usual time between two counts the run is late by an unknown time
        taken = min(waited, pace.grain)
        return msgspec.structs.replace(
            forecast,
            remaining=max(0.0, pace.remaining - taken),
            low=max(0.0, pace.low - taken),
            high=max(0.0, pace.high - taken) + waited - taken,
        )

    def _chosen(self, *, is_through: bool) -> ChosenCounter | None:
        """Return the counter that spans the run."""
        found, has_outer = self._nest.chosen(is_through=is_through), False
        if found is None or found.pace is None or found.total is None:
            has_outer = self._nest.has_outer()
        # an unknown program's figure counts only where no counter is known
        if (found is None or found.pace is None) and not has_outer:
            figure = self._figures.chosen()
            if figure and (found is None or figure.time > found.time):
                found = figure
        # without a total, what the program itself states about its end is better
        if found is None or found.total is None:
            end = self._ends.chosen()
            # inside an epoch of unknown number it may be the end of the epoch that is
            # printed, until it lies well past that
            least = self._nest.end_of_part() if has_outer else -math.inf
            if end and end.pace and end.time + end.pace.low > least:
                found = end
        return found

    def _read(self, output_lines: list[OutputLine]) -> None:
        """Read *output_lines*.

        Of several at once that differ only in figures, the last.
        """
        for line in output_lines:
            shape = line.text.translate(None, _FIGURES)
            is_same = shape == self._shape
            if not is_same or line.time - self._shape_since >= AT_ONCE:
                self._release()
                self._shape, self._shape_since = shape, line.time
            self._held = line

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        text = held.text.decode("utf-8", "replace")
        # a file that is no text counts nothing
        if 4 * text.count("\ufffd") > len(text):
            return
        for count in self._parser.counts(text):
            self._nest.take(count, held.time)
        self._look_for_figures(text, held.time)
        self._ends.read(text, held.time)

    def _look_for_figures(self, text: str, time: Seconds) -> None:
        # counters are surer than figures of unknown kind
        for piece in () if self._nest.is_moving() else shown_pieces(text):
            self._figures.read(piece.text, time)

    def _peek(self, text: bytes, current_time: Seconds) -> None:
        """Read a line that grows without an end, such as ``0...10...20``."""
        self._peeked = current_time
        if text and not self._nest.is_moving():
            self._release()
            partial = _LAST_DIGITS.sub(b"", text).decode("utf-8", "replace")
            self._look_for_figures(partial, current_time)

    def _passed(self, current_time: Seconds) -> Seconds:
        """Advance the inner clock to *current_time*.

        It stands still when *current_time* goes back.
        """
        if not math.isfinite(current_time):
            return self._clock
        self._clock += max(0.0, current_time - self._last)
        self._last = current_time
        return self._clock
