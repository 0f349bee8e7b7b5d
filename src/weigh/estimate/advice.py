"""What an estimate comes to: what each card holds, the best size, the full job."""

import math

import msgspec

from weigh.estimate.capacity import Holding, doubts, next_size
from weigh.estimate.curve import Inverse
from weigh.estimate.estimate import Estimate, share_of_best
from weigh.estimate.fit import TRUSTED_RATIO, Fit, Quantity
from weigh.units import Bytes, Seconds


class Accumulation(msgspec.Struct, frozen=True):
    """``micro_batch * steps`` is the effective batch, exactly."""

    batch: int
    micro_batch: int
    steps: int


def accumulate(batch: int, largest: int) -> Accumulation | None:
    """Split *batch* into the fewest equal micro-batches of at most *largest*.

    None where one already holds it, or where nothing fits. Equal ones only: their
    gradients can be averaged without weights.
    """
    if largest < 1 or batch <= largest:
        return None
    steps = next(
        steps for steps in range(-(-batch // largest), batch + 1) if batch % steps == 0
    )
    return Accumulation(batch, batch // steps, steps)


GPU: Quantity = "gpu_memory"
HOST: Quantity = "memory"


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
    """What one size needs: what to expect, and the bound to ask for.

    ``why`` says what keeps the data from carrying one number there.
    """

    size: float
    gpu_memory: Bytes | None = None
    gpu_memory_upper: Bytes | None = None
    memory: Bytes | None = None
    memory_upper: Bytes | None = None
    time: Seconds | None = None
    time_upper: Seconds | None = None
    why: tuple[str, ...] = ()


class Card(msgspec.Struct, frozen=True):
    """What a limit holds, and how to reach the target where it does not fit.

    ``accumulation`` is for batches only: another size is not split so.
    """

    limit: Limit
    holding: Holding
    fits_target: bool | None = None
    accumulation: Accumulation | None = None


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``scan`` and ``fit`` print.

    ``best_size`` is the smallest with ``near`` of the best speed, None where the size
    is no matter of speed; ``recommended`` is that, or less where ``held_back`` says
    why. ``speeds`` are shares of the best speed at the measured sizes. ``why`` says
    what keeps the data from carrying numbers, ``next_size`` what would narrow them.
    """

    estimate: Estimate
    wanted: Wanted
    rows: tuple[Row, ...]
    cards: tuple[Card, ...] = ()
    best_size: int | None = None
    speeds: tuple[float, ...] = ()
    recommended: Need | None = None
    held_back: str | None = None
    target: Need | None = None
    why: tuple[str, ...] = ()
    next_size: int | None = None


def advise(estimate: Estimate, wanted: Wanted) -> Advice:
    """Work out what *estimate* says to *wanted*.

    Limits of a quantity that was not measured are passed over.
    """
    cards = tuple(
        _card(estimate, limit, wanted)
        for limit in wanted.limits
        if getattr(estimate, limit.of) is not None
    )
    timed = estimate.speed
    quicker = timed is not None and isinstance(timed.curve, Inverse)
    best = estimate.best_size(wanted.near) if quicker else None
    recommended, held_back = (
        _recommended(estimate, wanted, cards, best) if quicker else (None, None)
    )
    curve = estimate.fit_of() if _has_memory(estimate) else None
    why = doubts(curve, _farthest(wanted, cards)) if curve else ()
    return Advice(
        estimate=estimate,
        wanted=wanted,
        rows=rows(estimate),
        cards=cards,
        best_size=best,
        speeds=_speeds(timed) if timed and quicker else (),
        recommended=recommended,
        held_back=held_back,
        target=_target(estimate, wanted),
        why=why,
        next_size=_next(curve, wanted.target, cards) if curve and why else None,
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


def _target(estimate: Estimate, wanted: Wanted) -> Need | None:
    size = wanted.target
    return None if size is None else need(estimate, size, wanted.level)


def _speeds(timed: Fit) -> tuple[float, ...]:
    return tuple(share_of_best(timed, point.x) for point in timed.points)


def _card(estimate: Estimate, limit: Limit, wanted: Wanted) -> Card:
    held = estimate.holding(limit.memory, wanted.level, limit.of)
    target, size = wanted.target, held.size or 0
    if target is None:
        return Card(limit, held)
    fits = held.unbounded or size >= target
    split = None
    if _is_batch(estimate, limit) and float(target).is_integer() and not fits:
        split = accumulate(int(target), size)
    return Card(limit, held, fits, split)


def _is_batch(estimate: Estimate, limit: Limit) -> bool:
    """Tell whether gradients can be added up: of a batch, not of a file's size."""
    return "batch" in estimate.by.lower() and limit.of == GPU


def _recommended(
    estimate: Estimate, wanted: Wanted, cards: tuple[Card, ...], best: int | None
) -> tuple[Need | None, str | None]:
    """Take the size near the best speed, or the most below it that can be had.

    Of several GPUs one has to hold it; memory limits all have to.
    """
    timed = estimate.speed
    far = TRUSTED_RATIO * timed.largest_size if timed else math.inf
    choices = [(math.inf if best is None else best, None), *_held_back(estimate, cards)]
    choices.append(
        (far, f"{TRUSTED_RATIO} times the largest measured, as far as can be told")
    )
    size, why = min(choices, key=lambda choice: choice[0])
    if size < 1:
        return None, why
    return need(estimate, math.floor(size), wanted.level), why


def _held_back(
    estimate: Estimate, cards: tuple[Card, ...]
) -> list[tuple[float, str | None]]:
    """Return what memory allows, and the words for it."""
    gpus = [card for card in cards if card.limit.of == GPU]
    limits = [card for card in cards if card.limit.of == HOST]
    deciding = [max(gpus, key=_holds), *limits] if gpus else limits
    choices: list[tuple[float, str | None]] = [
        (_holds(card), f"what {card.limit.name} holds") for card in deciding
    ]
    for curve, asked in ((estimate.gpu_memory, gpus), (estimate.memory, limits)):
        if curve is not None and curve.failed is not None and not asked:
            below = math.ceil(curve.failed) - 1
            choices.append((below, f"{curve.failed:g} ran out of memory"))
    return choices


def _holds(card: Card) -> float:
    return math.inf if card.holding.unbounded else card.holding.size or 0


def _farthest(wanted: Wanted, cards: tuple[Card, ...]) -> float | None:
    """Return the size the screen speaks of that lies farthest from what was seen."""
    if wanted.target is not None:
        return wanted.target
    held = [card.holding for card in cards if not card.holding.unbounded]
    return max((one.at_most for one in held if one.at_most is not None), default=None)


def _next(curve: Fit, target: float | None, cards: tuple[Card, ...]) -> int:
    sizes = [card.holding.size for card in cards if card.holding.size]
    wanted = [card.holding.next_size for card in cards if card.holding.next_size]
    if wanted and target is None:
        return min(wanted)
    return next_size(curve, wanted=target, fits=max(sizes, default=None))
