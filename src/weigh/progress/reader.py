"""Read the output of one run, and forecast when it ends (its remaining time, ETA)."""

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from weigh.model.progress import EndForecast
from weigh.progress.figures import RisingFigures
from weigh.progress.nested import CounterTrack, NestedCounters
from weigh.progress.parser import STEP, CountParser, StepCount, shown_pieces
from weigh.progress.rate import (
    AT_END,
    AT_ONCE,
    FEWEST,
    PATIENCE,
    ProgressHistory,
    StepPace,
    pace,
)
from weigh.units import KIB, Seconds

_AMOUNT = r"\d{1,9}(?:[.,]\d{1,9})?"
_BEGIN = r"(?<![\d.,])"  # not the end of a longer number
_UNIT = r"(?:days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_CLOCK = (
    r"(?:\d{1,4}\s?(?:days?|d)[,\s]{1,2}|\d{1,3}-)?\d{1,5}(?::\d\d){1,2}(?:\.\d{1,6})?"
    r"(?![\d:])"
)
_SPAN = (
    rf"{_BEGIN}(?:{_CLOCK}|(?:{_AMOUNT}\s?\(?(?:in\s)?{_UNIT}\)?[:,\s]{{0,2}}){{1,5}})"
)
_WORD = r"\b(?:eta|remaining|left|to go)\b(?:\s\w{1,12}){0,3}"
_LEFT = re.compile(
    rf"(?i:{_WORD}[\s:=(\[~]{{0,8}}(?P<span>{_SPAN})"
    rf"|{_WORD}\s?\((?:in\s)?(?P<unit>{_UNIT})\)[\s:=]{{0,4}}(?P<amount>{_AMOUNT})"
    # without seconds it is the time of day (nmap)
    r"|\betc\s?[=:]\s?(?P<etc>\d{1,5}:\d\d:\d\d)(?![\d:]))"
)
_LEFT_AFTER = re.compile(
    rf"(?i:(?<![:-])(?P<span>{_SPAN})\s?(?:left|remaining|to go|eta)\b)"
)
_COLUMN = re.compile(
    r"(?i:\b(?:remaining(?: time)?|time remaining|time left|eta)"
    rf"(?:\s?\((?:in\s)?(?P<unit>{_UNIT})\))?\s*$)"
)
_IN_COLUMN = re.compile(rf"\s(?i:({_SPAN}|{_BEGIN}{_AMOUNT}))\s*$")
# "1-" and "1 day, " before a clock
_DAYS = re.compile(r"(?i:(\d+)(?:-|\s?d(?:ays?)?[,\s]{1,2})(?=\d+:))")
_TERM = re.compile(r"(?i:(\d+(?:[.,]\d+)?)\s?\(?(?:in\s)?([dhms]))")
_IN_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}  # seconds
# figures in the text before, which change from line to line
_CHANGING_FIGURES = re.compile(r"[\d.,]+(?:\s?(?:ms|us|[dhms])\b)?")
# of lines that may state an end; all others are not searched
_HINTS = (b"eta", b"left", b"remain", b"to go", b"etc")

_MOST_PLACES = 8  # of one run: a training's and a validation's, and some to spare
_OFF = 0.6  # the logarithm of a factor (CatBoost, sklearn_gb of the recordings)
_RECEDING = 0.6  # seconds per second: an end that recedes so fast is none (IQ-TREE)


class ChosenCounter(NamedTuple):
    """The counter that spans the run, and its pace once that is known.

    ``total`` is None if it is not printed, or if the counter started over and it is
    unknown how often it will.
    """

    source: str
    done: float
    total: float | None
    time: Seconds
    pace: StepPace | None


