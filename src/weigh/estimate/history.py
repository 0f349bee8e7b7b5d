"""Right-size the next run from those before it, learning with each that ends.

A pool of simple rules (history_pool) predicts each run from those before it. A rule is
lifted by a level: a quantile of what it was wrong by so far, and a margin. Rule and
level are chosen by what they would have cost on the latest runs, in order
(history_ledger): memory x time asked for and not used, the whole of it where the run
would have been killed, and its second try. `low` risk asks for the most seen so far
and 10 %.
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
_KEPT = 64  # of many, the largest say it all


class LowerBound(msgspec.Struct, frozen=True):
    """A run of *sizes* needed more than *value*.

    ``factor`` is what to ask for next, times *value*: 2 where the run was stopped for
    just this, 1 where it was only seen to use so much.
    """

    value: float
    sizes: tuple[float, ...] = ()
    factor: float = DOUBLED

    @property
    def next_try(self) -> float:
        """What the next try should be given."""
        return self.value * self.factor


def escalate(killed_at: float, said: float = 0.0, *, cap: float | None = None) -> float:
    """Give what to ask for after a run was killed at *killed_at*.

    That doubled, or what the history *said* where that is more, and no more than the
    *cap*: what a node has.
    """
    asked = max(killed_at * DOUBLED, said)
    return asked if cap is None else min(asked, cap)


def bear_on(bounds: Sequence[LowerBound], sizes: Sequence[float]) -> float:
    """Give the least to ask for, for a run of *sizes*; 0 where nothing bears on it.

    A bound is left out only where the run is smaller by every size that is known of
    both.
    """
    return max((b.next_try for b in bounds if not _smaller(sizes, b.sizes)), default=0)


def still_open(
    bounds: Sequence[LowerBound], value: float, sizes: Sequence[float]
) -> list[LowerBound]:
    """Keep the bounds that a run of *sizes*, completed with *value*, leaves open.

    It settles those it used as much as, and those of runs that were no larger by any
    size, where all the sizes are known.
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


ENOUGH = 3  # runs, to say anything at all
FURTHEST = 4.0  # times the largest size measured; beyond it no line is believed
_HALF = 0.5


class Past(msgspec.Struct, frozen=True):
    """One completed run. ``sizes`` in the history's order, NaN where not known.

    ``weight`` is how long *value* was held: what a byte too many costs.
    """

    value: float
    sizes: tuple[float, ...] = ()
    weight: float = 1.0


class Replay(msgspec.Struct, frozen=True):
    """How this very method did on the past, each run from those before it."""

    runs: int = 0
    killed: int = 0
    asked: float = 0.0
    used: float = 0.0

    @property
    def waste(self) -> float | None:
        """What was asked for and not used, over what was used."""
        return self.asked / self.used - 1 if self.used else None

    @property
    def expected_killed(self) -> float:
        """The share of runs to expect killed.

        The most of n runs is passed by one in n + 1, if their order is chance's; the
        first runs, which were not replayed, count among the n.
        """
        return (self.killed + 1) / (self.runs + ENOUGH + 1)


