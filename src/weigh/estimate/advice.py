"""Advice from an estimate: the largest size per GPU, the best size, the full job."""

import math

import msgspec

from weigh.estimate.curve import InverseCurve
from weigh.estimate.estimate import NEAR, SizeEstimate, share_of_best
from weigh.estimate.fit import (
    LEVEL,
    TRUSTED_RATIO,
    FittedCurve,
    FittingSizes,
    Quantity,
    caveats,
    next_size,
)
from weigh.units import Bytes, Seconds


class GradientAccumulation(msgspec.Struct, frozen=True):
    """``micro_batch * steps`` is the effective batch, exactly."""

    batch: int  # samples
    micro_batch: int  # samples in one step
    steps: int


def accumulate(batch: int, largest: int) -> GradientAccumulation | None:
    """Split *batch* into the fewest equal micro-batches of at most *largest*.

    Return None if the batch fits unsplit, or if nothing fits. The micro-batches are
    equal, so that their gradients can be averaged without weights.
    """
    if largest < 1 or batch <= largest:
        return None
    # a divisor of the batch: from the fewest steps that fit, up to one sample each
    steps = next(
        steps for steps in range(-(-batch // largest), batch + 1) if batch % steps == 0
    )
    return GradientAccumulation(batch, batch // steps, steps)


GPU: Quantity = "gpu_memory"
HOST: Quantity = "memory"


class MemoryLimit(msgspec.Struct, frozen=True):
    """A memory limit, and the name that the user has for it."""

    name: str
    memory: Bytes
    of: Quantity


class FitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a fit."""

    target: float | None = None  # the size to answer for, None: only what was measured
    limits: tuple[MemoryLimit, ...] = ()


class MeasuredSize(msgspec.Struct, frozen=True):
    """One measured size: its peak memory, median time and number of runs."""

    size: float
    runs: int
    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    time: Seconds | None = None
    time_per_sample: Seconds | None = None


class SizeNeed(msgspec.Struct, frozen=True, kw_only=True):
    """What one size needs: the prediction, and the upper bound to request.

    ``why`` lists the reasons not to trust a single number there.
    """

    size: float
    gpu_memory: Bytes | None = None
    gpu_memory_upper: Bytes | None = None
    memory: Bytes | None = None
    memory_upper: Bytes | None = None
    time: Seconds | None = None
    time_upper: Seconds | None = None
    why: tuple[str, ...] = ()


class SizesWithinLimit(msgspec.Struct, frozen=True):
    """The sizes that fit a limit, and how to reach a target that does not fit.

    ``accumulation`` is set for batches only: other sizes cannot be split.
    """

    limit: MemoryLimit
    holding: FittingSizes
    fits_target: bool | None = None  # None: there is no target
    accumulation: GradientAccumulation | None = None


# keys of the published JSON document, which keep their old names
_JSON_KEYS = {"options": "wanted", "capacities": "cards"}


class ScanAdvice(msgspec.Struct, frozen=True, kw_only=True, rename=_JSON_KEYS):
    """Everything that ``scan`` prints.

    ``best_size`` is the smallest size with 95 % of the best speed, None if the size
    does not change the speed. ``recommended`` is that size, or a smaller one for the
    reason in ``held_back``. ``speeds`` are shares of the best speed at the measured
    sizes. ``why`` lists the reasons not to trust a single number, and a measurement at
    ``next_size`` would narrow the range.
    """

    estimate: SizeEstimate
    options: FitOptions
    rows: tuple[MeasuredSize, ...]
    capacities: tuple[SizesWithinLimit, ...] = ()
    best_size: int | None = None
    speeds: tuple[float, ...] = ()
    recommended: SizeNeed | None = None
    held_back: str | None = None  # None: nothing holds it back
    target: SizeNeed | None = None
    why: tuple[str, ...] = ()
    next_size: int | None = None


def advise_from_estimate(estimate: SizeEstimate, options: FitOptions) -> ScanAdvice:
    """Answer *options* from *estimate*.

    Limits of a quantity that was not measured are ignored.
    """
    capacities = tuple(
        _sizes_within_limit(estimate, limit, options)
        for limit in options.limits
        if getattr(estimate, limit.of) is not None
    )
    timed = estimate.speed if is_size_free(estimate, options) else None
    # only a time that falls with the size makes a larger size better
    quicker = timed is not None and isinstance(timed.curve, InverseCurve)
    best = estimate.best_size(NEAR) if quicker else None
    recommended, held_back = (
        _recommended_size(estimate, capacities, best) if quicker else (None, None)
    )
    curve = estimate.fit_of() if estimate.gpu_memory or estimate.memory else None
    why = caveats(curve, _farthest(options, capacities)) if curve else ()
    return ScanAdvice(
        estimate=estimate,
        options=options,
        rows=rows(estimate),
        capacities=capacities,
        best_size=best,
        speeds=tuple(share_of_best(timed, point.x) for point in timed.points)
        if timed and quicker
        else (),
        recommended=recommended,
        held_back=held_back,
        target=None if options.target is None else need(estimate, options.target),
        why=why,
        next_size=_next_size_to_measure(curve, options.target, capacities)
        if curve and why
        else None,
    )


def rows(estimate: SizeEstimate) -> tuple[MeasuredSize, ...]:
    """Return the measurements of each size."""
    # a quantity may lack some of the sizes that others have
    at = {
        quantity: {point.x: point for point in made.points}
        for quantity in (GPU, HOST, "time", "time_per_sample")
        if (made := getattr(estimate, quantity)) is not None
    }
    sizes = sorted({x for points in at.values() for x in points})
    return tuple(
        MeasuredSize(
            size=x,
            runs=max(points[x].runs for points in at.values() if x in points),
            **{name: points[x].y for name, points in at.items() if x in points},
        )
        for x in sizes
    )


def need(estimate: SizeEstimate, size: float) -> SizeNeed:
    """Return what *size* needs, with upper bounds at 95 %."""
    gpu, host, timed = estimate.gpu_memory, estimate.memory, estimate.time
    # doubts of the quantity that usually limits the size
    first = gpu or host or timed
    return SizeNeed(
        size=size,
        gpu_memory=None if gpu is None else math.ceil(gpu.predict(size)),
        gpu_memory_upper=None if gpu is None else math.ceil(gpu.upper(size, LEVEL)),
        memory=None if host is None else math.ceil(host.predict(size)),
        memory_upper=None if host is None else math.ceil(host.upper(size, LEVEL)),
        time=None if timed is None else timed.predict(size),
        time_upper=None if timed is None else timed.upper(size, LEVEL),
        why=() if first is None else caveats(first, size),
    )


def _sizes_within_limit(
    estimate: SizeEstimate, limit: MemoryLimit, options: FitOptions
) -> SizesWithinLimit:
    held = estimate.holding(limit.memory, LEVEL, limit.of)
    target, size = options.target, held.size or 0
    if target is None:
        return SizesWithinLimit(limit, held)
    fits = held.unbounded or size >= target
    split = None
    # a part of a sample cannot be split
    # a batch on a GPU, whose gradients can be summed
    is_batch = limit.of == GPU and _is_batch(estimate)
    if is_batch and float(target).is_integer() and not fits:
        split = accumulate(int(target), size)
    return SizesWithinLimit(limit, held, fits, split)


def _is_batch(estimate: SizeEstimate) -> bool:
    return "batch" in estimate.by.lower()


def is_size_free(estimate: SizeEstimate, options: FitOptions) -> bool:
    """Return whether a size may be chosen for its speed.

    A target is chosen already, and sizes other than batches are given by the work.
    """
    return options.target is None and _is_batch(estimate)


def _recommended_size(
    estimate: SizeEstimate,
    capacities: tuple[SizesWithinLimit, ...],
    best: int | None,
) -> tuple[SizeNeed | None, str | None]:
    """Choose the size near the best speed, or the largest below it that fits.

    It must fit one of several GPUs, but all limits of host memory.
    """
    timed = estimate.speed
    # beyond that not even the time is trusted
    far = TRUSTED_RATIO * timed.largest_size if timed else math.inf
    choices = [
        (math.inf if best is None else best, None),
        *_held_back(estimate, capacities),
    ]
    choices.append(
        (far, f"{TRUSTED_RATIO} times the largest measured, the limit of predictions")
    )
    size, why = min(choices, key=lambda choice: choice[0])
    if size < 1:
        return None, why
    return need(estimate, math.floor(size)), why


def _held_back(
    estimate: SizeEstimate, capacities: tuple[SizesWithinLimit, ...]
) -> list[tuple[float, str | None]]:
    """Return the sizes that memory allows, each with the reason in words."""
    # a job takes one of the GPUs, so the roomiest decides; the host's limits all apply
    gpus = [capacity for capacity in capacities if capacity.limit.of == GPU]
    limits = [capacity for capacity in capacities if capacity.limit.of == HOST]
    deciding = [max(gpus, key=_largest_held_size), *limits] if gpus else limits
    choices: list[tuple[float, str | None]] = [
        (_largest_held_size(capacity), f"what {capacity.limit.name} holds")
        for capacity in deciding
    ]
    for curve, given in ((estimate.gpu_memory, gpus), (estimate.memory, limits)):
        # a failure counts only where no limit was given: limits have taken it into
        # account
        if curve is not None and curve.failed is not None and not given:
            below = math.ceil(curve.failed) - 1
            choices.append((below, f"{curve.failed:g} ran out of memory"))
    return choices


def _largest_held_size(capacity: SizesWithinLimit) -> float:
    return math.inf if capacity.holding.unbounded else capacity.holding.size or 0


def _farthest(
    options: FitOptions, capacities: tuple[SizesWithinLimit, ...]
) -> float | None:
    """Return the largest size that the screen mentions: the target, or what fits."""
    if options.target is not None:
        return options.target
    held = [
        capacity.holding for capacity in capacities if not capacity.holding.unbounded
    ]
    return max((one.at_most for one in held if one.at_most is not None), default=None)


def _next_size_to_measure(
    curve: FittedCurve, target: float | None, capacities: tuple[SizesWithinLimit, ...]
) -> int:
    sizes = [capacity.holding.size for capacity in capacities if capacity.holding.size]
    proposed = [
        capacity.holding.next_size
        for capacity in capacities
        if capacity.holding.next_size
    ]
    # without a target the tightest limit is the one to narrow down first
    if proposed and target is None:
        return min(proposed)
    return next_size(curve, wanted=target, fits=max(sizes, default=None))