class PrintedEnd:
    """A place where a remaining time stands, and the ends that it stated."""

    def __init__(self) -> None:
        self.history = ProgressHistory()  # when each was printed, and the end
        self._longest: Seconds = 0.0  # of the remaining times

    def take(self, time: Seconds, left: Seconds) -> None:
        """Add a remaining time that was printed."""
        self._longest = max(self._longest, left)
        self.history.put(time, time + left)

    def pace(self) -> StepPace | None:
        """Return the pace per cent of the run; None if the end is not to be believed.

        Those are ends of which there are few, or that recede about as fast as time
        passes, as those of one epoch after the other do.
        """
        ends = self.history.points
        if len(ends) < FEWEST or not self._longest:
            return None
        time, end = ends[-1]
        # the end as it was stated after half of the time so far
        index = bisect_left(ends, time / 2, key=lambda point: point.time)
        since, before = ends[min(index, len(ends) - 2)]
        if end - before > _RECEDING * (time - since):
            return None
        left, factor = end - time, math.exp(_OFF)
        # seconds between two of them: it may be off by as much
        grain = (time - ends[0].time) / (len(ends) - 1)
        low, high = max(0.0, left / factor - grain), left * factor + grain
        return StepPace(end / 100, left, low, high, grain)


class PrintedEnds:
    """The remaining times that the program itself prints.

    Of several, a training's and its validation's, the one that ends last counts.
    """

    def __init__(self) -> None:
        self._column: str | None = None  # the unit of the last column of a table
        self._places: dict[str, PrintedEnd] = {}

    def may_be_in(self, text: bytes) -> bool:
        """Return whether it is worth while to read *text*."""
        lower = text.lower()
        return self._column is not None or any(hint in lower for hint in _HINTS)

    def read(self, text: str, time: Seconds) -> None:
        """Read one line."""
        # a heading: a word without a figure, at the end of a line
        if (found := _COLUMN.search(text)) and not _CHANGING_FIGURES.search(text):
            self._column = found["unit"] or "s"
        elif self._column and (found := _IN_COLUMN.search(text)):
            # a table has one place, without text before it
            self._add("", time, parse_time_left(found[1], self._column))
        elif found := _LEFT.search(text) or _LEFT_AFTER.search(text):
            groups = found.groupdict()
            words = found["span"] or groups["etc"] or groups["amount"]
            left = parse_time_left(words, groups.get("unit") or "s")
            # the text before identifies the place: "train" and "val" are two of them
            before = _CHANGING_FIGURES.sub("0", text[: found.start()])
            self._add("".join(before.split())[-60:], time, left)

    def _add(self, name: str, time: Seconds, left: Seconds) -> None:
        places = self._places
        if name not in places and len(places) == _MOST_PLACES:
            # the one that was seen longest ago
            del places[min(places, key=lambda n: places[n].history.points[-1].time)]
        places.setdefault(name, PrintedEnd()).take(time, left)

    def current(self) -> ChosenCounter | None:
        """Return the share of the run that is done by the last end stated."""
        found = []
        for place in self._places.values():
            if known := place.pace():
                time, end = place.history.points[-1]
                done = 100 * time / end if end else 100.0
                counter = ChosenCounter("its own estimate", done, 100.0, time, known)
                found.append((end, counter))
        # of a training's and a validation's end, the later one is the run's
        return max(found, key=lambda one: one[0])[1] if found else None


def parse_time_left(text: str, unit: str = "s") -> Seconds:
    """Parse ``1-00:07:30``, ``1 day, 0:07:30``, ``3m 5s`` or a number of *unit*."""
    days = _DAYS.match(text)
    seconds = 86400.0 * float(days[1]) if days else 0.0
    clock = text[days.end() :] if days else text
    terms = list(_TERM.finditer(clock))
    if terms:
        return sum(_amount(term[1]) * _IN_SECONDS[term[2].lower()] for term in terms)
    if ":" not in clock:
        return _amount(clock) * _IN_SECONDS[unit[0].lower()]
    parts = [float(part) for part in clock.split(":")]
    if days and len(parts) == 2:  # noqa: PLR2004 - "1-02:30" is hours and minutes
        parts.append(0.0)
    of_day = 0.0
    for part in parts:
        # hours, minutes and seconds in base 60
        of_day = 60.0 * of_day + part
    return seconds + of_day


def _amount(text: str) -> float:
    whole, comma, rest = text.strip().partition(",")
    thousands = len(rest) == 3  # noqa: PLR2004 - "1,234 s", but "12,5 min"
    return float(whole + rest if thousands else f"{whole}{'.' if comma else ''}{rest}")


