"""What a command needs at any size, from the records of a few."""

import math
from collections.abc import Sequence

import msgspec

from weigh.errors import UsageError
from weigh.estimate.capacity import Holding, holding
from weigh.estimate.curve import Inverse
from weigh.estimate.fit import Fit, Quantity, backtest, fit
from weigh.estimate.readings import Group, Reading, Readings, products, read
from weigh.estimate.samples import Failure, check_size, gather
from weigh.model.record import Record
from weigh.units import Bytes, parse_size


def share_of_best(fit: Fit, x: float) -> float:
    """Return the speed at size *x* as a share of the best that any size would have."""
    if not isinstance(fit.curve, Inverse) or fit.curve.floor <= 0:
        return min(point.y for point in fit.points) / fit.curve.at(x)
    return fit.curve.floor / fit.curve.at(x)


def near_best(fit: Fit, near: float = 0.95) -> int | None:
    """Return the smallest size with *near* of the best speed; None where none has.

    From ``T(x) = floor + work / x``: ``x = work * near / (floor * (1 - near))``. Where
    time does not come down with the size the smallest measured one is as good as any;
    where it comes down without end, None.
    """
    curve = fit.curve
    if not isinstance(curve, Inverse):
        return math.ceil(fit.points[0].x)
    if curve.floor <= 0:
        return None
    return max(1, round(curve.work * near / (curve.floor * (1 - near))))


