"""Histograms of the elements of an array, one per resource."""

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from weigh.model.report import Measure
from weigh.render.html.curves import edges
from weigh.render.html.words import KINDS, NAMES, Kind, figure

WIDTH, HEIGHT = 440, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 30, 24
_FEWEST = 5
_MOST_BINS = 24
_FAR = 3.0  # a request beyond so many spans of the values is written, not drawn


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bin: its place in the picture, and its tooltip."""

    x: float
    y: float
    width: float
    height: float
    words: str
    count: int


class Label(msgspec.Struct, frozen=True):
    """Text under the axis."""

    x: float
    words: str
    anchor: str


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram to draw, and its description."""

    name: str
    words: str
    bars: tuple[Bar, ...]
    labels: tuple[Label, ...]
    requested: float | None
    requested_words: str
    requested_anchor: str
    floor: float = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def histograms(measures: Sequence[Measure]) -> tuple[Histogram, ...]:
    """Draw each measure that has enough values."""
    return tuple(
        _histogram(measure) for measure in measures if len(measure.values) >= _FEWEST
    )


def _histogram(measure: Measure) -> Histogram:
    kind = KINDS[measure.unit]
    values = sorted(measure.values)
    bounds = _bounds(values, kind)
    counts = [0] * (len(bounds) - 1)
    for value in values:
        counts[min(len(counts), bisect_right(bounds, value)) - 1] += 1
    requested = measure.requested
    left, right = bounds[0], bounds[-1]
    near = requested is not None and left <= requested <= right + _FAR * (right - left)
    if requested is not None and near:
        right = max(right, requested + 0.02 * (requested - left))

    def across(value: float) -> float:
        room = WIDTH - _LEFT - _RIGHT
        return round(_LEFT + (value - left) / (right - left) * room, 2)

    at = across(requested) if requested is not None and near else None
    request = "" if requested is None else f"requested {figure(requested, kind)}"
    return Histogram(
        name=NAMES[measure.name],
        words=_words(measure, kind),
        bars=tuple(
            _bar(across(a), across(b), n, max(counts), _between(a, b, n, kind))
            for a, b, n in zip(bounds, bounds[1:], counts, strict=False)
        ),
        labels=_labels(left, right, kind),
        requested=at,
        requested_words=request if near or not request else f"{request}, off the scale",
        requested_anchor="end" if at is None or at > WIDTH / 2 else "start",
    )


def _bounds(values: Sequence[float], kind: Kind) -> tuple[float, ...]:
    """Return the edges of the bins: as many as can be written as different figures."""
    low, high = values[0], values[-1]
    if figure(low, kind) == figure(high, kind):
        return low, max(high, math.nextafter(low, math.inf))
    wanted = min(_MOST_BINS, math.ceil(2 * math.sqrt(len(values))))
    bounds = edges(low, high, binary=kind == "size", wanted=wanted)
    while len({figure(edge, kind) for edge in bounds}) < len(bounds) and wanted > 1:
        wanted -= 1
        bounds = edges(low, high, binary=kind == "size", wanted=wanted)
    return bounds


def _bar(start: float, end: float, number: int, most: int, words: str) -> Bar:
    height = round(number / most * (HEIGHT - _TOP - _BOTTOM), 2)
    return Bar(
        x=start + 0.5,
        y=round(HEIGHT - _BOTTOM - height, 2),
        width=round(max(0.5, end - start - 1), 2),
        height=height,
        words=words,
        count=number,
    )


def _between(low: float, high: float, number: int, kind: Kind) -> str:
    first, last = figure(low, kind), figure(high, kind)
    return f"{first if first == last else f'{first} to {last}'}: {number:,}"


def _labels(left: float, right: float, kind: Kind) -> tuple[Label, ...]:
    """Return the labels of the axis, each figure once."""
    first = Label(_LEFT, figure(left, kind), "start")
    middle = Label(WIDTH / 2, figure((left + right) / 2, kind), "middle")
    last = Label(WIDTH - _RIGHT, figure(right, kind), "end")
    if first.words == last.words:
        return (middle,)
    if middle.words in {first.words, last.words}:
        return first, last
    return first, middle, last


def _words(measure: Measure, kind: Kind) -> str:
    low, high = min(measure.values), max(measure.values)
    return (
        f"{NAMES[measure.name]}: {len(measure.values):,} values from "
        f"{figure(low, kind)} to {figure(high, kind)}, "
        f"median {figure(measure.median, kind)}"
    )