TICK: Seconds = 0.2
HEAD = 3 * KIB  # bytes at the beginning of a tick that are read at once
TAIL = 3 * KIB  # bytes at its end that are read after it
LONGEST = 4 * KIB  # bytes of a line that are kept, at its end

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
        self._room = 0  # bytes of the head that may still be read
        self._late = OutputLine(b"", 0.0)  # what has come after the head
        self._is_skipping = False

    def feed(self, chunk: bytes, current_time: Seconds) -> list[OutputLine]:
        """Add *chunk*, and return the lines that ended; *current_time* never falls."""
        found: list[OutputLine] = []
        # a new tick: what was set aside in the last one comes first
        if current_time - self._tick >= TICK:
            found = self.catch_up()
            self._tick, self._room = current_time, HEAD
        if self._room:
            head = chunk[: self._room]
            self._room -= len(head)
            found += self._cut(head, current_time)
            chunk = chunk[len(head) :]
        if chunk:
            late = self._late.text if len(chunk) < TAIL else b""
            # more than the tail: what lies between is not read
            self._is_skipping |= len(self._late.text) + len(chunk) > TAIL
            self._late = OutputLine((late + chunk)[-TAIL:], current_time)
        return found

    def catch_up(self) -> list[OutputLine]:
        """Return the lines that were set aside since the tick began."""
        late, self._late = self._late, OutputLine(b"", 0.0)
        if self._is_skipping:
            # the open line has lost its middle, so nothing of it can be read
            self._open, self._in_gap, self._is_skipping = (
                OutputLine(b"", 0.0),
                True,
                False,
            )
        return self._cut(late.text, late.time)

    def unended(self) -> OutputLine:
        """Return the line that has no end yet."""
        return self._open

    def _cut(self, data: bytes, current_time: Seconds) -> list[OutputLine]:
        if not data:
            return []
        first, *more = _ENDS.split(data)
        joined = (self._open.text + first)[-LONGEST:]
        pieces = [OutputLine(joined, current_time if first else self._open.time)]
        pieces += [OutputLine(piece[-LONGEST:], current_time) for piece in more]
        if self._in_gap:
            pieces[0] = OutputLine(b"", current_time)
            self._in_gap = not more
        self._open = pieces.pop()
        return [piece for piece in pieces if piece.text]


_AFTERWARDS = 0.03  # of the time so far: a program does more after its last per cent
_OF_PARTS = 1.5  # the logarithm of a factor, if all of the time went to earlier parts
_LATE_AT_END = 4.0  # times as long as it has waited there
_REFUTED = 2.0  # times the high end of what was left: then that was wrong
_STANDS = 0.1  # of the time so far


def chosen_counter(
    nest: NestedCounters, *, is_through: bool = False
) -> ChosenCounter | None:
    """Return the counter that ends last among those that still move.

    *is_through* means that the run has completed, including its current step. A
    counter with a total is ignored inside one that has none.
    """
    ending = nest.ending()
    if not ending:
        alive = nest.alive()
        return _endless(nest, alive[0]) if alive else None
    found = [_counter_that_ends(nest, track, is_through=is_through) for track in ending]
    # the outermost has no pace yet: its count is all there is
    if found[0].pace is None:
        return found[0]
    # the one that ends last is the run's
    return max(found, key=lambda one: one.pace.remaining if one.pace else -1.0)


def _counter_that_ends(
    nest: NestedCounters, track: CounterTrack, *, is_through: bool = False
) -> ChosenCounter:
    done = track.inside
    total = track.total or done
    if is_through:
        done = min(track.through, total)
    ahead = max(0.0, total - done)
    source = track.count.source
    found = _ending_counter(
        ChosenCounter(source, done, total, track.history.points[-1].time, None),
        track.history,
        before=nest.before(track),
        has_cycles=nest.contains(track),
        is_even=source != "percentages",
    )
    # how many rounds of the inner counter make one step is not known before it moves
    return found._replace(pace=None) if ahead and nest.is_unmoved(track) else found


