"""Round numbers for axes: powers of two for bytes, 1, 2 and 5 for the rest."""

import math
from collections.abc import Iterator

_FEW = 4
_STEPS = (1, 2, 5, 10)
_CLOCK: tuple[int, ...] = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_CLOCK += (3600, 7200, 14400, 21600, 43200, 86400)


def ticks(top: float, *, binary: bool, wanted: int = _FEW) -> tuple[float, ...]:
    """Give round numbers from 0 to *top* (above 0), about *wanted* of them."""
    step = _step(top / wanted, binary=binary)
    return tuple(step * i for i in range(int(top / step) + 1))


def clock_ticks(first: float, last: float, *, wanted: int) -> tuple[float, ...]:
    """Give round moments between *first* and *last* seconds, about *wanted* of them."""
    least = (last - first) / wanted
    if least < 1 or least > _CLOCK[-1]:
        step = _step(least or 1.0, binary=False)
    else:
        step = next(float(step) for step in _CLOCK if step >= least)
    return tuple(
        step * i for i in range(math.ceil(first / step), math.floor(last / step) + 1)
    )


def edges(low: float, high: float, *, binary: bool, wanted: int) -> tuple[float, ...]:
    """Give round edges of at most *wanted* and one bins that hold *low* to *high*."""
    step = _step((high - low) / wanted or high / wanted or 1.0, binary=binary)
    first = math.floor(low / step)
    last = max(first + 1, math.floor(high / step) + 1)
    return tuple(step * i for i in range(first, last + 1))


def _step(least: float, *, binary: bool) -> float:
    """Give the smallest round step that is no less than *least*."""
    if binary:
        return 2.0 ** math.ceil(math.log2(max(least, 1.0)))
    power = 10.0 ** math.floor(math.log10(least))
    return next(_at_least(power, least))


def _at_least(power: float, least: float) -> Iterator[float]:
    for step in _STEPS:
        if step * power >= least:
            yield step * power
    yield 20 * power
