"""What a task of a size that nobody measured needs, by curves through others."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard, get_args

import msgspec

from weigh.errors import UsageError
from weigh.estimate.curve import Constant
from weigh.estimate.estimate import Estimate, estimate
from weigh.estimate.fit import FEWEST_SIZES, Fit
from weigh.estimate.readings import products, read
from weigh.flow.plan.sizes import Sizes
from weigh.model.plan import Foretold, Quantity
from weigh.model.record import Record
from weigh.request import COMPLETED

_QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_MOST_NAMES = 4  # parameters to look into: their products double with each
_BETTER = 0.8  # a product has to explain a fifth more than a parameter alone
# what varies by a smaller share of the most, from size to size, is held for constant:
# runs differ by chance, two sizes tell nothing of that, and the headroom covers it
_STEADY = {"gpu_memory": 0.05, "memory": 0.05, "time": 0.15}
_STEADY_OF_TWO = {"gpu_memory": 0.1, "memory": 0.1, "time": 0.3}


class Curves:
    """The curves through records of commands that differ in their numbers."""

    def __init__(self, records: Sequence[Record], sizes: Sequence[Sizes]) -> None:
        """Take records and the sizes in the command of each."""
        self._records = [
            msgspec.structs.replace(record, command=(), parameters=dict(own))
            for record, own in zip(records, sizes, strict=True)
        ]
        self._made: dict[tuple[str, ...], Estimate | None] = {}
        names = list(_varying(sizes))[:_MOST_NAMES]
        self._fits: dict[Quantity, tuple[tuple[str, ...], Fit]] = {}
        for quantity in _QUANTITIES:
            found = self._best(quantity, names)
            if found is not None:
                self._fits[quantity] = found
        by = (name for names, _ in self._fits.values() for name in names)
        self.names = tuple(dict.fromkeys(by))
        self._told: dict[tuple[object, ...], tuple[Foretold, ...]] = {}
        self._measured: dict[tuple[object, ...], tuple[str, ...]] = {}
        for record in self._records:
            if record.state == COMPLETED:
                at = self._those_that_matter(record.parameters)
                self._measured[at] = (*self._measured.get(at, ()), record.id)

    def at(self, sizes: Sizes) -> tuple[Foretold, ...]:
        """Say what a task of *sizes* needs, of what grows with them."""
        wanted = self._those_that_matter(sizes)
        if wanted not in self._told:
            self._told[wanted] = tuple(self._at(sizes))
        return self._told[wanted]

    def measured(self, sizes: Sizes) -> tuple[str, ...]:
        """Give the ids of the runs at just these sizes, of those that matter."""
        wanted = self._those_that_matter(sizes)
        return () if None in wanted else self._measured.get(wanted, ())

    def _those_that_matter(self, sizes: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(sizes.get(name) for name in self.names)

    def _at(self, sizes: Sizes) -> Iterator[Foretold]:
        for quantity, (names, fit) in self._fits.items():
            if any(name not in sizes for name in names):
                continue
            size = 1.0
            for name in names:
                size *= sizes[name]
            yield Foretold(
                quantity=quantity,
                by="*".join(names),
                size=size,
                sizes=tuple(point.x for point in fit.points),
                runs=fit.runs,
                expected=fit.predict(size),
                bound=max(fit.upper(size), _too_little(fit, size)),
            )

    def _best(
        self, quantity: Quantity, names: Sequence[str]
    ) -> tuple[tuple[str, ...], Fit] | None:
        """Find the parameter, or the product of several, that explains *quantity*."""
        best: tuple[tuple[str, ...], Fit] | None = None
        least = 0.0
        for by in products(names):
            fit = self._fit(quantity, by)
            if not _grows(fit):
                continue
            misfit = self._misfit(fit, by)
            if best is None or misfit < _BETTER * least:
                best, least = (by, fit), misfit
        return best

    def _fit(self, quantity: Quantity, by: tuple[str, ...]) -> Fit | None:
        if by not in self._made:
            try:
                self._made[by] = estimate(self._records, "*".join(by))
            except UsageError:  # too few that completed, or of one size only
                self._made[by] = None
        made = self._made[by]
        found: Fit | None = None if made is None else getattr(made, quantity)
        return found

    def _misfit(self, fit: Fit, by: tuple[str, ...]) -> float:
        """Return the mean relative error at every run: also where others varied."""
        rows = read(self._records, by).rows
        pairs = [(fit.curve.at(row.x), getattr(row, fit.quantity)) for row in rows]
        errors = [float(abs(told - y) / y) for told, y in pairs if y]
        return sum(errors) / max(1, len(errors))


def _too_little(fit: Fit, size: float) -> float:
    """Return what was not enough for a run of this size or a smaller one."""
    failed = fit.failed is not None and fit.failed <= size
    return (fit.failed_in or 0) + 1 if failed else 0.0


def varies(sizes: Sequence[Sizes]) -> bool:
    """Tell whether there is a size to draw a curve along."""
    return next(_varying(sizes), None) is not None


def _varying(sizes: Sequence[Sizes]) -> Iterator[str]:
    """Give the names whose values differ; of names that always agree, the first."""
    seen: set[tuple[float | None, ...]] = set()
    for name in dict.fromkeys(name for own in sizes for name in own):
        column = tuple(own.get(name) for own in sizes)
        known = [value for value in column if value is not None]
        if len(set(known)) > 1 and 2 * len(known) >= len(column) and column not in seen:
            seen.add(column)
            yield name


def _grows(fit: Fit | None) -> TypeGuard[Fit]:
    """Tell whether the quantity depends on the size, as far as can be told."""
    if fit is None or isinstance(fit.curve, Constant):
        return False
    steady = _STEADY if len(fit.points) >= FEWEST_SIZES else _STEADY_OF_TWO
    apart = 1 - fit.points[0].x / fit.largest_size  # sizes close together say less
    ys = [point.y for point in fit.points]
    return max(ys) - min(ys) > apart * steady.get(fit.quantity, 0.0) * max(ys)
