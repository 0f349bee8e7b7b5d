"""How the time of a program falls with its CPUs, and how many of them pay.

Amdahl's law, ``t(n) = a + b / n``, and with at least four numbers of CPUs an overhead
``c (n - 1)`` if it explains the times much better. None of the three is negative. Each
time counts with weight 1/t, so that short ones matter as much as long ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import msgspec

from weigh.model.record import Request
from weigh.units import Seconds

SCHEMA = "weigh.cpu_scan/1"
_ENOUGH_FOR_OVERHEAD = 4
_BETTER = 0.5  # of the residual without an overhead
_LEAST_NOISE = 0.03  # of a time: two runs rarely agree more closely
_MOST_SIGNS = 8  # times that are moved up and down by the noise


class Scaling(msgspec.Struct, frozen=True):
    """Seconds that stay (``serial``), that are divided, and that each CPU adds."""

    serial: Seconds
    divided: Seconds
    overhead: Seconds = 0.0

    def time(self, cpus: int) -> Seconds:
        """Return the predicted time on *cpus*."""
        return self.serial + self.divided / cpus + self.overhead * (cpus - 1)

    def efficiency(self, cpus: int) -> float:
        """Return the speed-up over one CPU, per CPU."""
        time = self.time(cpus)
        return self.time(1) / (cpus * time) if time > 0 else 0.0

    def most(self, efficiency: float, limit: int) -> int:
        """Return the most CPUs up to *limit* that are used with *efficiency*."""
        enough = (n for n in range(limit, 1, -1) if self.efficiency(n) >= efficiency)
        return next(enough, 1)


class Answer(msgspec.Struct, frozen=True):
    """The law, the CPUs that pay, and the range of those with the noise of the times.

    ``limit`` is the most CPUs that were measured: beyond it nothing is known.
    """

    scaling: Scaling
    cpus: int
    low: int
    high: int
    limit: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The runs on one number of CPUs: median wall time, and time without the wait.

    ``efficiency`` is the speed-up over one CPU, per CPU; ``is_beyond``: more than the
    CPUs here, so the time is what it would be at best.
    """

    cpus: int
    wall_time: Seconds
    alone: Seconds
    efficiency: float
    is_beyond: bool = False


class CpuScan(msgspec.Struct, frozen=True, kw_only=True):
    """A finished scan; ``answer`` and ``request`` are None if too few sizes ran."""

    label: str
    rows: tuple[Row, ...]
    efficiency: float
    answer: Answer | None = None
    request: Request | None = None
    exit_code: int = 0
    planned: tuple[tuple[str, ...], ...] = ()
    schema: str = SCHEMA


def fit_scaling(times: Mapping[int, Seconds]) -> Scaling:
    """Fit the law to the *times* on two or more different numbers of CPUs."""
    plain = _fitted(times, has_overhead=False)
    if len(times) < _ENOUGH_FOR_OVERHEAD:
        return plain
    with_overhead = _fitted(times, has_overhead=True)
    if _residual(with_overhead, times) < _BETTER * _residual(plain, times):
        return with_overhead
    return plain


def cpus_that_pay(times: Mapping[int, Seconds], efficiency: float) -> Answer:
    """Return the most CPUs that are used with *efficiency*, with their range."""
    made = fit_scaling(times)
    limit = max(times)
    noise = max(_LEAST_NOISE, _residual(made, times) ** 0.5)
    found = [
        fit_scaling(moved).most(efficiency, limit) for moved in _moved(times, noise)
    ]
    cpus = made.most(efficiency, limit)
    return Answer(made, cpus, min(cpus, *found), max(cpus, *found), limit)


def _moved(
    times: Mapping[int, Seconds], noise: float
) -> Iterator[Mapping[int, Seconds]]:
    """Yield the times, each shorter or longer by the noise."""
    names = sorted(times)[:_MOST_SIGNS]
    for signs in product((-1, 1), repeat=len(names)):
        factors = dict(zip(names, signs, strict=True))
        yield {n: t * (1 + noise * factors.get(n, 0)) for n, t in times.items()}


def _residual(made: Scaling, times: Mapping[int, Seconds]) -> float:
    """Return the mean squared relative error."""
    errors = ((made.time(n) / t - 1) ** 2 for n, t in times.items() if t > 0)
    return sum(errors) / max(1, len(times))


def _fitted(times: Mapping[int, Seconds], *, has_overhead: bool) -> Scaling:
    """Return the best law whose parts are not negative: parts are left out in turn."""
    columns: list[Callable[[int], float]] = [lambda _: 1.0, lambda n: 1 / n]
    if has_overhead:
        columns.append(lambda n: n - 1.0)
    best, least = Scaling(min(times.values()), 0.0), float("inf")
    for kept in product((True, False), repeat=len(columns)):
        parts = _least_squares(
            [one for one, is_kept in zip(columns, kept, strict=True) if is_kept], times
        )
        if parts is None or min(parts, default=-1.0) < 0:
            continue
        rest = iter(parts)
        made = Scaling(*(next(rest) if is_kept else 0.0 for is_kept in kept))
        residual = _residual(made, times)
        if residual < least:
            best, least = made, residual
    return best


def _least_squares(
    columns: Sequence[Callable[[int], float]], times: Mapping[int, Seconds]
) -> list[float] | None:
    """Solve the normal equations, weighted by 1/t; None if there is no one solution."""
    rows = [
        ([column(n) / t for column in columns], 1.0) for n, t in times.items() if t > 0
    ]
    size = len(columns)
    matrix = [
        [sum(row[i] * row[j] for row, _ in rows) for j in range(size)]
        + [sum(row[i] * y for row, y in rows)]
        for i in range(size)
    ]
    for at in range(size):
        pivot = max(range(at, size), key=lambda i: abs(matrix[i][at]))
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        if abs(matrix[at][at]) < 1e-12:  # noqa: PLR2004 - of sums near 1
            return None
        for i in range(size):
            if i != at:
                factor = matrix[i][at] / matrix[at][at]
                matrix[i] = [
                    x - factor * y for x, y in zip(matrix[i], matrix[at], strict=True)
                ]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]
