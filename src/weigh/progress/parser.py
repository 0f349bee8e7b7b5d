"""From a line to the counts in it: the user's patterns first, then what is known."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weigh.errors import FormatError
from weigh.progress.count import EPOCH, FOLD, PATTERN, STEP, Mark

_PAINT = re.compile(r"\x1b\[[\d;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_OTHER = re.compile(r"\x1b\[[\d;:?]*[B-LN-Za-ln-z]|\x1b[^\[]")
_PIECE = re.compile(r"([^\x1b]*)((?:\x1b\[\d*A)+|\x1b|$)")


class Shown(NamedTuple):
    """A piece of text, and how many lines below its neighbours it was drawn."""

    text: str
    below: int


def shown(line: bytes) -> Iterator[Shown]:
    """Yield the pieces of *line* between cursor moves.

    A bar that is not the first goes down, draws, and up again: the moves up after it
    say which line of the display it is.
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
_TOLD = re.compile(
    r"(?i:\bprogress\W{1,3}(\d{1,3}(?:\.\d{1,6})?)\s?%"
    r"|(?<![\d.])(\d{1,3}(?:\.\d{1,6})?)\s?% (?:done|complete))"
)

_DIGITS = re.compile(r"\d[\d.,]*")
_UNNAMED = re.compile(r"[^a-z#]+")
_POWERS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


class Bar(NamedTuple):
    """A mark, and where in the text it begins."""

    mark: Mark
    start: int


def number(text: str) -> float:
    """Read what ``NUMBER`` matches: ``1,200``, ``4.0k``."""
    power = _POWERS.get(text[-1])
    digits = text[:-1] if power else text
    return float(digits.replace(",", "").replace("_", "")) * (power or 1.0)


def total_of(text: str | None) -> float | None:
    """Read a total; None where there is none."""
    return number(text) if text else None


