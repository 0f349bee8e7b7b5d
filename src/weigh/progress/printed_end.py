"""The end that a program prints itself: ``ETA 0:12``, ``9s left``, a table's column."""

import math
import re
from bisect import bisect_left

from weigh.progress.rate import FEWEST, ProgressHistory, ProgressPoint, StepPace
from weigh.units import Seconds

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
_FIGURES = re.compile(r"[\d.,]+(?:\s?(?:ms|us|[dhms])\b)?")
# of lines that may state an end; all others are not searched
_HINTS = (b"eta", b"left", b"remain", b"to go", b"etc")

_MOST_PLACES = 8  # of one run: a training's and a validation's, and some to spare
_OFF = 0.6  # the logarithm of a factor (CatBoost, sklearn_gb of the recordings)
_MOVED = 1.5  # times as far as the end has moved since half of the time so far
_RECEDING = 0.6  # seconds per second: an end that recedes so fast is none (IQ-TREE)
_LEAST = 0.2  # of the time left that is printed
_ANEW = 0.3  # of the longest time left: below it was the end of a part, if more follows


class PrintedEnd:
    """A place where a remaining time stands, and the ends that it stated."""

    def __init__(self) -> None:
        self.history = ProgressHistory()  # when each was printed, and the end
        self.longest: Seconds = 0.0  # of the remaining times
        self.is_of_part = False  # it started over: the end of an epoch, or of one file

    def take(self, time: Seconds, left: Seconds) -> None:
        """Add a remaining time that was printed."""
        points = self.history.points
        # the time left fell near zero, and is long again
        if points and points[-1].position - points[-1].time <= _ANEW * self.longest:
            self.is_of_part |= self.longest < 2 * left
        self.longest = max(self.longest, left)
        self.history.put(time, time + left)


class PrintedEnds:
    """The remaining times that the program itself prints.

    One counts after three of them, unless the end that they state recedes about as fast
    as time passes, or starts over. How far it has moved shows how far it may be off. Of
    several, a training's and its validation's, the one that ends last counts.
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
        if (found := _COLUMN.search(text)) and not _FIGURES.search(text):
            self._column = found["unit"] or "s"
        elif self._column and (found := _IN_COLUMN.search(text)):
            # a table has one place, without text before it
            self._add("", time, parse_time_left(found[1], self._column))
        elif found := _LEFT.search(text) or _LEFT_AFTER.search(text):
            groups = found.groupdict()
            words = found["span"] or groups["etc"] or groups["amount"]
            left = parse_time_left(words, groups.get("unit") or "s")
            # the text before identifies the place: "train" and "val" are two of them
            before = _FIGURES.sub("0", text[: found.start()])
            self._add("".join(before.split())[-60:], time, left)

    def _add(self, name: str, time: Seconds, left: Seconds) -> None:
        places = self._places
        if name not in places and len(places) == _MOST_PLACES:
            # the one that was seen longest ago
            del places[min(places, key=lambda n: places[n].history.points[-1].time)]
        places.setdefault(name, PrintedEnd()).take(time, left)

    def current(
        self, *, has_epochs: bool = False
    ) -> tuple[ProgressPoint, StepPace] | None:
        """Return the last end stated, and the pace per cent of the run until then.

        With *has_epochs* only the first kind of line counts: others are of validations.
        """
        places = [
            place.history.points
            for place in list(self._places.values())[: 1 if has_epochs else None]
            if len(place.history.points) >= FEWEST
            and place.longest
            and not place.is_of_part
        ]
        if not places:
            return None
        # of a training's and a validation's end, the later one is the run's
        ends = max(places, key=lambda ends: ends[-1].position)
        pace = _pace_of(ends)
        return pace and (ends[-1], pace)


def _pace_of(ends: list[ProgressPoint]) -> StepPace | None:
    time, end = ends[-1]
    # the end as it was stated after half of the time so far
    index = bisect_left(ends, time / 2, key=lambda point: point.time)
    index = min(index, len(ends) - 2)
    since, before = ends[index]
    # it recedes about as fast as time passes
    if end - before > _RECEDING * (time - since):
        return None
    moved = _MOVED * (end - before)
    left = end - time
    low = max(_LEAST * left, left * math.exp(-_OFF) + min(0.0, moved))
    high = left * math.exp(_OFF) + max(0.0, moved)
    # seconds between two of them: it may be off by as much
    grain = (time - ends[0].time) / (len(ends) - 1)
    return StepPace(end / 100, left, max(0.0, low - grain), high + grain, grain)


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