class Prediction(msgspec.Struct, frozen=True):
    """What the next run should be given, and what that rests on.

    ``level`` is the share of its own past errors that the rule ``by`` was lifted over,
    ``margin`` what came on top; ``reach`` how many times larger than any before the
    run is; ``after_kill`` the bound from below that raised it, if one did.
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


class _Look(msgspec.Struct, frozen=True):
    """One run seen from those before it: what rules say, what levels would ask."""

    said: Floats
    asked: Floats
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
            FormatError: a run's figures are no measurement.
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
            FormatError: its figures are no measurement.
        """
        at = self._checked(run)
        if self.runs:
            self._replay(run, self._look(at), at)
        self._remember((run,))
        self._bounds = still_open(self._bounds, run.value, run.sizes)

    def add_bound(self, bound: LowerBound) -> None:
        """Learn from a run that ended early: it would have needed more.

        Raises:
            FormatError: its figures are no measurement.
        """
        self._checked(Past(bound.value, bound.sizes))
        self._bounds.append(bound)

    def predict(
        self, sizes: Sequence[float] = (), *, risk: Risk | None = None
    ) -> Prediction:
        """Say what the next run, of *sizes*, should be given.

        Raises:
            UsageError: fewer than 3 runs completed so far, or no such risk.
        """
        if self.runs < ENOUGH:
            raise UsageError(f"run {ENOUGH} of these first: {self.runs} completed")
        at = np.array(sizes or [math.nan] * len(self._size_names), dtype=np.float64)
        risk = self._risk if risk is None else known_risk(risk)
        choice = self._choose(self._look(at), risk)
        least = bear_on(self._bounds, tuple(at))
        quantile, margin = LEVELS[choice.level]
        return Prediction(
            value=max(choice.value, least),
            risk=risk,
            by=self._names[choice.rule],
            level=quantile,
            margin=margin,
            runs=self.runs,
            replay=_added_up(self._replays if risk == self._risk else ()),
            reach=choice.reach,
            after_kill=least if least > choice.value else None,
        )

    def _look(self, at: Floats) -> _Look:
        reach = self._reach(at)
        ceiling = self._most * min(reach, FURTHEST)
        said = candidates(self._values, self._sizes, at)
        said = np.clip(said, self._least * _HALF, ceiling)
        asked = self._ledger.lift(said)
        alike = self._alike(at)
        if alike.size:
            # never less than a level claims of the very runs that were like this one
            asked = np.maximum(asked, claims(alike))
        return _Look(said, np.minimum(asked, ceiling * (1 + MARGIN)), reach)

    def _choose(self, look: _Look, risk: Risk) -> _Choice:
        if risk == "low":
            return self._most_seen(look)
        price = self._ledger.prices(look.asked, APPETITES[risk])
        if not np.isfinite(price).any():
            return self._most_seen(look)
        choice = _cheapest(look, price)
        beyond = np.where(self._lines[:, None], price, np.inf)
        if look.reach > 1 and np.isfinite(beyond).any():
            # a constant was never tried so far out: a line may know better
            choice = max(choice, _cheapest(look, beyond), key=lambda one: one.value)
        return choice

    def _most_seen(self, look: _Look) -> _Choice:
        """Ask for the most seen and a margin; beyond the sizes seen, as lines say."""
        last = len(LEVELS) - 1
        choice = _Choice(self._most * (1 + MARGIN), 0, last, look.reach)
        if look.reach == 1:
            return choice
        lifted = np.where(self._lines, look.asked[:, last], choice.value)
        rule = int(np.nanargmax(lifted))
        if lifted[rule] <= choice.value:
            return choice
        return _Choice(float(lifted[rule]), rule, last, look.reach)

    def _replay(self, run: Past, look: _Look, at: Floats) -> None:
        """Enter what everyone would have asked for *run*, and what that would cost."""
        if self.runs >= ENOUGH:
            asked = max(
                self._choose(look, self._risk).value, bear_on(self._bounds, tuple(at))
            )
            self._replays.append(_played(asked, run, self._most))
            del self._replays[:-REPLAYED]
        self._ledger.enter(
            run.value, run.weight, said=look.said, asked=look.asked, most=self._most
        )

    def _alike(self, at: Floats) -> Floats:
        """Give the values of the latest runs of the very same sizes."""
        known = np.isfinite(at)
        same = (self._sizes[:, known] == at[known]).all(axis=1)
        alike: Floats = self._values[same]
        return alike

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
                raise FormatError(f"{figure:g} is no measurement: it must be above 0")
        if len(run.sizes) != len(self._size_names):
            wanted = ", ".join(self._size_names) or "none"
            raise UsageError(f"{len(run.sizes)} sizes given, wanted: {wanted}")
        return np.array(run.sizes, dtype=np.float64)


def _played(asked: float, run: Past, most: float) -> Replay:
    total, tried, killed = 0.0, asked, False
    while tried < run.value:
        total, tried, killed = total + tried, escalate(tried, most), True
    return Replay(
        runs=1,
        killed=int(killed),
        asked=(total + tried) * run.weight,
        used=run.value * run.weight,
    )


def _added_up(replays: Iterable[Replay]) -> Replay:
    rows = [(one.runs, one.killed, one.asked, one.used) for one in replays]
    if not rows:
        return Replay()
    runs, killed, asked, used = (sum(column) for column in zip(*rows, strict=True))
    return Replay(runs=int(runs), killed=int(killed), asked=asked, used=used)


def _cheapest(look: _Look, price: Floats) -> _Choice:
    rule, level = np.unravel_index(int(np.argmin(price)), price.shape)
    return _Choice(float(look.asked[rule, level]), int(rule), int(level), look.reach)
