"""From a line to the counts in it: the user's patterns first, then what is known."""

import re
from collections.abc import Iterator, Sequence

from weigh.errors import FormatError
from weigh.progress.bars import bar_in
from weigh.progress.marks import EPOCH, PATTERN, Mark
from weigh.progress.screen import Shown, shown
from weigh.progress.words import has_figures, outer_in, step_in

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
