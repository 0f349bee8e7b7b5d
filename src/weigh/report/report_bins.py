"""The elements of an array by what they used: two histograms side by side."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from weigh.model.report import Measure
from weigh.report.printable import count
from weigh.report.report_words import amount

LEAST = 8  # elements, before a histogram says more than median and most
_BINS = 6
_HALF = 39
_BAR = 14


def bins(values: Sequence[float]) -> list[tuple[float, int]]:
    """Count values in a few equal spans: the upper end of each, and how many.

    Every value is in exactly one; the largest is the end of the last span.
    """
    low, high = min(values), max(values)
    width = (high - low) / _BINS
    ends = [low + width * number for number in range(1, _BINS)]
    ends = [end for end in dict.fromkeys(ends) if low < end < high] + [high]
    counts = [0] * len(ends)
    for value in values:
        counts[next(n for n, end in enumerate(ends) if value <= end)] += 1
    return list(zip(ends, counts, strict=True))


def histograms(
    measures: Sequence[Measure], *, noun: str, is_ascii: bool
) -> Iterator[str]:
    """Draw memory and time of many elements or runs, 80 columns wide."""
    shown = [
        one
        for one in measures
        if one.name in {"memory", "time"} and len(one.values) >= LEAST
    ]
    columns = [list(_column(one, noun, is_ascii=is_ascii)) for one in shown]
    for cells in zip_longest(*columns, fillvalue=""):
        yield "".join(f"{cell:<{_HALF}}" for cell in cells).rstrip()


def _column(measure: Measure, noun: str, *, is_ascii: bool) -> Iterator[str]:
    found = bins(measure.values)
    most = max(number for _, number in found)
    yield f"  {noun} by {measure.name}"
    mark = "|" if is_ascii else "▪"
    for end, number in found:
        drawn = mark * (-(-number * _BAR // most))
        label = f"to {amount(measure, end)}"
        yield f"    {label:<14}{drawn:<{_BAR}} {count(number)}"
