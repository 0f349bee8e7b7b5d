"""Reads counts in words: ``epoch 3/10``, ``step 120 of 4000``, ``[12/345]``."""

import re
from collections.abc import Iterator

from weigh.progress.bars import NUMBER, number, total_of
from weigh.progress.marks import EPOCH, FOLD, STEP, Mark

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
