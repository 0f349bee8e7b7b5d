"""Find counts such as "step 12 of 345" in a line of output.

The user's patterns come first, then those of patterns.txt. A line has at most one inner
count (a bar, or steps) and the outer ones before it.
"""

import math
import pkgutil
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from weigh.bounded_pattern import compile_bounded
from weigh.errors import FormatError

# the smaller, the further out; the user's own patterns come first
CounterRank = IntEnum("CounterRank", ["PATTERN", "PART", "EPOCH", "STEP"])


class StepCount(NamedTuple):
    """``done`` of ``total`` steps in one line.

    ``label`` distinguishes counters of one source; ``position`` is the line of a bar
    among several. The number of a part or an epoch is that of the current one, or, if
    the line is no heading (``is_heading``), of the one that just ended.
    ``is_of_last`` is whether a tool that counts from zero prints the last number as the
    total.
    """

    source: str
    label: str
    rank: CounterRank
    position: int
    done: float
    total: float | None
    is_heading: bool = False
    is_of_last: bool = False

    @property
    def is_ordinal(self) -> bool:
        """Return whether ``done`` is the number of a part, not how many are done."""
        return self.rank in (CounterRank.PART, CounterRank.EPOCH)


_PAINT = re.compile(r"\x1b\[[\d;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_OTHER = re.compile(r"\x1b\[[\d;:?]*[B-LN-Za-ln-z]|\x1b[^\[]")
_PIECE = re.compile(r"([^\x1b]*)((?:\x1b\[\d*A)+|\x1b|$)")


class ShownText(NamedTuple):
    """A piece of text, and by how many lines it is below its neighbours."""

    text: str
    below: int


def shown_pieces(text: str) -> Iterator[ShownText]:
    """Yield the pieces of a line of *text* between cursor moves.

    A bar below the first moves down, draws, and moves up again: the moves up give its
    line on the display.
    """
    if "\x1b" not in text:
        yield ShownText(text, 0)
        return
    # colours are dropped; other sequences cut the text into pieces
    text = _OTHER.sub("\x1b", _PAINT.sub("", text))
    for piece in _PIECE.finditer(text):
        if piece[1].strip():
            yield ShownText(piece[1], piece[2].count("A"))


class PatternRow(NamedTuple):
    """A row of patterns.txt: the counts that stand in a ``place`` of a line."""

    place: str
    source: str
    need: str  # text without which a line cannot match
    label: str | None  # None: the text before the count
    pattern: re.Pattern[str]
    is_share: bool  # a percentage, of 100


def _pattern_rows() -> Iterator[PatternRow]:
    pieces: dict[str, str] = {}
    text = (pkgutil.get_data("weigh.progress", "patterns.txt") or b"").decode()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        *columns, pattern = re.split(r"\s{2,}", line, maxsplit=4)
        full = re.sub(r"\{([a-z]*%?)\}", lambda name: pieces[name[1]], pattern)
        if len(columns) == 1:
            pieces[columns[0]] = full
            continue
        place, source, need, label = (None if it == "-" else it for it in columns)
        yield PatternRow(
            place or "",
            source or "",
            need or "",
            label and label.strip("'"),
            re.compile(f"(?i:{full})"),
            "%}" in pattern,
        )


_ROWS = tuple(_pattern_rows())


def pattern_rows(*places: str) -> tuple[PatternRow, ...]:
    """Return the rows of patterns.txt for *places*, in the order of the file."""
    return tuple(row for row in _ROWS if row.place in places)


RowMatch: TypeAlias = tuple[PatternRow, re.Match[str]]


def first_match(rows: Sequence[PatternRow], text: str) -> RowMatch | None:
    """Return the first of *rows* that matches somewhere in *text*."""
    for row in rows:
        if row.need in text and (match := row.pattern.search(text)):
            return row, match
    return None


_BARS = pattern_rows("bar")
_STEPS = pattern_rows("share", "behind", "line", "start", "epoch")
_OUTER = pattern_rows("last", "outer")
_TOTALS, _COUNTED = pattern_rows("total"), pattern_rows("counted")
_DIGITS = re.compile(r"\d[\d.,]*")
_UNNAMED = re.compile(r"[^a-z#]+")
_POWERS = " KMGTPE"
_LONGEST_FOR_PATTERNS = 1000  # a pattern of the user's may be slow on a long line


def parse_number(text: str) -> float:
    """Parse ``1,200``, ``12.5``, ``12,5``, ``1.234,56`` or ``4.0k``."""
    digits = text.rstrip("kmgtpeKMGTPE").replace("_", "")
    power = _POWERS.find(text[len(digits) :].upper() or " ")
    mark = max(",.", key=digits.rfind)
    whole, _, fraction = digits.rpartition(mark)
    # of two kinds of marks the last is the decimal one; "1,234" is grouped
    is_lone = digits.count(mark) == 1 and (mark, len(fraction)) != (",", 3)
    if not is_lone and not {",", "."} <= set(digits):
        whole, fraction = digits, ""
    whole = whole.replace(",", "").replace(".", "")
    number = float(f"{whole}.{fraction}" if fraction else whole)
    return number * 1000.0 ** max(0, power)


def _steps_of(row: PatternRow, match: re.Match[str]) -> StepCount:
    label = row.label
    if label is None:
        # figures change from line to line, names do not
        before = _DIGITS.sub("#", match.string[: match.start()].lower())
        label = _UNNAMED.sub(" ", before).strip()[:60]
    done, total = parse_number(match[1]), None
    if row.is_share:
        done, total = float(match[1].replace(",", ".")), 100.0
    elif match.re.groups > 1 and match[2]:
        total = parse_number(match[2])
    return StepCount(row.source, label, CounterRank.STEP, 0, done, total)


def _is_open(part: StepCount) -> bool:
    """Return whether what follows is inside of *part*, on which line it may be."""
    return part.total is not None or part.label in ("epoch", "numbered fold")


class CountParser:
    """Finds counts in lines.

    Its only state is what was announced: totals, and whether an epoch was: then
    lines that count without a name count inside it.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [_compiled_count_pattern(pattern) for pattern in patterns]
        self._totals: dict[str | None, float] = {}  # by the label of their counter
        self._is_in_epoch = False

    def counts(self, line: str) -> Iterator[StepCount]:
        """Yield the plausible counts in *line*, the outer ones first."""
        for piece in shown_pieces(line):
            yield from filter(_makes_sense, self._of_patterns(piece.text))
            yield from filter(_makes_sense, self._known(piece))

    def _of_patterns(self, text: str) -> Iterator[StepCount]:
        for index, pattern in enumerate(self._patterns):
            match = pattern.search(text[:_LONGEST_FOR_PATTERNS])
            groups = match.groupdict() if match else {}
            # without both of them, the pattern's per cent counts
            done, total = groups.get("done"), groups.get("total")
            if done is None or total is None:
                done, total = groups.get("percent"), "100"
            with suppress(ValueError):
                count, whole = parse_number(done or ""), parse_number(total)
                yield StepCount(
                    "your pattern", str(index), CounterRank.PATTERN, 0, count, whole
                )

    def _known(self, piece: ShownText) -> Iterator[StepCount]:
        text = piece.text
        # how many there will be, printed once: no count of its own
        if announced := first_match(_TOTALS, text):
            self._totals[announced[0].label] = float(announced[1][1])
            return
        if counted := first_match(_COUNTED, text):
            yield _steps_of(*counted)._replace(total=self._totals.get(counted[0].label))
            return
        bar = first_match(_BARS, text)
        head = text if bar is None else text[: bar[1].start()]
        outer, end = self._outer_in(text, head)
        steps = bar or self._steps_in(text, outer, end)
        # a line with figures after the epoch is its result, one without its heading
        is_heading = steps is not None or not any(map(str.isdigit, text[end:]))
        # another part without a total, of which nothing is counted, shows nothing
        if steps or (outer and _is_open(outer[-1])):
            for count in outer:
                yield count._replace(is_heading=is_heading)
        if steps is not None:
            yield _steps_of(*steps)._replace(position=piece.below)

    def _steps_in(
        self, text: str, outer: Sequence[StepCount], end: int
    ) -> RowMatch | None:
        """Return the steps in *text*, of which the counts *outer* end at *end*."""
        places = {"behind"} if outer else {"start"}
        if self._is_in_epoch:
            places.add("epoch")
        # of an open part a percentage may be of anything
        if outer and _is_open(outer[-1]):
            places.add("share")
        for row in _STEPS:
            match = None
            if row.need not in text:
                continue
            if row.place == "line":
                match = row.pattern.search(text)
            elif row.place == "epoch" and row.place in places:
                match = row.pattern.search(text, end)
            elif row.place in places:
                match = row.pattern.match(text, end)
            if match:
                return row, match
        return None

    def _outer_in(self, text: str, head: str) -> tuple[list[StepCount], int]:
        """Return the parts and epochs in the *head* of *text*, and where they end."""
        found = sorted(
            (match.start("done"), index, match)
            for index, row in enumerate(_OUTER)
            if row.need in text
            for match in row.pattern.finditer(head)
        )
        counts: list[StepCount] = []
        end = 0
        for start, index, match in found:
            total = match.groupdict().get("total")
            if start >= end:
                counts.append(self._outer_count(_OUTER[index], match, total))
                end = match.end()
        return counts, end

    def _outer_count(
        self, row: PatternRow, match: re.Match[str], total_text: str | None
    ) -> StepCount:
        label = (row.label or match["label"]).lower()
        total = None if total_text is None else float(total_text)
        # a last number such as 24 or 99 is one less than a round total
        is_of_last = row.place == "last" or (total is not None and total % 5 == 4)  # noqa: PLR2004
        rank = CounterRank.PART
        if label in ("epoch", "round", "generation"):
            rank, self._is_in_epoch = CounterRank.EPOCH, True
            total = total or self._totals.get("epoch")
        done = float(match["done"])
        return StepCount(
            f"{label} lines", label, rank, 0, done, total, is_of_last=is_of_last
        )


def _compiled_count_pattern(pattern: str) -> re.Pattern[str]:
    try:
        compiled = compile_bounded(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise FormatError(f"not a regular expression: {pattern!r} ({error})") from error
    names = set(compiled.groupindex)
    if not ({"done", "total"} <= names or "percent" in names):
        raise FormatError(
            f"a progress pattern needs the groups (?P<done>...) and (?P<total>...),"
            f" or (?P<percent>...): {pattern!r}"
        )
    return compiled


def _makes_sense(step_count: StepCount) -> bool:
    done, total = step_count.done, step_count.total
    if total is None:
        return 0 <= done < math.inf
    # "file 1 of 1" is no counter
    return 0 <= done <= total < math.inf and total > 1
