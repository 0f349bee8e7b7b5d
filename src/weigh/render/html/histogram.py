"""Histograms of the elements of an array, one per resource."""

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from weigh.model.report import ReportMeasure
from weigh.render.html.curves import round_step
from weigh.render.html.words import KINDS, NAMES, Kind, figure_text

_FEWEST = 5  # values; of fewer, each is in the table
_MOST_BINS = 24  # bars that can still be distinguished


class DrawnHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram to draw: its bins of equal width with their counts, and its words.

    ``ends`` are the labels of the axis: two, or one where all values are the same.
    """

    name: str
    words: str  # for readers who do not see the picture
    requested: str  # empty: nothing was requested
    bins: tuple[tuple[str, int], ...]  # label and count
    ends: tuple[str, ...]


def measure_histograms(measures: Sequence[ReportMeasure]) -> tuple[DrawnHistogram, ...]:
    """Return a histogram of each measure that has enough values."""
    return tuple(
        _measure_histogram(measure)
        for measure in measures
        if len(measure.values) >= _FEWEST
    )


def _measure_histogram(measure: ReportMeasure) -> DrawnHistogram:
    kind, name = KINDS[measure.unit], NAMES[measure.name]
    values = sorted(measure.values)
    edges = _bin_edges(values, kind)
    counts = [0] * (len(edges) - 1)
    for value in values:
        # a value at the upper edge of all belongs to the last bin
        counts[min(len(counts), bisect_right(edges, value)) - 1] += 1
    texts = [figure_text(edge, kind) for edge in edges]
    requested = measure.requested
    return DrawnHistogram(
        name=name,
        words=f"{name}: {len(values):,} values from {figure_text(values[0], kind)} to "
        f"{figure_text(values[-1], kind)}, median {figure_text(measure.median, kind)}",
        requested=""
        if requested is None
        else f"requested {figure_text(requested, kind)}",
        bins=tuple(
            (first if first == last else f"{first} to {last}", number)
            for first, last, number in zip(texts, texts[1:], counts, strict=False)
        ),
        ends=tuple(dict.fromkeys((texts[0], texts[-1]))),
    )


def _bin_edges(values: Sequence[float], figure_kind: Kind) -> tuple[float, ...]:
    """Return the edges of the bins: as many as can be written as different figures."""
    low, high = values[0], values[-1]
    if figure_text(low, figure_kind) == figure_text(high, figure_kind):
        # one bin, whose edges have to differ all the same
        return low, max(high, math.nextafter(low, math.inf))
    # about twice the square root of the number of values, as a rule of thumb has it
    wanted = min(_MOST_BINS, math.ceil(2 * math.sqrt(len(values))))
    edges = round_edges(low, high, binary=figure_kind == "size", wanted=wanted)
    # labels that read the same would make bins that look the same
    while (
        len({figure_text(edge, figure_kind) for edge in edges}) < len(edges)
        and wanted > 1
    ):
        wanted -= 1
        edges = round_edges(low, high, binary=figure_kind == "size", wanted=wanted)
    return edges


def round_edges(
    low: float, high: float, *, binary: bool, wanted: int
) -> tuple[float, ...]:
    """Return round edges of up to *wanted* + 1 bins that hold *low* to *high*."""
    # all values equal: a step from the value itself, and 1 where that is 0
    step = round_step((high - low) / wanted or high / wanted or 1.0, binary=binary)
    first = math.floor(low / step)
    last = max(first + 1, math.floor(high / step) + 1)
    return tuple(step * i for i in range(first, last + 1))
