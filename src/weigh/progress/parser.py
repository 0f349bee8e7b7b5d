"""Find counts such as "step 12 of 345" in a line of output.

The user's patterns come first, then those of well-known progress bars and log lines.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weigh.bounded_pattern import compile_bounded
from weigh.errors import FormatError

PATTERN = 0
FOLD = 1
EPOCH = 2
STEP = 3


class Count(NamedTuple):
    """``done`` of ``total`` steps in one line.

    ``label`` distinguishes counters of one source; outer counters have a smaller
    ``rank``; ``position`` is the line of a bar among several. An ordinal
    (``is_ordinal``) is the number of the current step ("Epoch 3/10"), or of the one
    that just ended if the line has figures and is not a heading (``is_heading``).
    ``is_of_last`` marks a total of a tool that counts from zero and prints the last
    number.
    """

    source: str
    label: str
    rank: int
    done: float
    total: float | None
    position: int = 0
    is_ordinal: bool = False
    is_heading: bool = False
    is_of_last: bool = False
    is_around: bool = False  # its inner counter is in the same line


_PAINT = re.compile(r"\x1b\[[\d;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_OTHER = re.compile(r"\x1b\[[\d;:?]*[B-LN-Za-ln-z]|\x1b[^\[]")
_PIECE = re.compile(r"([^\x1b]*)((?:\x1b\[\d*A)+|\x1b|$)")


class Shown(NamedTuple):
    """A piece of text, and by how many lines it is below its neighbours."""

    text: str
    below: int


def shown(line: bytes) -> Iterator[Shown]:
    """Yield the pieces of *line* between cursor moves.

    A bar below the first moves down, draws, and moves up again: the moves up give its
    line on the display.
    """
    text = line.decode("utf-8", "replace")
    if "\x1b" not in text:
        yield Shown(text, 0)
        return
    text = _OTHER.sub("\x1b", _PAINT.sub("", text))
    for piece in _PIECE.finditer(text):
        if piece[1].strip():
            yield Shown(piece[1], piece[2].count("A"))


NUMBER = r"\d[\d,_]{0,18}(?:\.\d{1,9})?[kKMGTPE]?"

_TQDM = re.compile(rf"\d{{1,3}}%(?:\|[^|]*\||\s)\s*({NUMBER})/({NUMBER})(?![\d/])")
_TQDM_OPEN = re.compile(rf"({NUMBER})\s?[^\W\d]\S{{0,30}}\s\[\d+:\d\d[\d:]*,")
_PERCENT_BAR = re.compile(r"(\d{1,3})%\|")
_KERAS = re.compile(
    rf"\s*({NUMBER})/(?:({NUMBER})|Unknown)\s+(?:━|\[[=>.]+\]|-\s\d+s|\d\S*\s\S+/step)"
)
_RICH = re.compile(
    rf"[━╸╺][━╸╺ ]{{4,}}.*?(?:({NUMBER})/\s*({NUMBER})(?![\d/])|(\d{{1,3}})%)"
)
_MAKE = re.compile(r"\s*\[\s*(\d{1,3})%\]")
_PERCENT_LINE = re.compile(
    r"(?i:\bprogress\W{1,3}(\d{1,3}(?:\.\d{1,6})?)\s?%"
    r"|(?<![\d.])(\d{1,3}(?:\.\d{1,6})?)\s?% (?:done|complete))"
)

_DIGITS = re.compile(r"\d[\d.,]*")
_UNNAMED = re.compile(r"[^a-z#]+")
_POWERS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


class Bar(NamedTuple):
    """The steps of a progress bar, and where in the text it begins."""

    steps: Count
    start: int


def number(text: str) -> float:
    """Parse a match of ``NUMBER``: ``1,200``, ``4.0k``."""
    power = _POWERS.get(text[-1])
    digits = text[:-1] if power else text
    return float(digits.replace(",", "").replace("_", "")) * (power or 1.0)


def total_of(text: str | None) -> float | None:
    """Parse a total; None if there is none."""
    return number(text) if text else None


def bar_in(text: str) -> Bar | None:
    """Find a progress bar of any known kind in *text*.

    Most lines have none, so a character that each kind contains is looked for first.
    """
    if "%" in text and (bar := _percent(text)):
        return bar
    if "[" in text and (found := _TQDM_OPEN.search(text)):
        return _bar("tqdm", text, found, (found[1], None))
    if found := _KERAS.match(text):
        return _bar("Keras", "", found, (found[1], found[2]))
    if "━" in text and (found := _RICH.search(text)):
        return _bar("rich", text, found, _either(found))
    return None


def _percent(text: str) -> Bar | None:
    if found := _TQDM.search(text):
        return _bar("tqdm", text, found, (found[1], found[2]))
    if found := _PERCENT_BAR.search(text):
        return _bar("tqdm", text, found, (found[1], "100"))
    if found := _MAKE.match(text) or _PERCENT_LINE.search(text):
        return _bar("percentages", "", found, (found[found.lastindex or 1], "100"))
    return None


def _either(found: re.Match[str]) -> tuple[str, str | None]:
    return (found[3], "100") if found[3] else (found[1], found[2])


def _bar(
    source: str, text: str, found: re.Match[str], counts: tuple[str, str | None]
) -> Bar:
    done, total = counts
    label = _UNNAMED.sub(" ", _DIGITS.sub("#", text[: found.start()].lower())).strip()
    count = Count(source, label[:60], STEP, number(done), total_of(total))
    return Bar(count, found.start())


_COUNT = rf"(?-i:{NUMBER})"
_OF = r"\s{0,4}(?:/|of|out of)\s{0,4}"
_OUTER = re.compile(
    rf"(?i:\b(fold|seed|trial|epoch|round|generation|pass|phase|stage|loop)\b[\s:#=]{{0,4}}[\[(]?\s{{0,4}}"
    rf"(\d{{1,9}})(?![\d.]){_OF}(\d{{1,9}})(?![\d/]|\.\d))"
)
_OPEN_EPOCH = re.compile(
    r"(?i:\W{0,20}(?:train(?:ing)?\W{1,3})?epoch[\s:#]{0,4}\[?\s{0,4}(\d{1,9})(?![\w.]))"
)
_OPEN_PART = re.compile(
    r"(?i:\W{0,20}(chain|pass|phase|stage|part|replicate|run)[\s:#]{1,4}(\d{1,9})(?![\w.]))"
)
_SHARE = re.compile(
    r"(?:[^a-zA-Z=]{3}|\dB?\s|[kKMGTP]i?B?\s)(?<![\w.])(\d{1,3}(?:\.\d{1,6})?)\s?%\s*$"
)
_PARTS = ("pass", "phase", "stage", "loop")
_MEASURES = re.compile(r"(?i:acc|loss|err|score|rate|cpu|gpu|mem|used)")
_STEPS = (
    "(?:step|iter|iteration|batch|minibatch|update|sample|example|file|document|"
    "sentence|image|item|task|chunk|shard|record|row)(?:e?s)?"
)
_STEP = re.compile(
    rf"(?i:\b{_STEPS}\b[\s:#=]{{0,4}}[\[(]?\s{{0,4}}({_COUNT}){_OF}({_COUNT})(?![\d/]|\.\d))"
)
_STEPS_AFTER = re.compile(rf"(?i:(?<![\d/.,])({_COUNT}){_OF}({_COUNT})\s+{_STEPS}\b)")
_BRACKET = re.compile(
    r"\[\s{0,9}(\d{1,15})\s?/\s{0,9}(\d{1,15})(?:\s?\(\s{0,2}\d{1,3}(?:\.\d{1,6})?\s?%\))?\s?\]"
)
_DIGIT = re.compile(r"\d")


def outer_in(text: str) -> Iterator[tuple[Count, int]]:
    """Yield epochs, folds and the like, each with the end of its match."""
    found = None
    for found in _OUTER.finditer(text):
        word = found[1].lower()
        rank = EPOCH if word in ("epoch", "round", "generation") else FOLD
        yield _ordinal(word, rank, found[2], found[3]), found.end()
    if found is not None:
        return
    if begun := _OPEN_EPOCH.match(text):
        yield _ordinal("epoch", EPOCH, begun[1], None), begun.end()


def step_in(text: str, *, is_inside: bool, start: int) -> Count | None:
    """Find the steps counted in *text*.

    A bare ``[12/345]`` counts only at the beginning or, with *is_inside*, after the
    epoch that ends at *start*.
    """
    if found := _STEP.search(text) or _STEPS_AFTER.search(text):
        return _steps("step", found)
    found = _BRACKET.match(text.lstrip())
    if found is None and is_inside:
        found = _BRACKET.search(text, start)
    return found and _steps("[]", found)


def has_figures(text: str) -> bool:
    """Return whether there is a number in *text*: a loss, a time."""
    return _DIGIT.search(text) is not None


def _ordinal(word: str, rank: int, done: str, total: str | None) -> Count:
    return Count(
        f"{word} lines", word, rank, number(done), total_of(total), is_ordinal=True
    )


def _steps(label: str, found: re.Match[str]) -> Count:
    return Count("step lines", label, STEP, number(found[1]), number(found[2]))


_WORTH_A_LOOK = re.compile(
    r"(?i:\d\s*(?:/|%|of\b|out of\b|\S{0,30}\s\[\d)|epoch)",
)
_TRAINER = re.compile(r"'epoch': '?(\d{1,9}(?:\.\d{1,9})?)'?\s*[,}]")
_TRAINER_EPOCHS = re.compile(r"(?:[Nn]um[ _](?:train[ _])?[Ee]pochs\W{1,3}(\d{1,9}))")
_LONGEST_FOR_PATTERNS = 1000


class Parser:
    """Finds counts in lines. Its only state is the number of epochs."""

    def __init__(
        self, patterns: Sequence[str] = (), *, epochs: float | None = None
    ) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._epochs = epochs

    def counts(self, line: bytes) -> Iterator[Count]:
        """Yield the plausible counts in *line*, the outer ones first."""
        for piece in shown(line):
            yield from self._own(piece)
            if _WORTH_A_LOOK.search(piece.text):
                yield from filter(_makes_sense, self._known(piece))

    def _own(self, piece: Shown) -> Iterator[Count]:
        for index, pattern in enumerate(self._patterns):
            found = pattern.search(piece.text[:_LONGEST_FOR_PATTERNS])
            count = found and _own_count(found, str(index))
            if count and _makes_sense(count):
                yield count

    def _known(self, piece: Shown) -> Iterator[Count]:
        text = piece.text
        if "poch" not in text:
            yield from self._counted(text, piece.below)
            return
        if found := _TRAINER_EPOCHS.search(text):
            self._epochs = float(found[1])
            return
        if found := _TRAINER.search(text):
            if self._epochs:
                done = float(found[1])
                yield Count("Trainer", "epoch", EPOCH, done, self._epochs)
            return
        yield from self._counted(text, piece.below)

    def _counted(self, text: str, below: int) -> Iterator[Count]:
        bar = bar_in(text)
        outer = list(outer_in(text if bar is None else text[: bar.start]))
        start = outer[-1][1] if outer else 0
        inner = bar.steps if bar else _step(text, start)
        if inner is None and outer and outer[-1][0].label in _PARTS:
            inner = _share(text, start)
        if inner is not None and not outer and (part := _OPEN_PART.match(text)):
            # one of several, and it is not printed of how many
            outer = [(_ordinal(part[1].lower(), FOLD, part[2], None), part.end())]
            start = part.end()
        is_heading = inner is not None or not has_figures(text[start:])
        is_lightning = "•" in text and bar is not None and bar.steps.source == "rich"
        for count, _ in outer:
            total = count.total
            if total is None and count.rank == EPOCH:
                total = self._epochs
            yield count._replace(
                total=total,
                is_heading=is_heading,
                is_of_last=is_lightning,
                is_around=inner is not None,
            )
        if inner is not None:
            yield inner._replace(position=below)


def _share(text: str, start: int) -> Count | None:
    """Find the share of a counted part at the end of its line: "pass 2/3 ... 45%"."""
    found = _SHARE.search(text, start)
    if found is None or _MEASURES.search(text, start):
        return None
    return Count("percentages", "", STEP, number(found[1]), 100.0)


def _step(text: str, start: int) -> Count | None:
    return step_in(text, is_inside=start > 0, start=start)


def _compiled(pattern: str) -> re.Pattern[str]:
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


def _own_count(found: re.Match[str], label: str) -> Count | None:
    groups = found.groupdict()
    done, total = groups.get("done"), groups.get("total")
    if done is None or total is None:
        done, total = groups.get("percent"), "100"
    try:
        count, whole = (float((word or "").replace(",", "")) for word in (done, total))
    except ValueError:
        return None
    return Count("your pattern", label, PATTERN, count, whole)


def _makes_sense(count: Count) -> bool:
    if count.total is None:
        return 0 <= count.done < float("inf")
    least = 1 if count.rank in (FOLD, STEP) else 0  # "file 1 of 1" is no counter
    return 0 <= count.done <= count.total < float("inf") and count.total > least