_FEWEST = 2
_BETTER = 0.8  # a product of parameters has to explain a fifth more than one alone


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of memory, GPU memory and time against the size ``by``.

    ``records`` and ``group`` say what it rests on, ``notes`` what was left out.
    """

    by: str
    group: Group
    records: int
    memory: Fit | None = None
    gpu_memory: Fit | None = None
    time: Fit | None = None
    time_per_sample: Fit | None = None
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> float | None:
        """Return the smallest size that ran out of memory, None where none did."""
        fits = [fit for fit in (self.memory, self.gpu_memory) if fit is not None]
        sizes = [fit.failed for fit in fits if fit.failed is not None]
        return min(sizes, default=None)

    @property
    def speed(self) -> Fit | None:
        """Return the time a sample where each size's batches were timed, else the time.

        The wall time of a run has its start-up in it, and is no measure of speed where
        larger sizes do more work.
        """
        timed, whole = self.time_per_sample, self.time
        if timed is not None and (
            whole is None or len(timed.points) >= len(whole.points)
        ):
            return timed
        return whole

    def fit_of(self, quantity: Quantity | None = None) -> Fit:
        """Return one curve; without a name GPU memory where measured, else memory.

        Raises:
            UsageError: that quantity was not measured.
        """
        if quantity is None:
            quantity = "memory" if self.gpu_memory is None else "gpu_memory"
        found: Fit | None = getattr(self, quantity)
        if found is None:
            hint = " (it takes a run on a GPU)" if quantity == "gpu_memory" else ""
            raise UsageError(f"{quantity} was not measured in these records{hint}")
        return found

    def predict(self, x: float, quantity: Quantity | None = None) -> float:
        """Return what to expect at size *x*: whole bytes, or seconds.

        Raises:
            UsageError: *x* is no size, or the quantity was not measured.
        """
        found = self.fit_of(quantity)
        return _whole(found, found.predict(check_size(x)))

    def upper(
        self, x: float, level: float = 0.95, quantity: Quantity | None = None
    ) -> float:
        """Return what the use at size *x* stays below with *level*.

        Raises:
            UsageError: *x* is no size, *level* no probability, or not measured.
        """
        found = self.fit_of(quantity)
        return _whole(found, found.upper(check_size(x), _level(level)))

    def largest(
        self,
        memory: Bytes | str,
        level: float = 0.95,
        quantity: Quantity | None = None,
    ) -> int | float:
        """Return the largest whole size whose upper bound fits in *memory*.

        *memory* is bytes, or text such as ``30GiB``. 0 where nothing fits, infinity
        where memory does not grow with the size.

        Raises:
            UsageError: *level* is no probability, or not measured.
            FormatError: *memory* is no size.
        """
        held = self.holding(memory, level, quantity)
        return math.inf if held.unbounded else held.size or 0

    def holding(
        self,
        memory: Bytes | str,
        level: float = 0.95,
        quantity: Quantity | None = None,
    ) -> Holding:
        """Return what *memory* holds, with the reasons not to trust one number.

        Raises:
            UsageError: *level* is no probability, or not measured.
            FormatError: *memory* is no size.
        """
        room = parse_size(memory) if isinstance(memory, str) else memory
        return holding(self.fit_of(quantity), room, _level(level))

    def best_size(self, near: float = 0.95) -> int | None:
        """Return the smallest size with *near* of the best speed; None: none has.

        From the time a sample where batches were measured, else from the wall time.

        Raises:
            UsageError: *near* is not between 0 and 1, or no time was measured.
        """
        return near_best(self.speed or self.fit_of("time"), _level(near))


def estimate(records: Sequence[Record], by: str) -> Estimate:
    """Fit the records of one command against the parameter *by*.

    *by* may name several: ``batch_size*length`` is their product, and of
    ``batch_size,length`` the one or the product that explains memory best is taken.

    Raises:
        UsageError: no such parameter, one size only, sizes that are no numbers.
    """
    made = [_estimate(read(records, names)) for names in _choices(by)]
    best = made[0]
    for other in made[1:]:
        if _misfit(other) < _BETTER * _misfit(best):
            best = other
    return best


def _choices(by: str) -> list[tuple[str, ...]]:
    if "*" in by:
        return [tuple(_names(by, "*"))]
    return list(products(_names(by, ",")))


def _names(by: str, separator: str) -> list[str]:
    names = [name.strip() for name in by.split(separator)]
    if not all(names):
        raise UsageError(f"{by!r} names no parameter (write it like batch_size)")
    return names


def _estimate(readings: Readings) -> Estimate:
    sizes = sorted({row.x for row in readings.rows})
    if len(sizes) < _FEWEST:
        there = f"one distinct size ({sizes[0]:g})" if sizes else "no finished run"
        raise UsageError(
            f"{readings.by}: {there}; a curve takes two sizes, better three"
        )
    return Estimate(
        by=readings.by,
        group=readings.group,
        records=readings.records,
        memory=_fit(readings, "memory", readings.memory_failure),
        gpu_memory=_fit(readings, "gpu_memory", readings.gpu_failure),
        time=_fit(readings, "time"),
        time_per_sample=_fit(readings, "time_per_sample"),
        notes=readings.notes,
    )


def _fit(
    readings: Readings, quantity: Quantity, failure: Failure | None = None
) -> Fit | None:
    measured = [(row.x, getattr(row, quantity)) for row in readings.rows]
    pairs = [(x, float(y)) for x, y in measured if y is not None]
    if len({x for x, _ in pairs}) < _FEWEST:
        return None
    timed = quantity in {"time", "time_per_sample"}
    points = gather(pairs, keep="middle" if timed else "most")
    return fit(
        points,
        quantity,
        base=_base(readings.rows) if quantity == "gpu_memory" else None,
        failure=failure,
        scores=() if timed else backtest(points),
    )


def _base(rows: Sequence[Reading]) -> float | None:
    return max((row.gpu_base for row in rows if row.gpu_base is not None), default=None)


def _misfit(made: Estimate) -> float:
    """Return the mean relative error of the memory curve at what was measured."""
    curve = made.fit_of()
    return sum(abs(curve.curve.at(p.x) - p.y) / p.y for p in curve.points) / len(
        curve.points
    )


def _whole(found: Fit, value: float) -> float:
    return math.ceil(value) if "memory" in found.quantity else value


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise UsageError(f"{level!r} is no share between 0 and 1, such as 0.95")
    return level
