"""Each resource: what an element asked for, beside what the elements used."""

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from weigh.flow.report.asked import Asked
from weigh.flow.report.elements import Element
from weigh.model.report import Measure, Name, Unit

_WHOLE = "as if each task ran alone: shared pages once, no page cache"
_CARD = "NVML, the fullest card"


class _Of(msgspec.Struct, frozen=True):
    """What a measure is of; ``typical`` ones are judged by their median."""

    name: Name
    unit: Unit
    asked: float | None
    source: str = "weigh"
    typical: bool = False


def measures(elements: Sequence[Element], asked: Asked) -> tuple[Measure, ...]:
    """Sum up what *elements* used, a measure a resource, known or not."""
    return tuple(_all(elements, asked))


def _all(elements: Sequence[Element], asked: Asked) -> Iterator[Measure]:
    ran = [one for one in elements if one.runs or one.wall_time]
    memory = [one.memory for one in ran]
    yield _measure(_Of("memory", "bytes", asked.memory, source=_WHOLE), memory)
    held = [one.gpu_memory for one in ran]
    card = asked.gpu_memory if asked.gpus or any(held) else None
    yield _measure(_Of("gpu_memory", "bytes", card, source=_CARD), held)
    cpus = [one.cpus for one in ran]
    yield _measure(_Of("cpus", "cpus", asked.cpus, typical=True), cpus)
    times = [one.wall_time for one in ran]
    yield _measure(_Of("time", "seconds", asked.time_limit), times)
    busy = [one.utilization for one in ran]
    yield _measure(_Of("gpu_utilization", "share", None, source="NVML"), busy)


def _measure(of: _Of, values: Sequence[float | None]) -> Measure:
    known = tuple(value for value in values if value is not None)
    median = statistics.median(known) if known else None
    most = max(known, default=None)
    judged = median if of.typical else most
    return Measure(
        name=of.name,
        unit=of.unit,
        asked=of.asked,
        median=median,
        most=most,
        efficiency=judged / of.asked if of.asked and judged is not None else None,
        source=of.source,
        values=known,
    )