def _ending_counter(
    counter: ChosenCounter,
    history: ProgressHistory,
    *,
    before: Seconds,
    has_cycles: bool,
    is_even: bool,
) -> ChosenCounter:
    """Return *counter* with its pace; other counters ended in the *before* seconds."""
    ahead = max(0.0, (counter.total or 0.0) - counter.done)
    known = pace(history.points, ahead=ahead, has_cycles=has_cycles, is_even=is_even)
    if not ahead:
        # of nothing, it is known without a history
        step_time = known.step_time if known else 0.0
        known = StepPace(step_time, 0.0, 0.0, 0.0, 0.0)
    if known is None:
        return counter
    # the more of the time went to earlier parts, the less this part shows
    factor = math.exp(_OF_PARTS * min(1.0, before / counter.time)) if before else 1.0
    # a program has more to do after its last per cent
    after = before if is_even else before + _AFTERWARDS * counter.time
    low, high = known.low / factor, known.high * factor + after
    return counter._replace(pace=known._replace(low=low, high=high))


def _endless(nest: NestedCounters, track: CounterTrack) -> ChosenCounter:
    done = track.inside if not track.cycles else track.raw + track.share
    has_cycles = nest.contains(track)
    found = pace(track.history.points, ahead=1.0, has_cycles=has_cycles)
    return ChosenCounter(
        track.count.source, done, None, track.history.points[-1].time, found
    )


def risen(figures: RisingFigures) -> ChosenCounter | None:
    """Return the figure that only rises, in the output of an unknown program."""
    place = figures.current()
    if place is None:
        return None
    counter = ChosenCounter(
        "figures", place.done, place.total, place.history.points[-1].time, None
    )
    return _ending_counter(
        counter, place.history, before=place.before, has_cycles=False, is_even=False
    )


def promised(own: PrintedEnds, nest: NestedCounters) -> ChosenCounter | None:
    """Return the share of the run that is done by the program's own estimate.

    Inside an epoch of unknown number it may be the end of the epoch that is printed,
    until it lies well past that.
    """
    found = own.current()
    if found is None or found.pace is None or not nest.has_outer():
        return found
    # the counters inside the epoch show how long that still lasts
    inner = [
        _counter_that_ends(nest, track) for track in nest.alive() if track.will_end
    ]
    rest = max((one.pace.remaining for one in inner if one.pace), default=0.0)
    return found if found.pace.low > rest else None


_FIGURES = b"0123456789.,"
_MAY_RISE = re.compile(
    rb"\d(?:\s?%|[^\n]{0,12}(?:/| of )|\.{2,5}\d)|Duration: |time="
    rb"|\s[\d-]+:[\d-]+:[\d-]+\s|[-+]{4}|^[|\[]?([*#=.+])\1*$"
)
_TICKS = re.compile(rb"(?:^|[\s:])0\.{2,5}\d\d?\d?[\d.]*$")
_LAST_DIGITS = re.compile(rb"\d+$")
_LAST_NUMBER = re.compile(rb"[\d.,]+$")


