"""How much right-sizing from history wastes, and how many tasks it kills.

    python benchmarks/estimate_history.py [TRACE.csv ...]

Plays workflow traces back in order: each task is given memory from the tasks of its
type before it; one given too little is killed, wastes all it was given, and is tried
again with twice that or the most seen. Prints waste / used (in memory x time) and the
tasks killed, after 5 runs of a task's type and (from the first) from the first run.

Without arguments: the traces under tests/support/data/workflows. A trace of your own
has the columns task, peak_memory, wall_time (s), asked (optional); any others are sizes
that are known before a task starts, or words if their names end in _word. Where a size
is often unknown, the tasks that have it are also played alone; where there are words,
all is played without and with them, as by --param, after 5 runs of a word. A first run
gets what was requested; where that is not known, what a user would request who knows
the trace's largest peak: that, rounded up to a power of two.
"""

import csv
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from weigh.estimate.history import ENOUGH, RISKS, PastValue, Risk, RunHistory, escalate
from weigh.units import parse_size

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
FOLDER = os.path.join(HERE, "tests", "support", "data", "workflows")
SETS = ("fairymags.csv", "galaxy_metaspades.csv", "galaxy_metaspades_size.csv")
WORD = "_word"  # ends the name of a column of words
KNOWN = ("task", "peak_memory", "wall_time", "asked")
LEARNT = 5
OFTEN = 0.9
MANY = 10_000


class Task(msgspec.Struct, frozen=True):
    """One task of a trace, and what its user asked for, if known."""

    run: PastValue
    asked: float | None
    words: tuple[str | None, ...] = ()


class Score(msgspec.Struct):
    """What a method came to, over tasks."""

    tasks: int = 0
    killed: int = 0
    wasted: float = 0.0
    used: float = 0.0

    def add(self, other: "Score") -> None:
        """Count *other* in."""
        self.tasks += other.tasks
        self.killed += other.killed
        self.wasted += other.wasted
        self.used += other.used

    def __str__(self) -> str:
        """Write waste / used and the share killed."""
        if not self.tasks:
            return "-"
        waste, killed = self.wasted / self.used, self.killed / self.tasks
        return f"{100 * waste:.1f} % {100 * killed:.2f} %"


Method = Callable[[Sequence[Task], int], Iterator[float | None]]


def read(path: str) -> tuple[dict[str, list[Task]], int]:
    """Read a trace: its tasks by type, and how many sizes are known of each."""
    types: dict[str, list[Task]] = defaultdict(list)
    with open(path, encoding="utf-8") as file:
        reader = csv.DictReader(file)
        others = [name for name in reader.fieldnames or () if name not in KNOWN]
        words = [name for name in others if name.endswith(WORD)]
        sizes = [name for name in others if name not in words]
        for row in reader:
            past = PastValue(
                value=parse_size(row["peak_memory"]),
                sizes=tuple(float(row[size] or "nan") for size in sizes),
                weight=float(row["wall_time"]),
            )
            asked = row.get("asked")
            types[row["task"]].append(
                Task(
                    past,
                    parse_size(asked) if asked else None,
                    tuple(row[word] or None for word in words),
                )
            )
    return types, len(sizes)


def by_history(risk: Risk) -> Method:
    """Give weigh's method at *risk*."""

    def asked(tasks: Sequence[Task], sizes: int) -> Iterator[float | None]:
        names = [f"size{n}" for n in range(sizes)]
        # as with `--param NAME=WORD`
        histories: defaultdict[tuple[str | None, ...], RunHistory] = defaultdict(
            lambda: RunHistory(names, risk=risk)
        )
        most: dict[tuple[str | None, ...], float] = defaultdict(float)
        for task in tasks:
            history = histories[task.words]
            if history.runs >= ENOUGH:
                yield history.predict(task.run.sizes).value
            else:  # what `weigh request` says of one or two runs
                yield most[task.words] * 1.2 or None
            history.add(task.run)
            most[task.words] = max(most[task.words], task.run.value)

    return asked


def of_values(rule: Callable[[np.ndarray], float]) -> Method:
    """Give a method that looks at the values before and nothing else."""

    def asked(tasks: Sequence[Task], _sizes: int) -> Iterator[float | None]:
        values = np.array([task.run.value for task in tasks])
        for place in range(len(tasks)):
            yield rule(values[:place]) if place else None

    return asked


def most_of_same(tasks: Sequence[Task], _sizes: int) -> Iterator[float | None]:
    """Request the most seen of the same words and a tenth more."""
    most: dict[tuple[str | None, ...], float] = {}
    for task in tasks:
        words, value = task.words, task.run.value
        yield 1.1 * most[words] if words in most else None
        most[words] = max(value, most.get(words, 0.0))


