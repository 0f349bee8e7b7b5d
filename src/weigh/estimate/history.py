"""Predict the next run from those before it, learning from each that ends.

The request is the most seen and a margin: .15 / n of n runs, .02, and as a guard
against a larger value still to come some part of the distance from the largest value to
the third largest (`GUARDS`), at most .2 in all. The other view of a run is a line in a
size that is known before it starts, raised over all its past errors. After five runs
the view is taken that would have cost least on the latest ones, in order: memory x time
requested and not used or, where the run would have been killed, all of it and the
second try. Before that, the view that requests most.

The constants were chosen on three public traces of Nextflow (J. Bader et al., Sizey,
2024: chipseq, iwd, rnaseq), and tried on three others and on two sets of useGalaxy.eu.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.estimate.fit import TRUSTED_RATIO
from weigh.units import is_number

Risk: TypeAlias = Literal["low", "normal", "high"]
RISKS: tuple[Risk, ...] = get_args(Risk)

# times the distance from the largest value to the third, relative to the largest
GUARDS: dict[Risk, float] = {"low": 2.0, "normal": 1.0, "high": 0.25}
_LEAST, _FALLING, _MOST_GUARD = 0.02, 0.15, 0.2

# completed runs, for a first prediction, and the largest values that are kept: the
# guard is the distance from the first to the third
ENOUGH = 3
TRIED = 5  # replayed runs, until the cheapest view is taken
DOUBLED = 2.0  # after a kill, as sites and workflow tools retry
# what a kill costs, in runs: at half of it benchmarks/estimate_history differs by .6 %
KILL_PRICE = 8.0
# runs that a line looks back on, and latest runs on which the views are compared:
# older ones are of another program
WINDOW = 256
MOST_SEEN = "the most seen"
_FIT = "a line in {}"


def known_risk(word: str) -> Risk:
    """Return *word* as a risk.

    Raises:
        UsageError: there is no such risk.
    """
    for risk in RISKS:
        if word == risk:
            return risk
    raise UsageError(f"--from history:{word}: one of {', '.join(RISKS)}")


def margin_above_largest(runs: int, top: Sequence[float], risk: Risk = "low") -> float:
    """Return the margin above the largest of *runs* values, as a share of it.

    *top* are the three largest, in order. Values that lie apart are likely to be
    exceeded by as much again.
    """
    # zero or one value have no distance; a share, so that it applies to any unit
    apart = (top[0] - top[-1]) / top[0] if top[0] > 0 else 0.0
    return _LEAST + _FALLING / runs + min(_MOST_GUARD, GUARDS[risk] * apart)


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


def escalate(killed_at: float, predicted: float = 0.0) -> float:
    """Return what to request after a run was killed at *killed_at*.

    That is twice as much, or the history's prediction if it is larger.
    """
    return max(killed_at * DOUBLED, predicted)


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
    return sorted(left, key=lambda b: b.next_try)[-WINDOW:]


def _smaller(sizes: Sequence[float], than: Sequence[float]) -> bool:
    # NaN, an unknown size, is equal to nothing
    known = [(a, b) for a, b in zip(sizes, than, strict=True) if a == a and b == b]  # noqa: PLR0124
    return bool(known) and all(a < b for a, b in known)


def _covers(sizes: Sequence[float], others: Sequence[float]) -> bool:
    pairs = list(zip(sizes, others, strict=True))
    # with NaN the comparison is false: an unknown size settles nothing
    return bool(pairs) and all(a >= b for a, b in pairs)


class PastValue(msgspec.Struct, frozen=True):
    """One completed run. ``sizes`` are in the history's order, NaN if unknown.

    ``weight`` is how long ``value`` was held: the cost of a byte too many.
    """

    value: float
    sizes: tuple[float, ...] = ()
    weight: float = 1.0


class HistoryReplay(msgspec.Struct, frozen=True):
    """What this method would have cost on past runs, each predicted from earlier."""

    runs: int = 0  # predicted
    killed: int = 0  # of these, how many would have been killed at least once
    requested: float = 0.0  # value x weight, the kills' requests included
    used: float = 0.0  # value x weight

    @property
    def waste(self) -> float | None:
        """Return what was requested and not used, relative to what was used."""
        return self.requested / self.used - 1 if self.used else None

    def __add__(self, other: "HistoryReplay") -> "HistoryReplay":
        """Return both together."""
        return HistoryReplay(
            runs=self.runs + other.runs,
            killed=self.killed + other.killed,
            requested=self.requested + other.requested,
            used=self.used + other.used,
        )


class HistoryPrediction(msgspec.Struct, frozen=True):
    """What the next run should request, and why.

    ``by`` is the view that it is from, ``margin`` comes on top of its largest value;
    ``reach`` is how many times larger the run is than any before it; ``after_kill`` is
    the lower bound that raised the value, if one did. ``is_proven``: it is lowered to
    what jobs had requested that completed.
    """

    value: float
    risk: Risk
    by: str
    margin: float
    runs: int  # runs that it is learned from
    replay: HistoryReplay
    reach: float = 1.0
    after_kill: float | None = None
    is_proven: bool = False


class HistoryView(msgspec.Struct, frozen=True):
    """One way to see a run: the largest value expected, and what it is from.

    ``top`` are the three largest of what it is from: values, or a line's errors.
    """

    by: str
    largest: float  # bytes or seconds
    runs: int
    top: tuple[float, ...]

    def request(self, risk: Risk) -> float:
        """Return what to request."""
        return self.largest * (1 + margin_above_largest(self.runs, self.top, risk))


class RunHistory:
    """The runs of one kind so far, for one quantity: bytes of memory, or seconds.

    *sizes* are the names of what is known of a run before it starts.
    """

    def __init__(self, sizes: Sequence[str] = (), *, risk: Risk = "low") -> None:
        self.runs = 0
        self._risk = known_risk(risk)
        self._size_names = tuple(sizes)
        self._top: tuple[float, ...] = ()
        self._least = math.inf  # the least value seen
        self._largest = [0.0] * len(sizes)  # the largest of each size
        self._latest: deque[PastValue] = deque(maxlen=WINDOW)
        self._bounds: list[LowerBound] = []
        self._replays: deque[HistoryReplay] = deque(maxlen=WINDOW)
        # of each run, the cost of every view
        self._costs: deque[list[HistoryReplay]] = deque(maxlen=WINDOW)

    @classmethod
    def of(
        cls,
        runs: Sequence[PastValue | LowerBound],
        sizes: Sequence[str] = (),
        *,
        risk: Risk = "low",
    ) -> "RunHistory":
        """Learn from *runs*, the oldest first; only the latest are replayed.

        Raises:
            FormatError: a run's figures are not measurements.
        """
        history = cls(sizes, risk=risk)
        # the replayed runs, and before them as many as the first of their lines look
        # back on
        late = max(0, len(runs) - 2 * WINDOW)
        for run in runs[:late]:
            if isinstance(run, PastValue):
                history._check(run)
                history._remember(run)
        for one in runs[late:]:
            if isinstance(one, PastValue):
                history.add(one)
            else:
                history.add_bound(one)
        return history

    def add(self, run: PastValue) -> None:
        """Learn from one more run that completed.

        Raises:
            FormatError: its figures are not measurements.
        """
        self._check(run)
        # predict before learning: the replay must not know the run
        if self.runs:
            self._replay(run)
        self._remember(run)
        self._bounds = still_open(self._bounds, run.value, run.sizes)

    def add_bound(self, bound: LowerBound) -> None:
        """Learn from a run that ended early and would have needed more.

        Raises:
            FormatError: its figures are not measurements.
        """
        self._check(PastValue(bound.value, bound.sizes))
        self._bounds.append(bound)

    def predict(self, sizes: Sequence[float] = ()) -> HistoryPrediction:
        # unknown sizes are NaN: each view that takes one falls back to the most seen
        """Return what the next run, of *sizes*, should request.

        Raises:
            UsageError: fewer than 3 runs completed so far.
        """
        if self.runs < ENOUGH:
            raise UsageError(f"run {ENOUGH} of these first: {self.runs} completed")
        at = tuple(sizes) or (math.nan,) * len(self._size_names)
        view = self._choose(self._views(at))
        value, least = view.request(self._risk), least_request(self._bounds, at)
        return HistoryPrediction(
            value=max(value, least),
            risk=self._risk,
            by=view.by,
            margin=round(margin_above_largest(view.runs, view.top, self._risk), 3),
            runs=self.runs,
            replay=sum(self._replays, HistoryReplay()),
            reach=self._reach(at),
            after_kill=least if least > value else None,
        )

    def _views(self, at: tuple[float, ...]) -> list[HistoryView]:
        """Return all views of a run; those that know nothing of it see the most."""
        most = self._most_seen()
        fits = (self._fit(place, size) for place, size in enumerate(at))
        return [most, *(fit or most for fit in fits)]

    def _most_seen(self) -> HistoryView:
        """Return the most seen ever at low risk, else of the latest runs."""
        if self._risk == "low":
            return HistoryView(MOST_SEEN, self._top[0], self.runs, self._top)
        top = largest_of(run.value for run in self._latest)
        return HistoryView(MOST_SEEN, top[0], len(self._latest), top)

    def _fit(self, place: int, size: float) -> HistoryView | None:
        """Return the line at a size, raised over all its errors."""
        # a NaN is not above 0: runs without that size are left out
        runs = [run for run in self._latest if run.sizes[place] > 0]
        if not size > 0 or len(runs) < ENOUGH - 1:
            return None
        points = [(run.sizes[place], run.value) for run in runs]
        line = _least_squares_line(points)

        def fit(size: float) -> float:
            return max(self._least, line(size))

        # relative errors, as requests are raised by a factor
        errors = largest_of(y / fit(x) for x, y in points)
        # a line far beyond the sizes seen may give anything: at most in proportion
        most = self._top[0] * min(self._reach_of(place, size), TRUSTED_RATIO)
        # below them it falls too fast where the need grows faster than the size
        largest = max(self._least, min(fit(size) * errors[0], most))
        by = _FIT.format(self._size_names[place])
        return HistoryView(by, largest, len(points), errors)

    def _choose(self, views: Sequence[HistoryView]) -> HistoryView:
        """Return the view that would have cost least on the latest runs."""
        # with so few replays the cheapest is a matter of chance: take the safest
        if len(self._costs) < TRIED:
            return max(views, key=lambda view: view.request(self._risk))
        totals = [
            sum(column, HistoryReplay()) for column in zip(*self._costs, strict=True)
        ]
        # kills are rare and dear: each counts as several runs' worth of waste
        prices = [
            (one.waste or 0.0) + KILL_PRICE * one.killed / one.runs for one in totals
        ]
        return views[prices.index(min(prices))]

    def _replay(self, run: PastValue) -> None:
        """Enter what each view would have requested for *run*."""
        views = self._views(run.sizes)
        most = self._top[0]
        if self.runs >= ENOUGH:
            request = max(
                self._choose(views).request(self._risk),
                least_request(self._bounds, run.sizes),
            )
            self._replays.append(_replayed(request, run, most))
        costs = [_replayed(view.request(self._risk), run, most) for view in views]
        self._costs.append(costs)

    def _reach(self, at: Sequence[float]) -> float:
        reaches = [self._reach_of(place, size) for place, size in enumerate(at)]
        return max(reaches, default=1.0)

    def _reach_of(self, place: int, size: float) -> float:
        largest = self._largest[place]
        return max(1.0, size / largest) if largest > 0 and size > 0 else 1.0

    def _remember(self, run: PastValue) -> None:
        self.runs += 1
        self._top = largest_of((*self._top, run.value))
        self._least = min(self._least, run.value)
        self._latest.append(run)
        for place, size in enumerate(run.sizes):
            self._largest[place] = max(self._largest[place], size)  # NaN is not more

    def _check(self, run: PastValue) -> None:
        for figure in (run.value, run.weight):
            if not 0 < figure < math.inf:
                raise FormatError(
                    f"{figure:g} is not a measurement: it must be above 0"
                )
        if len(run.sizes) != len(self._size_names):
            expected = ", ".join(self._size_names) or "none"
            raise UsageError(f"{len(run.sizes)} sizes given, expected: {expected}")


def _least_squares_line(
    points: Sequence[tuple[float, float]],
) -> Callable[[float], float]:
    """Fit a line by least squares; through the mean if there is one x only."""
    middle = sum(x for x, _ in points) / len(points)
    height = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    rise = sum((x - middle) * (y - height) for x, y in points)
    slope = rise / spread if spread > 0 else 0.0
    return lambda x: height + slope * (x - middle)


def largest_of(values: Iterable[float]) -> tuple[float, ...]:
    """Return the three largest values, in order."""
    return tuple(heapq.nlargest(ENOUGH, values))


def _replayed(request: float, run: PastValue, most: float) -> HistoryReplay:
    # each kill costs its whole request, then the next try is larger
    total, tried, killed = 0.0, request, False
    while tried < run.value:
        total, tried, killed = total + tried, escalate(tried, most), True
    return HistoryReplay(
        runs=1,
        killed=int(killed),
        requested=(total + tried) * run.weight,
        used=run.value * run.weight,
    )


# What a scheduler or workflow tool measured: a peak that is sampled each 30 s is a
# lower bound, so with k samples it is raised by 1/k. The request is then the largest so
# far and a margin; for sampled figures that of normal risk, since they are raised.
# A job that completed proves that its own request was enough.
_SAMPLED_RISK: Risk = "normal"
_LIFT = 0.1  # the largest share by which a sampled peak is raised


class SampledMemory(msgspec.Struct, frozen=True, gc=False):
    """The memory of a run that completed, in bytes, sampled ``looks`` times.

    ``requested`` is what its job requested, if known.
    """

    value: float
    looks: int
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
            past = PastValue(run.value, weight=run.weight)
            self._replay += _replayed(self._value()[0], past, self._most)
        self.runs += 1
        self._top = largest_of((*self._top, run.upper))

    def add_kill(self, limit: float) -> None:
        """Learn that a run needed more than *limit*."""
        self.killed_at = max(self.killed_at, limit)

    @property
    def _most(self) -> float:
        return self._top[0] if self._top else 0.0

    def predict(self) -> HistoryPrediction | None:
        """Return what the next run should request; None if no run was well seen."""
        if not self.runs:
            return None
        value, margin = self._value()
        is_killed = self.killed_at >= self._most and value > self._most
        is_proven = not is_killed and value == self.proven
        return HistoryPrediction(
            value=value,
            risk=_SAMPLED_RISK,
            by=MOST_SEEN,
            margin=round(margin, 3),
            runs=self.runs,
            replay=self._replay,
            after_kill=value if is_killed else None,
            is_proven=is_proven,
        )

    def _value(self) -> tuple[float, float]:
        factor = 1 + margin_above_largest(self.runs, self._top, _SAMPLED_RISK)
        value = self._most * factor
        # a kill at less than has since completed shows nothing new
        if self.killed_at >= self._most:
            value = max(value, escalate(self.killed_at))
        proven = self.proven
        return (value if proven is None else min(value, proven)), factor - 1


# Runs of one kind: a command's template keeps the program, its options and plain
# words. A parameter's value, a number or the path of data is replaced by a placeholder.
# Scripts are kept: they are the program.
Parameters: TypeAlias = Mapping[str, int | float | str]

NUMBER, FILE = "{number}", "{file}"
MOST_SIZES = 4  # parameters to learn from: each takes more runs

_PROGRAMS = frozenset(("py", "r", "sh", "jl", "pl", "m", "rb", "lua", "js", "jar"))


def template(command: Sequence[str], parameters: Parameters) -> tuple[str, ...]:
    """Return *command* with placeholders for what varies from run to run."""
    values = {str(value): f"{{{name}}}" for name, value in parameters.items()}
    program = tuple(_word_before_ending(word) for word in command[:1])
    # python -m pkg.train: a module is the program, not a file
    return program + tuple(
        word if before == "-m" else _general(word, values)
        for before, word in pairwise(command)
    )


def choose_sizes(runs: Iterable[Parameters]) -> list[str]:
    """Choose the parameters to learn from: numbers that vary, the most frequent first.

    Half of the *runs* must have them.
    """
    seen: dict[str, list[float | str]] = {}
    count = 0
    for parameters in runs:
        count += 1
        for name, value in parameters.items():
            if is_size(value):
                seen.setdefault(name, []).append(value)
    varying = [
        name
        for name, values in seen.items()
        if len(values) * 2 >= count and len(set(values)) > 1
    ]
    return sorted(varying, key=lambda name: (-len(seen[name]), name))[:MOST_SIZES]


def is_size(value: float | str) -> bool:
    """Return whether a parameter's value is a number to fit a line to."""
    return not isinstance(value, (str, bool)) and math.isfinite(value)


def _general(word: str, values: Mapping[str, str]) -> str:
    # a parameter is often given as name=value: the name stays, the value varies
    name, equals, value = word.partition("=")
    if equals and name and "/" not in name:  # with a dot, too: model.lr=0.1
        return f"{name}={_general(value, values)}"
    # the parameter's own name says more than {number}
    if word in values:
        return values[word]
    if is_number(word):
        return NUMBER
    if _is_path(word):
        # a script is the program, wherever it lies; a data file varies
        return _word_before_ending(word) if _ending_of_word(word) in _PROGRAMS else FILE
    return word


def _is_path(word: str) -> bool:
    if word.startswith("-"):  # an option, even with a dot or a slash in it
        return False
    return "/" in word or bool(_ending_of_word(word))


def _ending_of_word(word: str) -> str:
    stem, dot, ending = word.rpartition(".")
    return ending.lower() if dot and stem and ending.isalnum() else ""


def _word_before_ending(word: str) -> str:
    return word.rpartition("/")[2] or word