class RunProgressReader:
    """Progress of one run, from the bytes it prints or the steps it reports.

    Args:
        patterns: The user's own regular expressions with the named groups ``done``
            and ``total``, or ``percent``.

    Raises:
        FormatError: A pattern is not a regular expression, or lacks these groups.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._parser = CountParser(patterns)
        self._lines = LineSplitter()
        self._nest = NestedCounters()
        self._figures = RisingFigures()
        self._own = PrintedEnds()
        self._peeked: Seconds = 0.0  # when a line without an end was last read
        # the last line, which is read once another kind follows
        self._held: OutputLine | None = None
        self._shape = b""  # its text without figures
        self._shape_since: Seconds = 0.0
        self._clock: Seconds = 0.0  # never goes back, unlike the times that are given
        self._last: Seconds = 0.0  # the last time given

    def feed(self, chunk: bytes, current_time: Seconds) -> None:
        """Read *chunk*, cut anywhere, *current_time* seconds into the run."""
        time = self._passed(current_time)
        self._read(self._lines.feed(chunk, time))
        if time - self._peeked >= TICK:
            self._peek(time)

    def report(
        self, done: float, total: float | None, current_time: Seconds, source: str
    ) -> None:
        """Add a count that the run itself reports: *done* of *total* steps."""
        time = self._passed(current_time)
        self._release()
        if total is not None and not 0 < total < math.inf:
            total = None
        if 0 <= done < math.inf:
            self._nest.take(StepCount(source, "", STEP, 0, done, total), time)

    def forecast(
        self, current_time: Seconds, *, is_through: bool = False
    ) -> EndForecast | None:
        """Forecast the end of the run, *current_time* seconds into it.

        Return None while there is no count. ``remaining`` is counted from
        *current_time*. *is_through* means that the run has completed, including its
        last epoch.
        """
        time = self._passed(current_time)
        self._read(self._lines.catch_up())
        waiting = self._lines.unended()
        # more digits may follow the number at the end of an unfinished line
        self._read([OutputLine(_LAST_NUMBER.sub(b"", waiting.text), waiting.time)])
        self._release()
        self._nest.settle()
        found = chosen_counter(self._nest, is_through=is_through)
        # an unknown program's figure counts only where no counter is known
        if (found is None or found.pace is None) and not self._nest.has_outer():
            other = risen(self._figures)
            if other and (found is None or other.time > found.time):
                found = other
        # without a total, what the program itself states about its end is better
        if found is None or found.total is None:
            found = promised(self._own, self._nest) or found
        if found is None:
            return None
        # the counter is at its end and the run goes on: for how long, nobody knows
        patience = max(PATIENCE, _STANDS * time)
        waited = time - found.time
        # nor for how long where it has been silent for longer than all of the rest
        is_refuted = found.pace is not None and waited > max(
            PATIENCE, _REFUTED * found.pace.high
        )
        if not is_through and (is_refuted or (_is_at_end(found) and waited > patience)):
            found = found._replace(pace=None)
        return _forecast(found, current_time=self._last, waited=waited)

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
        for count in self._parser.counts(held.text):
            self._nest.take(count, held.time)
        # counters are surer than figures of unknown kind
        if not self._nest.is_moving():
            self._look_for_figures(held)
        if self._own.may_be_in(held.text):
            self._own.read(held.text.decode("utf-8", "replace"), held.time)

    def _look_for_figures(self, output_line: OutputLine) -> None:
        if _MAY_RISE.search(output_line.text):
            for piece in shown_pieces(output_line.text):
                self._figures.read(piece.text, output_line.time)

    def _peek(self, current_time: Seconds) -> None:
        """Read a line that grows without an end, such as ``0...10...20``."""
        text, self._peeked = self._lines.unended().text, current_time
        if text and not self._nest.is_moving():
            self._release()
            # in 0...10...20 the dots after a number count, so only its digits may go on
            partial = _LAST_DIGITS if _TICKS.search(text) else _LAST_NUMBER
            self._look_for_figures(OutputLine(partial.sub(b"", text), current_time))

    def _passed(self, current_time: Seconds) -> Seconds:
        """Advance the inner clock to *current_time*.

        It stands still when *current_time* goes back.
        """
        if not math.isfinite(current_time):
            return self._clock
        self._clock += max(0.0, current_time - self._last)
        self._last = current_time
        return self._clock


def _is_at_end(chosen_counter: ChosenCounter) -> bool:
    return (
        chosen_counter.total is not None
        and chosen_counter.done >= AT_END * chosen_counter.total
    )


def _forecast(
    chosen_counter: ChosenCounter, *, current_time: Seconds, waited: Seconds
) -> EndForecast:
    """Return the forecast *waited* seconds after the last count.

    The time waited is subtracted up to the usual time between two counts. Beyond that
    the run is late by an unknown time, so the high end of the interval rises.
    """
    forecast = EndForecast(
        done=chosen_counter.done,
        total=chosen_counter.total,
        time=current_time,
        source=chosen_counter.source,
    )
    if chosen_counter.pace is None:
        return forecast
    step_time, remaining, low, high, grain = chosen_counter.pace
    forecast = msgspec.structs.replace(forecast, step_time=step_time)
    if chosen_counter.total is None:
        return forecast
    taken = min(waited, grain)
    late = (waited - taken) * (_LATE_AT_END if _is_at_end(chosen_counter) else 1.0)
    return msgspec.structs.replace(
        forecast,
        remaining=max(0.0, remaining - taken),
        low=max(0.0, low - taken),
        high=max(0.0, high - taken) + late,
    )