def of_line(lift: Callable[[np.ndarray], float]) -> Method:
    """Give a least-squares line in the first size, lifted by its own past errors."""

    def asked(tasks: Sequence[Task], sizes: int) -> Iterator[float | None]:
        errors: list[float] = []
        for place, task in enumerate(tasks):
            if not place:
                yield None
                continue
            said = line([one.run for one in tasks[:place]], task.run, sizes)
            yield max(said + (lift(np.array(errors)) if errors else 0), 1)
            errors.append(task.run.value - said)

    return asked


def line(before: Sequence[PastValue], run: PastValue, sizes: int) -> float:
    """Read a least-squares line through *before* at *run*; else the most seen."""
    values = np.array([one.value for one in before])
    if sizes and math.isfinite(run.sizes[0]):
        x = np.array([one.sizes[0] for one in before])
        known = np.isfinite(x)
        if np.unique(x[known]).size > 1:
            off = x[known] - x[known].mean()
            slope = (off * values[known]).sum() / (off * off).sum()
            away = run.sizes[0] - x[known].mean()
            return float(values[known].mean() + slope * away)
    return float(values.max())


def users_own(tasks: Sequence[Task], _sizes: int) -> Iterator[float | None]:
    """Ask for what the user did."""
    return (None for _ in tasks)


METHODS: dict[str, Method] = {
    "the user's request": users_own,
    "most seen + 10 %": most_of_same,
    "Witt, 95th percentile": of_values(lambda values: float(np.quantile(values, 0.95))),
    "Witt, line + deviation": of_line(np.std),
    "line + largest error": of_line(lambda errors: max(errors.max(), 0)),
    **{f"weigh --from history:{risk}": by_history(risk) for risk in RISKS},
}


def play(tasks: Sequence[Task], sizes: int, method: Method) -> Iterator[Score]:
    """Give every task of one type what *method* says, and count what it costs."""
    users = 2.0 ** math.ceil(math.log2(max(task.run.value for task in tasks)))
    most = 0.0
    for task, said in zip(tasks, method(tasks, sizes), strict=True):
        asked = said or task.asked or users
        value, weight = task.run.value, task.run.weight
        total, killed = 0.0, 0
        while asked < value:
            total, asked, killed = total + asked, escalate(asked, most), 1
        yield Score(1, killed, (total + asked - value) * weight, value * weight)
        most = max(most, value)


Types = dict[str, list[Task]]


def variants(path: str) -> Iterator[tuple[str, Types, int]]:
    """Yield a trace as it is, without tasks of unknown size, and with its words."""
    name = os.path.basename(path)
    types, sizes = read(path)
    plain = {key: [Task(one.run, one.asked) for one in of] for key, of in types.items()}
    yield name, plain, sizes
    sized = {
        key: [one for one in of if all(map(math.isfinite, one.run.sizes))]
        for key, of in plain.items()
    }
    if sum(map(len, sized.values())) < OFTEN * sum(map(len, plain.values())):
        yield f"{name}, of known size", sized, sizes
    if any(one.words for of in types.values() for one in of):
        yield f"{name}, by word", types, sizes


def score(types: Types, sizes: int, method: Method) -> tuple[Score, Score]:
    """Score *method*: after 5 runs of each type and words, and from the first."""
    learnt, whole = Score(), Score()
    for tasks in types.values():
        before: Counter[tuple[str | None, ...]] = Counter()
        played = play(tasks, sizes, method)
        for task, one in zip(tasks, played, strict=True):
            whole.add(one)
            if before[task.words] >= LEARNT:
                learnt.add(one)
            before[task.words] += 1
    return learnt, whole


def speed() -> str:
    """Time a fit of 10,000 runs with two sizes, and one prediction."""
    draw = np.random.default_rng(4)
    sizes = draw.uniform(1, 100, (MANY, 2))
    noise = draw.lognormal(0, 0.1, MANY)
    runs = [
        PastValue(float(1e9 * x * e), (float(x), float(y)), float(y))
        for (x, y), e in zip(sizes, noise, strict=True)
    ]
    begun = time.perf_counter()
    history = RunHistory.of(runs, ("x", "y"), risk="normal")
    fitted = time.perf_counter()
    for run in runs[:100]:
        history.predict(run.sizes)
    each = (time.perf_counter() - fitted) / 100
    fit = f"a fit of {MANY:,} runs {fitted - begun:.2f} s"
    return f"{fit}, a prediction {1e3 * each:.2f} ms"


def main(paths: Sequence[str]) -> None:
    """Print a table for each trace and each way to play it."""
    for title, types, sizes in (one for path in paths for one in variants(path)):
        print(f"\n{title}")
        print(f"{'':26}{'after 5: waste, killed':>24}{'from the first':>24}")
        for name, method in METHODS.items():
            learnt, whole = score(types, sizes, method)
            print(f"{name:26}{learnt!s:>24}{whole!s:>24}", flush=True)
    print(f"\n{speed()}")


if __name__ == "__main__":
    main(sys.argv[1:] or [os.path.join(FOLDER, name) for name in SETS])
