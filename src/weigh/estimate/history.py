"""Predict the next run from those before it, learning from each that ends.

A pool of simple rules (history_pool) predicts each run from those before it. A rule's
prediction is raised to a level: a quantile of its past errors, plus a margin. Rule and
level are chosen by what they would have cost on the latest runs, in order: memory x
time requested and not used or, where the run would have been killed, all of it and the
second try. `low` risk requests the largest value so far plus 10 %.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from weigh.errors import FormatError, UsageError
from weigh.estimate.history_pool import (
    APPETITES,
    LEVELS,
    MARGIN,
    REPLAYED,
    WINDOW,
    Floats,
    Ledger,
    Risk,
    are_lines,
    candidates,
    claims,
    known_risk,
    names,
)

DOUBLED = 2.0
_KEPT = 64  # of many bounds only the largest matter


class LowerBound(msgspec.Struct, frozen=True):
    """A run of *sizes* needed more than *value*.

    The next request is ``factor`` times *value*: 2 if the run was stopped for exceeding
    it, 1 if that much use was only observed.
    """

    value: float
    sizes: tuple[float, ...] = ()
    factor: float = DOUBLED

    @property
    def next_try(self) -> float:
        """Return what the next try should request."""
        return self.value * self.factor


def escalate(
    killed_at: float, predicted: float = 0.0, *, cap: float | None = None
) -> float:
    """Return what to request after a run was killed at *killed_at*.

    That is twice as much, or the history's prediction if it is larger; at most *cap*,
    what a node has.
    """
    request = max(killed_at * DOUBLED, predicted)
    return request if cap is None else min(request, cap)


def least_request(bounds: Sequence[LowerBound], sizes: Sequence[float]) -> float:
    """Return the least to request for a run of *sizes*; 0 if no bound applies.

    A bound applies unless the run is smaller in every size known of both.
    """
    return max((b.next_try for b in bounds if not _smaller(sizes, b.sizes)), default=0)


def still_open(
    bounds: Sequence[LowerBound], value: float, sizes: Sequence[float]
) -> list[LowerBound]:
    """Return the bounds that a run of *sizes*, completed with *value*, leaves open.

    It settles bounds up to its own use, and bounds of runs that were no larger in any
    size, provided that all sizes are known.
    """
    left = [b for b in bounds if b.value > value and not _covers(sizes, b.sizes)]
    return sorted(left, key=lambda b: b.next_try)[-_KEPT:]


def _smaller(sizes: Sequence[float], than: Sequence[float]) -> bool:
    # NaN, an unknown size, is equal to nothing
    known = [(a, b) for a, b in zip(sizes, than, strict=True) if a == a and b == b]  # noqa: PLR0124
    return bool(known) and all(a < b for a, b in known)


def _covers(sizes: Sequence[float], others: Sequence[float]) -> bool:
    pairs = list(zip(sizes, others, strict=True))
    return bool(pairs) and all(a >= b for a, b in pairs)


ENOUGH = 3  # completed runs, for a first prediction
FURTHEST = 4.0  # times the largest size measured; beyond it no line is trusted
_HALF = 0.5


class Past(msgspec.Struct, frozen=True):
    """One completed run. ``sizes`` are in the history's order, NaN if unknown.

    ``weight`` is how long ``value`` was held: the cost of a byte too many.
    """

    value: float
    sizes: tuple[float, ...] = ()
    weight: float = 1.0


class Replay(msgspec.Struct, frozen=True):
    """What this method would have cost on past runs, each predicted from earlier."""

    runs: int = 0
    killed: int = 0
    requested: float = 0.0
    used: float = 0.0

    @property
    def waste(self) -> float | None:
        """Return what was requested and not used, relative to what was used."""
        return self.requested / self.used - 1 if self.used else None

    @property
    def expected_killed(self) -> float:
        """Return the expected share of killed runs.

        In random order one run in n + 1 exceeds the largest of n before it; the n
        include the first runs, which were not replayed.
        """
        return (self.killed + 1) / (self.runs + ENOUGH + 1)


class Prediction(msgspec.Struct, frozen=True):
    """What the next run should request, and why.

    ``level`` is the share of the past errors of rule ``by`` that the value covers, and
    ``margin`` comes on top; ``reach`` is how many times larger the run is than any
    before it; ``after_kill`` is the lower bound that raised the value, if one did.
    ``is_proven``: it is lowered to what jobs had requested that completed.
    """

    value: float
    risk: Risk
    by: str
    level: float
    margin: float
    runs: int
    replay: Replay
    reach: float = 1.0
    after_kill: float | None = None
    is_proven: bool = False


class _Forecasts(msgspec.Struct, frozen=True):
    """All forecasts of one run: ``predicted`` by rule, ``lifted`` by rule and level."""

    predicted: Floats
    lifted: Floats
    reach: float


class _Choice(msgspec.Struct, frozen=True):
    value: float
    rule: int
    level: int
    reach: float


class History:
    """The runs of one kind so far, for one quantity: bytes of memory, or seconds."""

    def __init__(self, sizes: Sequence[str] = (), *, risk: Risk = "low") -> None:
        self.runs = 0
        self._risk = known_risk(risk)
        self._size_names = tuple(sizes)
        self._names = names(sizes)
        self._lines = are_lines(len(sizes))
        self._most, self._least = 0.0, math.inf
        self._largest = np.zeros(len(sizes))
        self._values = np.empty(0)
        self._sizes = np.empty((0, len(sizes)))
        self._bounds: list[LowerBound] = []
        self._replays: list[Replay] = []
        self._ledger = Ledger(len(self._names))

    @classmethod
    def of(
        cls,
        runs: Sequence[Past | LowerBound],
        sizes: Sequence[str] = (),
        *,
        risk: Risk = "low",
    ) -> "History":
        """Learn from *runs*, the oldest first; only the latest are replayed.

        Raises:
            FormatError: a run's figures are not measurements.
        """
        history = cls(sizes, risk=risk)
        late = max(0, len(runs) - REPLAYED - WINDOW)
        early = [run for run in runs[:late] if isinstance(run, Past)]
        for run in early:
            history._checked(run)
        history._remember(early)
        for one in runs[late:]:
            if isinstance(one, Past):
                history.add(one)
            else:
                history.add_bound(one)
        return history

    def add(self, run: Past) -> None:
        """Learn from one more run that completed.

        Raises:
            FormatError: its figures are not measurements.
        """
        at = self._checked(run)
        if self.runs:
            self._replay(run, self._forecasts(at), at)
        self._remember((run,))
        self._bounds = still_open(self._bounds, run.value, run.sizes)

    def add_bound(self, bound: LowerBound) -> None:
        """Learn from a run that ended early and would have needed more.

        Raises:
            FormatError: its figures are not measurements.
        """
        self._checked(Past(bound.value, bound.sizes))
        self._bounds.append(bound)

    def predict(
        self, sizes: Sequence[float] = (), *, risk: Risk | None = None
    ) -> Prediction:
        """Return what the next run, of *sizes*, should request.

        Raises:
            UsageError: fewer than 3 runs completed so far, or there is no such risk.
        """
        if self.runs < ENOUGH:
            raise UsageError(f"run {ENOUGH} of these first: {self.runs} completed")
        at = np.array(sizes or [math.nan] * len(self._size_names), dtype=np.float64)
        risk = self._risk if risk is None else known_risk(risk)
        choice = self._choose(self._forecasts(at), risk)
        least = least_request(self._bounds, tuple(at))
        quantile, margin = LEVELS[choice.level]
        return Prediction(
            value=max(choice.value, least),
            risk=risk,
            by=self._names[choice.rule],
            level=quantile,
            margin=margin,
            runs=self.runs,
            replay=_summed(self._replays if risk == self._risk else ()),
            reach=choice.reach,
            after_kill=least if least > choice.value else None,
        )

    def _forecasts(self, at: Floats) -> _Forecasts:
        """Return all forecasts of a run of sizes *at*."""
        reach = self._reach(at)
        ceiling = self._most * min(reach, FURTHEST)
        predicted = candidates(self._values, self._sizes, at)
        predicted = np.clip(predicted, self._least * _HALF, ceiling)
        lifted = self._ledger.lift(predicted)
        same = self._same_sizes(at)
        if same.size:
            # at least what a level takes to cover earlier runs of the same sizes
            lifted = np.maximum(lifted, claims(same))
        return _Forecasts(predicted, np.minimum(lifted, ceiling * (1 + MARGIN)), reach)

    def _choose(self, forecasts: _Forecasts, risk: Risk) -> _Choice:
        if risk == "low":
            return self._most_seen(forecasts)
        price = self._ledger.prices(forecasts.lifted, APPETITES[risk])
        if not np.isfinite(price).any():
            return self._most_seen(forecasts)
        choice = _cheapest(forecasts, price)
        beyond = np.where(self._lines[:, None], price, np.inf)
        if forecasts.reach > 1 and np.isfinite(beyond).any():
            # a constant was never tested so far out: a line may predict better
            choice = max(
                choice, _cheapest(forecasts, beyond), key=lambda one: one.value
            )
        return choice

    def _most_seen(self, forecasts: _Forecasts) -> _Choice:
        """Choose the largest value and a margin; beyond the known sizes, the lines."""
        last = len(LEVELS) - 1
        choice = _Choice(self._most * (1 + MARGIN), 0, last, forecasts.reach)
        if forecasts.reach == 1:
            return choice
        lifted = np.where(self._lines, forecasts.lifted[:, last], choice.value)
        rule = int(np.nanargmax(lifted))
        if lifted[rule] <= choice.value:
            return choice
        return _Choice(float(lifted[rule]), rule, last, forecasts.reach)

    def _replay(self, run: Past, forecasts: _Forecasts, at: Floats) -> None:
        """Enter what each rule and level would have requested for *run*."""
        if self.runs >= ENOUGH:
            request = max(
                self._choose(forecasts, self._risk).value,
                least_request(self._bounds, tuple(at)),
            )
            self._replays.append(_replayed(request, run, self._most))
            del self._replays[:-REPLAYED]
        self._ledger.enter(
            run.value,
            run.weight,
            predicted=forecasts.predicted,
            lifted=forecasts.lifted,
            most=self._most,
        )

    def _same_sizes(self, at: Floats) -> Floats:
        """Return the values of the latest runs of the same sizes."""
        known = np.isfinite(at)
        rows = (self._sizes[:, known] == at[known]).all(axis=1)
        same: Floats = self._values[rows]
        return same

    def _reach(self, at: Floats) -> float:
        known = np.isfinite(at) & (self._largest > 0)
        if not known.any():
            return 1.0
        return max(1.0, float((at[known] / self._largest[known]).max()))

    def _remember(self, runs: Sequence[Past]) -> None:
        if not runs:
            return
        self.runs += len(runs)
        values = np.array([run.value for run in runs])
        sizes = np.array([run.sizes for run in runs]).reshape(len(runs), -1)
        self._most = max(self._most, float(values.max()))
        self._least = min(self._least, float(values.min()))
        self._values = np.concatenate([self._values, values])[-WINDOW:]
        if self._size_names:
            self._sizes = np.concatenate([self._sizes, sizes])[-WINDOW:]
            self._largest = np.fmax(self._largest, np.fmax.reduce(sizes, axis=0))
        else:
            self._sizes = np.empty((self._values.size, 0))

    def _checked(self, run: Past) -> Floats:
        for figure in (run.value, run.weight):
            if not 0 < figure < math.inf:
                raise FormatError(
                    f"{figure:g} is not a measurement: it must be above 0"
                )
        if len(run.sizes) != len(self._size_names):
            expected = ", ".join(self._size_names) or "none"
            raise UsageError(f"{len(run.sizes)} sizes given, expected: {expected}")
        return np.array(run.sizes, dtype=np.float64)


def _replayed(request: float, run: Past, most: float) -> Replay:
    total, tried, killed = 0.0, request, False
    while tried < run.value:
        total, tried, killed = total + tried, escalate(tried, most), True
    return Replay(
        runs=1,
        killed=int(killed),
        requested=(total + tried) * run.weight,
        used=run.value * run.weight,
    )


def _summed(replays: Iterable[Replay]) -> Replay:
    rows = [(one.runs, one.killed, one.requested, one.used) for one in replays]
    if not rows:
        return Replay()
    runs, killed, requested, used = (sum(column) for column in zip(*rows, strict=True))
    return Replay(runs=int(runs), killed=int(killed), requested=requested, used=used)


def _cheapest(forecasts: _Forecasts, price: Floats) -> _Choice:
    rule, level = np.unravel_index(int(np.argmin(price)), price.shape)
    return _Choice(
        float(forecasts.lifted[rule, level]), int(rule), int(level), forecasts.reach
    )