def bar_in(text: str) -> Bar | None:
    """Find the progress bar in *text*, of whatever make.

    Most lines are none: what each make cannot do without is looked for first.
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
    if found := _MAKE.match(text) or _TOLD.search(text):
        return _bar("percentages", "", found, (found[found.lastindex or 1], "100"))
    return None


def _either(found: re.Match[str]) -> tuple[str, str | None]:
    return (found[3], "100") if found[3] else (found[1], found[2])


def _bar(
    source: str, text: str, found: re.Match[str], counts: tuple[str, str | None]
) -> Bar:
    done, total = counts
    label = _UNNAMED.sub(" ", _DIGITS.sub("#", text[: found.start()].lower())).strip()
    mark = Mark(source, label[:60], STEP, number(done), total_of(total))
    return Bar(mark, found.start())


_COUNT = rf"(?-i:{NUMBER})"
_OF = r"\s{0,4}(?:/|of|out of)\s{0,4}"
_OUTER = re.compile(
    rf"(?i:\b(fold|seed|trial|epoch|round|generation)\b[\s:#=]{{0,4}}[\[(]?\s{{0,4}}"
    rf"(\d{{1,9}})(?![\d.]){_OF}(\d{{1,9}})(?![\d/]|\.\d))"
)
_OPEN_EPOCH = re.compile(
    r"(?i:\W{0,20}(?:train(?:ing)?\W{1,3})?epoch[\s:#]{0,4}\[?\s{0,4}(\d{1,9})(?![\w.]))"
)
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


def outer_in(text: str) -> Iterator[tuple[Mark, int]]:
    """Yield epochs, folds and their like, each with where its words end."""
    found = None
    for found in _OUTER.finditer(text):
        word = found[1].lower()
        rank = EPOCH if word in ("epoch", "round", "generation") else FOLD
        yield _ordinal(word, rank, found[2], found[3]), found.end()
    if found is None and (begun := _OPEN_EPOCH.match(text)):
        yield _ordinal("epoch", EPOCH, begun[1], None), begun.end()


def step_in(text: str, *, is_inside: bool, start: int) -> Mark | None:
    """Find the steps counted in *text*.

    A bare ``[12/345]`` counts at the beginning, or behind an epoch (*is_inside*), from
    *start* on.
    """
    if found := _STEP.search(text) or _STEPS_AFTER.search(text):
        return _steps("step", found)
    found = _BRACKET.match(text.lstrip())
    if found is None and is_inside:
        found = _BRACKET.search(text, start)
    return found and _steps("[]", found)


def has_figures(text: str) -> bool:
    """Tell whether there is a number in *text*: a loss, a time."""
    return _DIGIT.search(text) is not None


def _ordinal(word: str, rank: int, done: str, total: str | None) -> Mark:
    return Mark(
        f"{word} lines", word, rank, number(done), total_of(total), is_ordinal=True
    )


def _steps(label: str, found: re.Match[str]) -> Mark:
    return Mark("step lines", label, STEP, number(found[1]), number(found[2]))


_WORTH_A_LOOK = re.compile(
    r"(?i:\d\s*(?:/|%|of\b|out of\b|\S{0,30}\s\[\d)|epoch)",
)
_TRAINER = re.compile(r"'epoch': '?(\d{1,9}(?:\.\d{1,9})?)'?\s*[,}]")
_TRAINER_EPOCHS = re.compile(r"(?:[Nn]um[ _](?:train[ _])?[Ee]pochs\W{1,3}(\d{1,9}))")
_LONGEST_FOR_PATTERNS = 1000


class Parser:
    """Finds counts in lines. It keeps nothing but the number of epochs, once told."""

    def __init__(
        self, patterns: Sequence[str] = (), *, epochs: float | None = None
    ) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._epochs = epochs

    def marks(self, line: bytes) -> Iterator[Mark]:
        """Yield the counts in *line*, the outer ones first; those that make sense."""
        for piece in shown(line):
            yield from self._own(piece)
            if _WORTH_A_LOOK.search(piece.text):
                yield from filter(_makes_sense, self._known(piece))

    def _own(self, piece: Shown) -> Iterator[Mark]:
        for index, pattern in enumerate(self._patterns):
            found = pattern.search(piece.text[:_LONGEST_FOR_PATTERNS])
            mark = found and _own_mark(found, str(index))
            if mark and _makes_sense(mark):
                yield mark

    def _known(self, piece: Shown) -> Iterator[Mark]:
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
                yield Mark("Trainer", "epoch", EPOCH, done, self._epochs)
            return
        yield from self._counted(text, piece.below)

    def _counted(self, text: str, below: int) -> Iterator[Mark]:
        bar = bar_in(text)
        outer = list(outer_in(text if bar is None else text[: bar.start]))
        start = outer[-1][1] if outer else 0
        inner = bar.mark if bar else _step(text, start)
        is_heading = inner is not None or not has_figures(text[start:])
        is_lightning = "•" in text and bar is not None and bar.mark.source == "rich"
        for mark, _ in outer:
            total = mark.total
            if total is None and mark.rank == EPOCH:
                total = self._epochs
            yield mark._replace(
                total=total, is_heading=is_heading, is_of_last=is_lightning
            )
        if inner is not None:
            yield inner._replace(position=below)


def _step(text: str, start: int) -> Mark | None:
    return step_in(text, is_inside=start > 0, start=start)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise FormatError(f"not a regular expression: {pattern!r} ({error})") from error
    names = set(compiled.groupindex)
    if not ({"done", "total"} <= names or "percent" in names):
        raise FormatError(
            f"a progress pattern needs the groups (?P<done>...) and (?P<total>...),"
            f" or (?P<percent>...): {pattern!r}"
        )
    return compiled


def _own_mark(found: re.Match[str], label: str) -> Mark | None:
    groups = found.groupdict()
    done, total = groups.get("done"), groups.get("total")
    if done is None or total is None:
        done, total = groups.get("percent"), "100"
    try:
        count, whole = (float((word or "").replace(",", "")) for word in (done, total))
    except ValueError:
        return None
    return Mark("your pattern", label, PATTERN, count, whole)


def _makes_sense(mark: Mark) -> bool:
    if mark.total is None:
        return 0 <= mark.done < float("inf")
    return 0 <= mark.done <= mark.total < float("inf") and mark.total > 0
