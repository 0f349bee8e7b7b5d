"""The progress of a program of unknown form: figures that rise, and ends it prints.

A figure is a percentage, or ``a/b`` with a constant ``b``, in a fixed place of lines of
one shape. The place is known by the text before the figure or by that after it, with
numbers, bars and blanks replaced: names in the other half of the line may change.

A figure counts after three rises and is dropped for good when it falls. Accuracies and
compression ratios rise, too, but they do not begin at zero: a figure has to have been
about zero when the run, or its part of it, began.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from weigh.progress.counters import MOST_COUNTERS, PATIENCE, ChosenCounter, Counter
from weigh.progress.pace import FEWEST, ProgressHistory, StepPace
from weigh.progress.parser import (
    CounterRank,
    StepCount,
    first_match,
    parse_number,
    pattern_rows,
)
from weigh.units import Seconds

_FIGURES = pattern_rows("figure")
_EXTENTS, _REACHED = pattern_rows("extent"), pattern_rows("reached")
(_NOT_PROGRESS,) = pattern_rows("other")
(_NUMBERED,) = pattern_rows("numbered")
(_TICKS,) = pattern_rows("ticks")
_FIGURE = re.compile(r"\d[\d.,:]*(?:\s?[kKMGTP]i?(?:B|b)?\b|\s?B\b)?")
_BAR = re.compile(r"[^\w\s%()\[\]{}:,/]{2,}|#[#\s]*#")
_BLANKS = re.compile(r"\s+")
_MOST_PLACES = 64  # of one run, and of one line: a line with more is a table
_NEAR = 400  # characters on either side that make a place, bars included
_LATE = 3.0  # times as slow as later: the part before the first figure (xz, recorded)


def figures_in(text: str) -> Iterator[StepCount]:
    """Yield the figures in *text* that may be progress: once for each way to know it.

    The position of a figure is one more than the number of the part that it is of.
    """
    for row in _FIGURES:
        for match in row.pattern.finditer(text) if row.need in text else ():
            start, end = match.span()
            before, after = text[max(0, start - _NEAR) : start], text[end : end + _NEAR]
            if _NOT_PROGRESS.pattern.search(before):
                continue
            if row.is_share:
                done, total, kind = float(match[1].replace(",", ".")), 100.0, row.source
            else:
                # "3/10 MB": the unit is that of both
                first, first_unit, last, last_unit = match.groups("")
                done = parse_number(first + (first_unit or last_unit))
                total = parse_number(last + (last_unit or first_unit))
                kind = f"/{last}"
            if not done <= total or total <= 1:
                continue
            numbered = _NUMBERED.pattern.search(before[-90:])
            part = int(numbered[1]) + 1 if numbered else 0
            for place in (f"<{_shape(before)[-60:]}", f">{_shape(after)[:60]}"):
                yield _figure(kind + place, done, total, part)


def _figure(place: str, done: float, total: float, part: int = 0) -> StepCount:
    return StepCount("figures", place, CounterRank.STEP, part, done, total)


def _shape(text: str) -> str:
    text = _FIGURE.sub("0", text)
    return _BLANKS.sub(" ", _BAR.sub("=", text)).strip(" ")


class RisingFigures:
    """All places in the output of one run where a figure rises."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}  # by the place of the figure
        self._ended: Seconds = 0.0  # when a figure last came to its end
        self._extents: dict[str | None, float] = {}  # of a film, a ruler over marks

    def read(self, text: str, time: Seconds) -> None:
        """Read one line."""
        for row in _EXTENTS:
            if found := row.pattern.search(text):
                extent = max(self._extents.get(row.label, 0.0), _extent(found[1]))
                self._extents[row.label] = extent
        for row in _REACHED:
            total = self._extents.get(row.label)
            if total and (found := row.pattern.search(text)):
                # a film may be longer than it was stated to be
                done = min(_extent(found[1]), total)
                self._take(_figure("", done, total), time)
                return
        if found := _TICKS.pattern.search(text):
            dots, step, number, rest = found.groups()
            done = int(number or step) + int(step) * len(rest) / (len(dots) + 1)
            self._take(_figure("", done, 100.0), time)
            return
        for figure in islice(figures_in(text), _MOST_PLACES):
            self._take(figure, time)

    def _take(self, figure: StepCount, time: Seconds) -> None:
        counter = self._counters.pop(figure.label, None)
        if counter is None:
            counter = Counter(figure, time)
            counter.before = self._ended
        # the place that was seen longest ago, the first, makes room
        self._counters[figure.label] = counter
        if len(self._counters) > _MOST_PLACES:
            del self._counters[next(iter(self._counters))]
        # as long as the figure rises within one part
        if figure.position != counter.count.position:
            figure = figure._replace(position=0)
        # progress does not fall, not even a little
        counter.has_outer_moved = True
        counter.take(figure, time)
        counter.history.add(time, counter.raw)
        # one that is met at its end shows nothing of a part of the run
        if counter.is_finished and len(counter.history.points) > 1:
            self._ended = time

    def chosen(self) -> ChosenCounter | None:
        """Return the figure that moved last, of several the one that moved most."""
        found = list(filter(_is_progress, self._counters.values()))
        newest = max((counter.seen for counter in found), default=0.0)
        latest = [one for one in found if newest - one.seen <= PATIENCE]
        if not latest:
            return None
        counter = max(latest, key=lambda one: len(one.history.points))
        return counter.chosen(counter.count.done)


