"""Requested beside used: each resource as a row with a bar."""

from collections.abc import Sequence

import msgspec

from weigh.model.report import Figure, Measure, Name
from weigh.report.html.words import ABSENT, KINDS, NAMES, Kind, figure, share
from weigh.report.printable import printable

_TIGHT = 0.95
_LOOSE = 0.5
_LIMITED: tuple[Name, ...] = ("memory", "gpu_memory", "time")  # more ends the job


class MeasureView(msgspec.Struct, frozen=True, kw_only=True):
    """One row; ``filled`` is the bar's length of 100, ``tone`` what its colour says."""

    name: str
    asked: str
    median: str
    most: str
    share: str
    filled: float | None
    tone: str
    source: str
    others: tuple[str, ...] = ()


def measure_views(measures: Sequence[Measure]) -> tuple[MeasureView, ...]:
    """Make a row of each measure that says anything."""
    return tuple(_view(one) for one in measures if _says_anything(one))


def _says_anything(measure: Measure) -> bool:
    figures = (measure.asked, measure.median, measure.most)
    return any(value is not None for value in figures) or bool(measure.others)


def _view(measure: Measure) -> MeasureView:
    kind = KINDS[measure.unit]
    of = measure.efficiency
    return MeasureView(
        name=NAMES[measure.name],
        asked=figure(measure.asked, kind),
        median=figure(measure.median, kind),
        most=figure(measure.most, kind),
        share=ABSENT if of is None else share(of),
        filled=None if of is None else round(min(1.0, max(0.0, of)) * 100, 2),
        tone=_tone(measure.name, of),
        source=printable(measure.source),
        others=tuple(_other(one, kind) for one in measure.others),
    )


def _tone(name: Name, efficiency: float | None) -> str:
    if efficiency is None:
        return "none"
    if efficiency > _TIGHT and name in _LIMITED:
        return "tight"
    return "fine" if efficiency >= _LOOSE else "loose"


def _other(other: Figure, kind: Kind) -> str:
    said = f"{other.source} says {figure(other.value, kind)}"
    return printable(said if other.word is None else f"{said}: {other.word}")
