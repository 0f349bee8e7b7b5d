"""What an estimate comes to: what each card holds, the best size, the full job."""

import math

import msgspec

from weigh.estimate.accumulation import Accumulation, accumulate
from weigh.estimate.capacity import Holding
from weigh.estimate.curve import Inverse
from weigh.estimate.doubts import doubts, next_size
from weigh.estimate.estimate import Estimate
from weigh.estimate.fit import Fit, Quantity
from weigh.estimate.speed import share_of_best
from weigh.units import Bytes, Seconds

GPU, HOST = "gpu_memory", "memory"


class Limit(msgspec.Struct, frozen=True):
    """A memory to fit in, and what the user calls it."""

    name: str
    memory: Bytes
    of: Quantity


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to know; ``near`` and ``level`` are shares."""

    target: float | None = None
    limits: tuple[Limit, ...] = ()
    near: float = 0.95
    level: float = 0.95


class Row(msgspec.Struct, frozen=True):
    """One size as measured: the most memory, the middle time, how many runs."""

    size: float
    runs: int
    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    time: Seconds | None = None
    time_per_sample: Seconds | None = None


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one size needs: what to expect, and the bound to ask for."""

    size: float
    gpu_memory: Bytes | None = None
    gpu_memory_upper: Bytes | None = None
    memory: Bytes | None = None
    memory_upper: Bytes | None = None
    time: Seconds | None = None
    time_upper: Seconds | None = None
    why: tuple[str, ...] = ()


class Card(msgspec.Struct, frozen=True):
    """What a limit holds, and how to reach the target where it does not fit."""

    limit: Limit
    holding: Holding
    fits_target: bool | None = None
    accumulation: Accumulation | None = None


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``scan`` and ``fit`` print.

    ``best_size`` is the smallest with ``near`` of the best speed, ``recommended`` what
    of that fits the smallest card; None where the size is no matter of speed.
    ``speeds`` are shares of the best speed at the measured sizes.
    """

    estimate: Estimate
    wanted: Wanted
    rows: tuple[Row, ...]
    cards: tuple[Card, ...] = ()
    best_size: int | None = None
    speeds: tuple[float, ...] = ()
    recommended: Need | None = None
    target: Need | None = None
    why: tuple[str, ...] = ()
    next_size: int | None = None


def advise(estimate: Estimate, wanted: Wanted) -> Advice:
    """Work out what *estimate* says to *wanted*.

    Raises:
        UsageError: a limit is of a quantity that was not measured.
    """
    cards = tuple(_card(estimate, limit, wanted) for limit in wanted.limits)
    timed = estimate.time_per_sample or estimate.time
    quicker = timed is not None and isinstance(timed.curve, Inverse)
    best = estimate.best_size(wanted.near) if timed and quicker else None
    recommended = _recommended(estimate, wanted, cards, best) if quicker else None
    target = wanted.target
    curve = estimate.fit_of() if _has_memory(estimate) else None
    why = tuple(
        dict.fromkeys(
            (
                *(doubts(curve, target) if curve else ()),
                *(reason for card in cards for reason in card.holding.why),
            )
        )
    )
    return Advice(
        estimate=estimate,
        wanted=wanted,
        rows=rows(estimate),
        cards=cards,
        best_size=best,
        speeds=tuple(share_of_best(timed, point.x) for point in timed.points)
        if timed and quicker
        else (),
        recommended=recommended,
        target=None if target is None else need(estimate, target, wanted.level),
        why=why,
        next_size=_next(curve, target, cards) if curve and why else None,
    )


def rows(estimate: Estimate) -> tuple[Row, ...]:
    """Return what was measured, size by size."""
    at = {
        quantity: {point.x: point for point in made.points}
        for quantity in (GPU, HOST, "time", "time_per_sample")
        if (made := getattr(estimate, quantity)) is not None
    }
    sizes = sorted({x for points in at.values() for x in points})
    return tuple(
        Row(
            size=x,
            runs=max(points[x].runs for points in at.values() if x in points),
            **{name: points[x].y for name, points in at.items() if x in points},
        )
        for x in sizes
    )


def need(estimate: Estimate, size: float, level: float) -> Need:
    """Return what *size* needs, with bounds of *level*."""
    gpu, host, timed = estimate.gpu_memory, estimate.memory, estimate.time
    first = gpu or host or timed
    return Need(
        size=size,
        gpu_memory=None if gpu is None else math.ceil(gpu.predict(size)),
        gpu_memory_upper=None if gpu is None else math.ceil(gpu.upper(size, level)),
        memory=None if host is None else math.ceil(host.predict(size)),
        memory_upper=None if host is None else math.ceil(host.upper(size, level)),
        time=None if timed is None else timed.predict(size),
        time_upper=None if timed is None else timed.upper(size, level),
        why=() if first is None else doubts(first, size),
    )


def _has_memory(estimate: Estimate) -> bool:
    return not (estimate.gpu_memory is None and estimate.memory is None)


def _card(estimate: Estimate, limit: Limit, wanted: Wanted) -> Card:
    held = estimate.holding(limit.memory, wanted.level, limit.of)
    target, size = wanted.target, held.size or 0
    if target is None:
        return Card(limit, held)
    fits = held.unbounded or size >= target
    batch = target.is_integer() and not fits
    return Card(
        limit, held, fits, accumulate(int(target), size) if batch and size else None
    )


def _recommended(
    estimate: Estimate, wanted: Wanted, cards: tuple[Card, ...], best: int | None
) -> Need | None:
    """Take the size near the best speed, or what the smallest card holds below it."""
    room = [
        card.holding.size
        for card in cards
        if card.holding.size is not None and not card.holding.unbounded
    ]
    sizes = [size for size in (best, *room) if size is not None]
    if estimate.failed is not None:
        sizes.append(math.ceil(estimate.failed) - 1)
    return need(estimate, min(sizes), wanted.level) if sizes else None


def _next(curve: Fit, target: float | None, cards: tuple[Card, ...]) -> int:
    sizes = [card.holding.size for card in cards if card.holding.size]
    wanted = [card.holding.next_size for card in cards if card.holding.next_size]
    if wanted and target is None:
        return min(wanted)
    return next_size(curve, wanted=target, fits=min(sizes, default=None))
