"""Estimate what a command needs at any size from records of a few sizes."""

import math
from collections.abc import Sequence

import msgspec

from weigh.errors import UsageError
from weigh.estimate.curve import (
    InverseCurve,
    MemoryFailure,
    check_size,
    gather_size_points,
)
from weigh.estimate.fit import (
    LEVEL,
    FittedCurve,
    FittingSizes,
    Quantity,
    fit_curve,
    sizes_that_fit,
)
from weigh.estimate.readings import ReadingsGroup, SizeReadings, read
from weigh.model.record import Record
from weigh.units import Bytes, parse_size

NEAR = 0.95  # share of the best speed that is near enough


def share_of_best(fitted_curve: FittedCurve, size: float) -> float:
    """Return the speed at *size* as a share of the best that any size would have."""
    if (
        not isinstance(fitted_curve.curve, InverseCurve)
        or fitted_curve.curve.floor <= 0
    ):
        # without a floor the fit has no best speed: the fastest size measured stands
        # for it
        return min(point.y for point in fitted_curve.points) / fitted_curve.curve.at(
            size
        )
    return fitted_curve.curve.floor / fitted_curve.curve.at(size)


def near_best(fitted_curve: FittedCurve, near: float = NEAR) -> int | None:
    """Return the smallest size with *near* of the best speed; None if none has it.

    From ``T(x) = floor + work / x``: ``x = work * near / (floor * (1 - near))``. If
    time does not fall with the size, the smallest measured size is as good as any; if
    it falls without a floor, no size is near the best.
    """
    curve = fitted_curve.curve
    if not isinstance(curve, InverseCurve):
        return math.ceil(fitted_curve.points[0].x)
    if curve.floor <= 0:
        return None
    return max(1, round(curve.work * near / (curve.floor * (1 - near))))


class SizeEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of memory, GPU memory and time against the size ``by``.

    They are fitted to ``records`` records of ``group``; ``notes`` lists what was left
    out.
    """

    by: str  # name of the size
    group: ReadingsGroup
    records: int  # that were fitted
    memory: FittedCurve | None = None
    gpu_memory: FittedCurve | None = None
    time: FittedCurve | None = None
    time_per_sample: FittedCurve | None = None
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> float | None:
        """Return the smallest size that ran out of memory, None if none did."""
        fits = [fit for fit in (self.memory, self.gpu_memory) if fit is not None]
        sizes = [fit.failed for fit in fits if fit.failed is not None]
        return min(sizes, default=None)

    @property
    def speed(self) -> FittedCurve | None:
        """Return the time per sample if batches were timed at each size, else the time.

        The wall time of a run includes its start-up, and does not measure speed if
        larger sizes do more work.
        """
        timed, whole = self.time_per_sample, self.time
        # a loop that was timed at some sizes only says less than the whole run at all
        if timed is not None and (
            whole is None or len(timed.points) >= len(whole.points)
        ):
            return timed
        return whole

    def fit_of(self, quantity: Quantity | None = None) -> FittedCurve:
        """Return one curve; by default GPU memory if it was measured, else memory.

        Raises:
            UsageError: that quantity was not measured.
        """
        if quantity is None:
            quantity = "memory" if self.gpu_memory is None else "gpu_memory"
        found: FittedCurve | None = getattr(self, quantity)
        if found is None:
            hint = ": measure a run on a GPU" if quantity == "gpu_memory" else ""
            raise UsageError(f"{quantity} was not measured in these records{hint}")
        return found

    def predict(self, size: float, quantity: Quantity | None = None) -> float:
        """Return the prediction at size *size*: whole bytes, or seconds.

        Raises:
            UsageError: *size* is not a size, or the quantity was not measured.
        """
        found = self.fit_of(quantity)
        return _whole_value(found, found.predict(check_size(size)))

    def upper(
        self, size: float, level: float = LEVEL, quantity: Quantity | None = None
    ) -> float:
        """Return the upper bound of the use at size *size*, at confidence *level*.

        Raises:
            UsageError: *size* is not a size, *level* is not a probability, or the
                quantity
                was not measured.
        """
        found = self.fit_of(quantity)
        return _whole_value(found, found.upper(check_size(size), _checked_level(level)))

    def largest(
        self,
        memory: Bytes | str,
        level: float = LEVEL,
        quantity: Quantity | None = None,
    ) -> int | float:
        """Return the largest whole size whose upper bound fits in *memory*.

        *memory* is bytes, or text such as ``30GiB``. Return 0 if nothing fits, infinity
        if memory does not grow with the size.

        Raises:
            UsageError: *level* is not a probability, or the quantity was not measured.
            FormatError: *memory* is not a size.
        """
        held = self.holding(memory, level, quantity)
        return math.inf if held.unbounded else held.size or 0

    def holding(
        self,
        memory: Bytes | str,
        level: float = LEVEL,
        quantity: Quantity | None = None,
    ) -> FittingSizes:
        """Return the sizes that fit in *memory*, with the reasons not to trust one.

        Raises:
            UsageError: *level* is not a probability, or the quantity was not measured.
            FormatError: *memory* is not a size.
        """
        room = parse_size(memory) if isinstance(memory, str) else memory
        return sizes_that_fit(self.fit_of(quantity), room, _checked_level(level))

    def best_size(self, near: float = NEAR) -> int | None:
        """Return the smallest size with *near* of the best speed; None if none has it.

        The speed is the time per sample if batches were timed, else the wall time.

        Raises:
            UsageError: *near* is not between 0 and 1, or no time was measured.
        """
        return near_best(self.speed or self.fit_of("time"), _checked_level(near))


def estimate(records: Sequence[Record], size_name: str) -> SizeEstimate:
    """Fit the records of one command against the parameter *size_name*.

    *size_name* may be a product: ``batch_size*length``.

    Raises:
        UsageError: no such parameter, only one size, or sizes that are not numbers.
    """
    names = [name.strip() for name in size_name.split("*")]
    if not all(names):
        raise UsageError(f"{size_name!r} names no parameter (write it like batch_size)")
    readings = read(records, names)
    sizes = sorted({row.x for row in readings.rows})
    if len(sizes) <= 1:
        there = f"one distinct size ({sizes[0]:g})" if sizes else "no finished run"
        raise UsageError(
            f"{readings.by}: {there}; a curve needs two sizes, better three"
        )
    return SizeEstimate(
        by=readings.by,
        group=readings.group,
        records=len(readings.completed),
        memory=_fit_of_quantity(readings, "memory", readings.memory_failure),
        gpu_memory=_fit_of_quantity(readings, "gpu_memory", readings.gpu_failure),
        time=_fit_of_quantity(readings, "time"),
        time_per_sample=_fit_of_quantity(readings, "time_per_sample"),
        notes=readings.notes,
    )


def _fit_of_quantity(
    readings: SizeReadings, quantity: Quantity, failure: MemoryFailure | None = None
) -> FittedCurve | None:
    measured = [(row.x, getattr(row, quantity)) for row in readings.rows]
    pairs = [(x, float(y)) for x, y in measured if y is not None]
    if len({x for x, _ in pairs}) <= 1:
        return None
    timed = quantity in {"time", "time_per_sample"}
    # the model is the same at every size
    bases = [row.gpu_base for row in readings.rows if row.gpu_base is not None]
    # a request must cover the largest run; a time is typical in the middle
    points = gather_size_points(pairs, keep="middle" if timed else "most")
    return fit_curve(
        points,
        quantity,
        base=max(bases, default=None) if quantity == "gpu_memory" else None,
        failure=failure,
    )


def _whole_value(fitted_curve: FittedCurve, value: float) -> float:
    # half a byte cannot be requested, and rounding down would be too little
    return math.ceil(value) if "memory" in fitted_curve.quantity else value


def _checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise UsageError(f"{level!r} is not a share between 0 and 1, such as 0.95")
    return level