def _is_progress(counter: Counter) -> bool:
    """Return whether a figure is progress: it rose often enough, from about zero."""
    points, count = counter.history.points, counter.count
    # one that starts over, or is of a numbered part, ends with its part only
    if counter.restarts or count.position or len(points) <= FEWEST or not count.total:
        return False
    first, last = points[0], points[-1]
    rate = (last.position - first.position) / (last.time - first.time)
    # extrapolated back to when its part of the run began it must have been about zero
    slack = count.total / 20
    return first.position <= _LATE * rate * (first.time - counter.before) + slack


def _extent(text: str) -> float:
    """Return the seconds of ``0:01:02``, or the length of a row of marks."""
    return parse_time_left(text) if ":" in text else float(len(text))


_LEFT = pattern_rows("left")
(_HEADING,) = pattern_rows("heading")
(_CELL,) = pattern_rows("cell")
# "1-" and "1 day, " before a clock
_DAYS = re.compile(r"(?i:(\d+)(?:-|\s?d(?:ays?)?[,\s]{1,2})(?=\d+:))")
_TERM = re.compile(r"(?i:(\d[\d.,]*(?:e[+-]?\d+)?)\s?\(?(?:in\s)?([dhms]))")
_IN_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}  # seconds
# figures in the text before, which change from line to line
_CHANGING_FIGURES = re.compile(r"[\d.,]+(?:\s?(?:ms|us|[dhms])\b)?")
# seconds that an end may move in one: those of one epoch after the other move by one,
# and figures that are no time may come nearer faster (catboost and iqtree, recorded)
_FASTEST, _SLOWEST = -2.0, 0.5
_OFF = 1.8  # the factor that an end may be off (CatBoost, sklearn_gb of the recordings)


def parse_time_left(text: str, unit: str = "s") -> Seconds:
    """Parse ``1-00:07:30``, ``1 day, 0:07:30``, ``3m 5s`` or a number of *unit*."""
    days = _DAYS.match(text)
    seconds = 86400.0 * float(days[1]) if days else 0.0
    clock = text[days.end() :] if days else text
    terms = [(term[1], term[2]) for term in _TERM.finditer(clock)]
    if terms or ":" not in clock:
        return sum(
            parse_number(amount.rstrip(".,")) * _IN_SECONDS[letter[0].lower()]
            for amount, letter in terms or [(clock.strip(), unit)]
        )
    parts = [float(part) for part in clock.split(":")]
    if days and len(parts) == 2:  # noqa: PLR2004 - "1-02:30" is hours and minutes
        parts.append(0.0)
    of_day = 0.0
    for part in parts:
        # hours, minutes and seconds in base 60
        of_day = 60.0 * of_day + part
    return seconds + of_day


class StatedTimeLeft(NamedTuple):
    """How much time is ``left``, as it is stated at one ``place`` of a line."""

    left: Seconds
    place: str  # the text before it: "train" and "val" are two of them


def stated_time_left(text: str) -> StatedTimeLeft | None:
    """Return the time left that a line states behind or before a word for it."""
    row_match = first_match(_LEFT, text)
    if row_match is None:
        return None
    found = row_match[1]
    left = parse_time_left(found["span"], found.groupdict().get("unit") or "s")
    before = _CHANGING_FIGURES.sub("0", text[: found.start()])
    return StatedTimeLeft(left, "".join(before.split())[-60:])


class PrintedEnds:
    """The remaining times that the program itself prints.

    Of several, a training's and its validation's, the one that ends last counts.
    """

    def __init__(self) -> None:
        self._column: str | None = None  # the unit of the last column of a table
        # when each was printed, and the end, by the text before it
        self._places: dict[str, ProgressHistory] = {}

    def read(self, text: str, time: Seconds) -> None:
        """Read one line."""
        # a heading: a word without a figure, at the end of a line
        found = _HEADING.pattern.search(text)
        if found and not _CHANGING_FIGURES.search(text):
            self._column = found["unit"] or "s"
        elif self._column and (found := _CELL.pattern.search(text)):
            # a table has one place, without text before it
            self._add("", time, parse_time_left(found[1], self._column))
        elif stated := stated_time_left(text):
            self._add(stated.place, time, stated.left)

    def _add(self, name: str, time: Seconds, left: Seconds) -> None:
        places = self._places
        # the one that was seen longest ago, the first, makes room
        places[name] = places.pop(name, ProgressHistory())
        places[name].put(time, time + left)
        if len(places) > MOST_COUNTERS:
            del places[next(iter(places))]

    def chosen(self) -> ChosenCounter | None:
        """Return the share of the run that is done by the last end stated."""
        found = filter(None, map(_share_of_end, self._places.values()))
        # of a training's and a validation's end, the later one is the run's
        return max(found, key=ChosenCounter.end, default=None)


def _share_of_end(history: ProgressHistory) -> ChosenCounter | None:
    """Return the share of the run that is done; None if the end is not to be believed.

    Those are ends of which there are few, that recede about as fast as time passes,
    as those of one epoch after the other do, or that come nearer so fast that the
    figure is no time.
    """
    ends = history.points
    if len(ends) < FEWEST:
        return None
    time, end = ends[-1]
    since, before = ends[0]
    moved = (end - before) / (time - since)
    if not _FASTEST < moved < _SLOWEST:
        return None
    left = end - time
    # seconds between two of them: it may be off by as much
    grain = (time - ends[0].time) / (len(ends) - 1)
    low, high = max(0.0, left / _OFF - grain), left * _OFF + grain
    pace = StepPace(end / 100, left, low, high, grain)
    done = 100 * time / end if end else 100.0
    return ChosenCounter("its own estimate", done, 100.0, time, pace)
