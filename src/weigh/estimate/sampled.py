"""Predict memory from what a scheduler or workflow tool measured, and jobs requested.

A peak that is sampled each 30 s is a lower bound: with k samples it is raised by 1/k,
by 10 % at most. The request is then the largest so far and a margin, as for exact
figures; for sampled ones that of normal risk, since they are raised already. A job that
completed proves that its own request was enough.
"""

import msgspec

from weigh.estimate.history import (
    ENOUGH,
    MOST_SEEN,
    HistoryPrediction,
    HistoryReplay,
    Risk,
    escalate,
    margin_above_largest,
    with_largest,
)

_LIFT = 0.1  # the largest share by which a sampled peak is raised


class SampledMemory(msgspec.Struct, frozen=True, gc=False):
    """The memory of a run that completed, in bytes; ``looks`` is None if it is exact.

    ``requested`` is what its job requested, if known.
    """

    value: float
    looks: int | None = None
    requested: float | None = None
    weight: float = 1.0  # seconds for which it was held: the cost of a byte too many

    @property
    def is_well_seen(self) -> bool:
        """Return whether it was sampled at all."""
        return self.value > 0 and self.looks != 0

    @property
    def upper(self) -> float:
        """Return the figure, raised by what sampling may have missed.

        A job that held more than its request was not limited by it, which then proves
        nothing.
        """
        if self.looks is None:
            return self.value
        raised = self.value * (1 + min(_LIFT, 1 / max(1, self.looks)))
        # the job completed within its request, so its peak was not above that
        if self.requested is not None and self.value <= self.requested:
            return min(raised, self.requested)
        return raised


class SampledHistory:
    """The runs of one kind so far, in a few numbers: none of them is kept."""

    def __init__(self) -> None:
        self.runs = 0  # completed and sampled
        self.killed_at = 0.0  # bytes; the largest limit that killed a run
        self._proven = 0.0
        self._top: tuple[float, ...] = ()
        self._sampled = False
        self._replay = HistoryReplay()

    @property
    def proven(self) -> float | None:
        """Return the largest request of a job that completed, None if not known."""
        # a larger peak or a later kill shows that it was not enough
        enough = self._proven >= self._most and self._proven > self.killed_at
        return self._proven if enough and self._proven else None

    def add(self, run: SampledMemory) -> None:
        """Learn from a run that completed, also from one that nobody sampled."""
        if run.requested is not None and run.value <= run.requested:
            self._proven = max(self._proven, run.requested)
        if not run.is_well_seen:  # proves a request, but shows no peak
            return
        # predict first and learn afterwards: the replay must not know the run
        if self.runs >= ENOUGH:
            self._enter(run, self._value()[0])
        self.runs += 1
        self._top = with_largest(self._top, run.upper)
        self._sampled |= run.looks is not None

    def add_kill(self, limit: float) -> None:
        """Learn that a run needed more than *limit*."""
        self.killed_at = max(self.killed_at, limit)

    @property
    def _most(self) -> float:
        return self._top[0] if self._top else 0.0

    @property
    def _risk(self) -> Risk:
        return "normal" if self._sampled else "low"

    def predict(self) -> HistoryPrediction | None:
        """Return what the next run should request; None if no run was well seen."""
        if not self.runs:
            return None
        value, margin = self._value()
        is_killed = self.killed_at >= self._most and value > self._most
        is_proven = not is_killed and value == self.proven
        return HistoryPrediction(
            value=value,
            risk=self._risk,
            by=MOST_SEEN,
            margin=round(margin, 3),
            runs=self.runs,
            replay=self._replay,
            after_kill=value if is_killed else None,
            is_proven=is_proven,
        )

    def _value(self) -> tuple[float, float]:
        factor = 1 + margin_above_largest(self.runs, self._top, self._risk)
        value = self._most * factor
        # a kill at less than has since completed shows nothing new
        if self.killed_at >= self._most:
            value = max(value, escalate(self.killed_at))
        proven = self.proven
        return (value if proven is None else min(value, proven)), factor - 1

    def _enter(self, run: SampledMemory, request: float) -> None:
        total, tried = 0.0, request
        # as a user would: kill, request twice as much, run again
        is_killed = tried < run.value
        while tried < run.value:
            total, tried = total + tried, escalate(tried, self._most)
        before = self._replay
        self._replay = HistoryReplay(
            runs=before.runs + 1,
            killed=before.killed + is_killed,
            requested=before.requested + (total + tried) * run.weight,
            used=before.used + run.value * run.weight,
        )
