"""Reads the progress bars of tqdm, rich and Keras, and percentages."""

import re
from typing import NamedTuple

from weigh.progress.marks import STEP, Mark

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
