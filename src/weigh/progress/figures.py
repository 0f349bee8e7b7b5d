"""Find the progress of a program whose output is unknown: a figure that only rises.

A percentage, or ``a/b`` with a constant ``b``, in a fixed place of lines of one shape.
The place is known by the text before the figure or by that after it, with numbers, bars
and blanks replaced: names in the other half of the line may change.

A figure counts after three rises and is dropped for good when it falls. Accuracies and
compression ratios rise, too, but they do not begin at zero: a figure has to have been
about zero when the run, or its part of it, began.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from weigh.progress.parser import MEASURED_AFTER, PER_CENT, parse_per_cent
from weigh.progress.rate import AT_END, AT_ONCE, FEWEST, PATIENCE, ProgressHistory
from weigh.units import Seconds

_NUMBER = r"\d[\d,]{0,18}(?:\.\d{1,9})?"
_UNIT = r"(?:\s?[kKMGTP]?i?(?:B|b|bytes)?(?![\w]))"
# not within a word, a path or a number
_PERCENT = re.compile(rf"(?<![\w.,/+-])({PER_CENT})\s?%")
_PAIR = re.compile(
    rf"(?<![\w.,/+:-])({_NUMBER})({_UNIT})?\s{{0,4}}(?:/|of|out of)\s{{0,4}}"
    rf"({_NUMBER})({_UNIT})?(?![\w/:]|\.\d)"
)
_FIGURE = re.compile(r"\d[\d.,:]*(?:\s?[kKMGTP]i?(?:B|b)?\b|\s?B\b)?")
_BAR = re.compile(r"[^\w\s%()\[\]{}:,/]{2,}|#[#\s]*#")
_BLANKS = re.compile(r"\s+")
_NOT_PROGRESS = re.compile(
    r"(?i:\b(?:acc|accuracy|precision|recall|f1|auc|top\W?\d|map|iou|dice|score|bleu|"
    r"loss|err|error|errors|wer|cer|perplexity|cpu|gpu|mem|memory|ram|swap|disk|util|"
    r"utili[sz]ation|load|usage|used|free|idle|wait|sparsity|identity|ratio|gc|dup|"
    r"duplicat\w*|mapped|unmapped|aligned|hit|hits|similarity|confidence|probability|"
    r"rate|coverage|cover|val\w*|page|battery)\W{0,4}|=>\s*)$"
)
# the columns of curl: the share of the total, sizes, shares, speeds, three times
_CURL = re.compile(
    r"\s*(\d{1,3})\s+[\d.]+[kMGTP]?\s+\d{1,3}\s+[\d.]+[kMGTP]?\s+\d{1,3}\s+"
    r"(?:\S+\s+){3}[\d:-]+\s+[\d:-]+\s+[\d:-]+\s"
)
# Nextflow: one counter for each process, and more tasks while it runs
_OF_MANY = re.compile(r"\s*\[[0-9a-f]{2}/[0-9a-f]{6}\] ")
_LENGTH = re.compile(r"\bDuration: (\d+):(\d\d):(\d\d(?:\.\d{1,6})?)")
_PLAYED = re.compile(r"\btime=\s?(\d+):(\d\d):(\d\d(?:\.\d{1,6})?)")
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

_MOST_PLACES = 64  # of one run: memory stays bounded whatever is printed
_LATE = 3.0  # times as slow as later: the part before the first figure
_SLACK = 0.05  # of the total, that may be done when a figure is first seen


class RisingFigure(NamedTuple):
    """``done`` of ``total`` in a line; ``places`` are the ways to know it again."""

    done: float
    total: float
    places: tuple[str, ...]
    part: str = ""  # the number of the part that it is a figure of


def figures_in(text: str) -> Iterator[RisingFigure]:
    """Yield the figures in *text* that may be progress."""
    for found in _PERCENT.finditer(text):
        yield from _figure_in(text, found, parse_per_cent(found[1]), 100.0, "%")
    for found in _PAIR.finditer(text):
        # "3/10 MB": the unit is that of both
        done = _size_in_bytes(found[1], found[2] or found[4])
        total = _size_in_bytes(found[3], found[4] or found[2])
        yield from _figure_in(text, found, done, total, f"/{found[3]}")
    if columns := _CURL.match(text):
        yield RisingFigure(float(columns[1]), 100.0, ("curl",))


def _figure_in(
    text: str, match: re.Match[str], done: float, total: float, kind: str
) -> Iterator[RisingFigure]:
    """Yield a figure, unless it measures something else or cannot be."""
    before = text[max(0, match.start() - 60) : match.start()]
    is_else = _NOT_PROGRESS.search(before) or MEASURED_AFTER.match(text, match.end())
    if 0 <= done <= total and total > 1 and not is_else:
        numbered = _NUMBERED.search(before)
        part = numbered[1] if numbered else ""
        yield RisingFigure(done, total, _places(kind, text, match), part)


# "pass 2: 40%" is a part of a run, and it is not known of how many
_NUMBERED = re.compile(
    r"(?i:\b(?:iter(?:ation)?|pass|round|chain|bucket|block|part|chunk|phase|stage|volume|"
    r"cycle|epoch|run|replicate)[\s:#]{1,4}(\d{1,6})(?![\d.]|\s?(?:/|of\b))[^/%]{0,30})$"
)
_TICKS = re.compile(
    r"(?:^|[\s:])0(\.{2,5})(\d{1,3})((?:\.{1,5}\d{1,3})*)(\.{0,5})(?:\s.*)?$"
)
_RULER = re.compile(r"\s*[|\[](?:[-+]{2,9}[|+])*[-+]{2,9}[|\]]?$")
_MARKS = re.compile(r"[|\[]?(([*#=.+])\2*)$")


def ticks_in(text: str) -> float | None:
    """Return the per cent of a line such as ``0...10...20..``."""
    if not (found := _TICKS.search(text)):
        return None
    first, step, more, last = found.groups()
    numbers = [int(word) for word in more.split(".") if word]
    reached = numbers[-1] if numbers else int(step)
    return reached + int(step) * len(last) / (len(first) + 1)


def _seconds_of_match(match: re.Match[str]) -> Seconds:
    hours, minutes, seconds = match.groups()
    return 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds)


def _size_in_bytes(number: str, unit: str | None) -> float:
    # powers of 1024 in any case: done and total have the same unit
    letter = (unit or "").strip()[:1]
    return float(number.replace(",", "")) * 1024.0 ** _POWERS.get(letter, 0)


_NEAR = 400  # characters on either side that make a place, bars included
_MOST_IN_LINE = 32  # figures; a line with more is a table


def _places(kind: str, text: str, match: re.Match[str]) -> tuple[str, str]:
    start, end = match.span()
    before = _shape(text[max(0, start - _NEAR) : start])
    after = _shape(text[end : end + _NEAR])
    return f"{kind}<{before[-60:]}", f"{kind}>{after[:60]}"


def _shape(text: str) -> str:
    text = _FIGURE.sub("0", text)
    return _BLANKS.sub(" ", _BAR.sub("=", text)).strip(" ")


class FigurePlace:
    """One place of a figure, and what stood there."""

    def __init__(
        self, figure: RisingFigure, time: Seconds, begin: Seconds, before: Seconds
    ) -> None:
        self.total = figure.total
        self.part = figure.part  # as long as the figure rises within one
        self.before = before  # when an earlier figure came to its end
        self.seen = self._risen = time
        self.done = figure.done
        self.rises = 0
        self.is_over = False  # it fell, to zero for a next file or as a measure does
        self.history = ProgressHistory()
        self.history.add(time, figure.done)
        self._begin = begin  # when the run, or its current part, began

    def take(self, figure: RisingFigure, time: Seconds) -> None:
        """Advance to *figure*; progress does not fall."""
        self.seen = time
        self.is_over |= figure.done < self.done
        if figure.part != self.part:
            self.part = ""
        self.done = figure.done
        if not self.is_over and figure.done > self.history.points[-1].position:
            self.history.add(time, figure.done)
            # buffered output arrives at once: those rises are one
            if time - self._risen >= AT_ONCE:
                self.rises += 1
                self._risen = time

    def counts(self) -> bool:
        """Return whether this is progress: enough rises, from about zero."""
        # one that starts over, or is of a numbered part, ends with its part only
        if self.is_over or self.part or self.rises < FEWEST:
            return False
        first, last = self.history.points[0], self.history.points[-1]
        rate = (last.position - first.position) / (last.time - first.time)
        before = max(0.0, first.time - self._begin)
        # extrapolated back to the beginning, it must have been about zero
        return first.position <= _LATE * rate * before + _SLACK * self.total


class RisingFigures:
    """All places in the output of one run where a figure rises."""

    def __init__(self) -> None:
        self._places: dict[str, FigurePlace] = {}
        self._part: Seconds = 0.0  # when the current part of the run began
        self._ended: Seconds = 0.0  # when a figure last came to its end
        self._ruler = 0  # how long a line of marks will be
        self._length: Seconds = 0.0  # of the longest film or sound that is read

    def read(self, text: str, time: Seconds) -> None:
        """Read one line."""
        marks = _MARKS.match(text.strip())
        if found := _LENGTH.search(text):
            self._length = max(self._length, _seconds_of_match(found))
        if self._length and (found := _PLAYED.search(text)):
            self._take_one("time=", _seconds_of_match(found), self._length, time)
        elif (done := ticks_in(text)) is not None:
            self._take_one("ticks", done, 100.0, time)
        elif _RULER.match(text):
            self._ruler = len(text.strip())
        elif self._ruler and marks:
            self._take_one("marks", len(marks[1]), self._ruler, time)
        elif not _OF_MANY.match(text):
            for figure in islice(figures_in(text), _MOST_IN_LINE):
                for name in figure.places:
                    self._take(name, figure, time)

    def _take_one(self, name: str, done: float, total: float, time: Seconds) -> None:
        # a film may be longer than it was stated to be
        self._take(name, RisingFigure(min(done, total), total, (name,)), time)

    def _take(self, name: str, figure: RisingFigure, time: Seconds) -> None:
        place = self._places.get(name)
        if place is None:
            # the place that was seen longest ago makes room
            if len(self._places) == _MOST_PLACES:
                del self._places[min(self._places, key=lambda n: self._places[n].seen)]
            self._places[name] = FigurePlace(figure, time, self._part, self._ended)
            return
        place.take(figure, time)
        if place.done >= place.total:
            # the next part of the run begins when a figure is complete
            self._part = time
        if place.done >= AT_END * place.total and place.rises:
            self._ended = time

    def current(self) -> FigurePlace | None:
        """Return the place that moved last, of several the one that moved most."""
        found = [place for place in self._places.values() if place.counts()]
        if not found:
            return None
        newest = max(place.seen for place in found)
        return max(
            (place for place in found if newest - place.seen <= PATIENCE),
            key=lambda place: place.rises,
        )
