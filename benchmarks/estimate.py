"""How well sizes foretell larger ones: the tables of docs/accuracy.md.

    python benchmarks/estimate.py

SchedTune's measurements (tests/support/data/gpu_memory): 12 networks on 5 GPUs, peak
memory at batches of 8, 16, 32 and 64. The three smallest are known, 64 is held out.
Every coefficient is found from the other eleven networks, never from the one it judges.
milabench's (the same folder): its training jobs on three GPUs, many batch sizes each;
three known sizes and larger ones up to four times as large. Nothing was chosen on the
jobs of HELD_BACK, nor on any of the MI325.
Our own (tests/support/data/memory): six families of networks on a CPU, likewise.
Nothing was chosen on the last three.
"""

import csv
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from statistics import fmean, median

import msgspec

from weigh.estimate.curve import (
    MemoryFailure,
    SizePoint,
    fit_line,
    fit_power,
    gather_size_points,
)
from weigh.estimate.estimate import SizeEstimate, estimate
from weigh.estimate.fit import (
    FittedCurve,
    coefficient,
    fit_curve,
    margin_unit,
    sizes_that_fit,
)
from weigh.model.record import PeakMemory, Record, Usage
from weigh.units import GIB, MIB

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "support"))
from conformal import from_scores

FOLDER = os.path.join(os.path.dirname(__file__), "..", "tests", "support", "data")
DATA = os.path.join(FOLDER, "gpu_memory", "schedtune.csv")
MILABENCH = os.path.join(FOLDER, "gpu_memory", "milabench.csv")
OWN = os.path.join(FOLDER, "memory", "torch.csv")
MIB_OF = {"H100": 81_559, "L40S": 46_068, "MI325": 262_144}  # what each GPU has
FULL = 0.98  # from here on the allocator gives back what it cached, so it is not a peak
HELD_BACK: tuple[str, ...] = (
    "brax",
    "diffusion",
    "dinov2",
    "lightning",
    "recursiongfn",
    "regnet",
)
HELD_BACK += ("resnet", "t5", "vjepa", "whisper")
NO_SIZE = ("torchatari",)  # its memory falls from batch to batch
APART = 1.25  # sizes of a good scan
SEEN, HELD_OUT = ("mlp", "gnn", "lstm"), ("unet", "gpt", "cnn")
KNOWN = [(4, 8, 12), (4, 8, 16), (4, 16, 32), (8, 16, 32)]
KNOWN += [(12, 16, 24), (16, 24, 32), (24, 32, 48)]
LEVELS = (0.9, 0.95, 0.99)


class Case(msgspec.Struct, frozen=True):
    """One network on one GPU: what is known, and what is held out."""

    model: str
    known: tuple[SizePoint, ...]
    size: float
    truth: float


def cases() -> list[Case]:
    """Read the measurements, the largest batch of each curve held out."""
    curves: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with open(DATA, newline="") as file:
        for row in csv.DictReader(file):
            gpu = (row["Pipelines/CUDA cores"], row["Memory bandwidth (GB/s)"])
            point = (float(row["batchsize"]), float(row["peak mem usage"]) * MIB)
            curves.setdefault((row["model"], *gpu), []).append(point)
    return [
        Case(key[0], gather_size_points(pairs[:-1], keep="most"), *pairs[-1])
        for key, pairs in curves.items()
        if pairs.sort() is None
    ]


def fitted(case: Case) -> FittedCurve:
    """Fit what is known."""
    return fit_curve(case.known, "gpu_memory")


def score(case: Case) -> float:
    """Say how many units of the margin above the line the truth lies."""
    line = fitted(case).curve.at(case.size)
    return (case.truth - line) / margin_unit(case.known, line, case.size)


def predictions(found: Sequence[Case]) -> None:
    """Print how far off each way is at the held-out size."""

    def last_through_origin(case: Case) -> float:
        return case.known[-1].y * case.size / case.known[-1].x

    def first_through_origin(case: Case) -> float:
        return case.known[0].y * case.size / case.known[0].x

    def power(case: Case) -> float:
        curve = fit_power(case.known)
        return curve.at(case.size) if curve else float("nan")

    ways: dict[str, Callable[[Case], float]] = {
        "weigh": lambda case: fitted(case).predict(case.size),
        "Theil-Sen line": lambda case: fit_line(case.known).at(case.size),
        "power law": power,
        "largest through the origin": last_through_origin,
        "smallest through the origin": first_through_origin,
    }
    print("| way | MAPE | median | worst under | worst over |")
    print("|---|---|---|---|---|")
    for name, way in ways.items():
        errors = [(way(case) - case.truth) / case.truth for case in found]
        sizes = [abs(error) for error in errors]
        print(
            f"| {name} | {fmean(sizes):.1%} | {median(sizes):.1%} "
            f"| {min(errors):.0%} | {max(errors):.0%} |"
        )


def bounds(found: Sequence[Case]) -> None:
    """Print how often the bound holds, and how far above the truth it is."""
    print("\n| level | covered | mean slack | coefficient | shipped |")
    print("|---|---|---|---|---|")
    for level in LEVELS:
        covered, slack, used = [], [], []
        for case in found:
            made = with_coefficient(found, case, level)
            upper = made(case.size)
            covered.append(upper >= case.truth)
            slack.append(upper / case.truth - 1)
            used.append(others(found, case, level))
        print(
            f"| {level:.0%} | {fmean(covered):.1%} | {fmean(slack):.1%} "
            f"| {fmean(used):.2f} | {coefficient(level):.2f} |"
        )


def own(families: Sequence[str]) -> list[Case]:
    """Read our own curves: three known sizes, and each larger one at a time."""
    curves: dict[str, dict[int, float]] = {}
    with open(OWN, newline="") as file:
        for row in csv.DictReader(file):
            if row["family"] in families:
                curve = curves.setdefault(row["family"] + row["variant"], {})
                curve[int(row["batch"])] = float(row["peak_memory"])
    return [
        Case(
            name,
            gather_size_points([(x, curve[x]) for x in known], keep="most"),
            size,
            truth,
        )
        for name, curve in curves.items()
        for known in KNOWN
        for size, truth in curve.items()
        if known[-1] < size <= 4 * known[-1]
    ]


def own_bounds() -> None:
    """Print how the shipped bounds do on our own curves."""
    print("\n| families | level | covered | mean slack | largest shortfall |")
    print("|---|---|---|---|---|")
    for families in (SEEN, HELD_OUT):
        for level in LEVELS:
            shares = [
                fit_curve(case.known, "memory").upper(case.size, level) / case.truth
                for case in own(families)
            ]
            held = fmean(share >= 1 for share in shares)
            print(
                f"| {', '.join(families)} | {level:.0%} | {held:.1%} "
                f"| {fmean(shares) - 1:.1%} | {max(0, 1 - min(shares)):.1%} |"
            )


def milabench(gpus: Sequence[str], *, held_back: bool) -> list[dict[int, int]]:
    """Read the curves of *gpus*: bytes by batch size, where the GPU was not full."""
    curves: dict[tuple[str, str], dict[int, int]] = {}
    with open(MILABENCH, newline="") as file:
        for row in csv.DictReader(file):
            gpu, model, memory = row["gpu"], row["model"], int(row["memory_mib"])
            back = model.startswith(HELD_BACK)
            if gpu not in gpus or model.startswith(NO_SIZE) or back is not held_back:
                continue
            if memory < FULL * MIB_OF[gpu]:
                curve = curves.setdefault((gpu, model), {})
                curve[int(row["batch"])] = memory * MIB
    return [dict(sorted(curve.items())) for curve in curves.values() if len(curve) > 3]


def smallest_three(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Yield the three smallest sizes."""
    yield tuple(sizes[:3])


def well_apart(sizes: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Yield all threes of which each is a quarter larger than the one before."""
    for low, middle, high in combinations(sizes, 3):
        if APART * low <= middle and APART * middle <= high and 1.6 * low <= high:
            yield low, middle, high


def of_curve(
    curve: dict[int, int], threes: Callable[[Sequence[int]], Iterable[tuple[int, ...]]]
) -> list[tuple[tuple[SizePoint, ...], int]]:
    """Return the known points and a larger size, for each three and each such size."""
    return [
        (gather_size_points([(x, curve[x]) for x in known], keep="most"), size)
        for known in threes(list(curve))
        for size in curve
        if known[-1] < size <= 4 * known[-1]
    ]


def real_jobs() -> None:
    """Print how bounds, and the largest batches that follow, do on milabench's jobs.

    Each curve counts the same, however many sizes it has.
    """
    nvidia = ("H100", "L40S")
    sets = {
        "seen": milabench(nvidia, held_back=False),
        "held back": milabench(nvidia, held_back=True),
        "MI325": milabench(("MI325",), held_back=False)
        + milabench(("MI325",), held_back=True),
    }
    print("\n| jobs | sizes | error | 95% held, slack | 99% held, slack |", end="")
    print(" batch: no OOM, of the true maximum | after a confirming run |")
    print("|---|---|---|---|---|---|---|")
    for name, curves in sets.items():
        for threes in (smallest_three, well_apart):
            print(f"| {name} | {threes.__name__} | {_real_row(curves, threes)} |")


def _real_row(
    curves: Sequence[dict[int, int]],
    threes: Callable[[Sequence[int]], Iterable[tuple[int, ...]]],
) -> str:
    columns: dict[str, list[float]] = {}
    for curve in curves:
        found: dict[str, list[float]] = {}
        for known, size in of_curve(curve, threes):
            made, truth = fit_curve(known, "gpu_memory"), curve[size]
            found.setdefault("error", []).append(abs(made.predict(size) / truth - 1))
            for level in LEVELS[1:]:
                upper = made.upper(size, level)
                found.setdefault(f"held {level}", []).append(upper >= truth)
                found.setdefault(f"slack {level}", []).append(upper / truth - 1)
            if max(curve[x] for x in curve if x <= size) > truth:
                continue  # a smaller size takes more: this is no maximum
            most = largest_size(made.upper, truth)
            again = _confirmed_in(curve, known, most, truth)
            for kind, batch in (("", most), (" again", again)):
                found.setdefault("ran" + kind, []).append(batch <= size)
                found.setdefault("of" + kind, []).append(min(batch, size) / size)
        for key, values in found.items():
            columns.setdefault(key, []).append(fmean(values))
    share = {key: f"{fmean(values):.1%}" for key, values in columns.items()}
    return (
        f"{share['error']} | {share['held 0.95']}, {share['slack 0.95']} "
        f"| {share['held 0.99']}, {share['slack 0.99']} "
        f"| {share['ran']}, {share['of']} | {share['ran again']}, {share['of again']}"
    )


def _confirmed_in(
    curve: dict[int, int], known: tuple[SizePoint, ...], size: int, memory: float
) -> int:
    """Return what is recommended after *size* was run, if there is *memory*.

    Between measured sizes memory is taken to rise evenly.
    """
    if size <= known[-1].x:
        return size
    sizes = sorted(curve)
    place = bisect_left(sizes, size)
    used = float("inf")
    if place < len(sizes):
        low, high = sizes[place - 1], sizes[place]
        rise = (curve[high] - curve[low]) / (high - low)
        used = curve[low] + rise * (size - low)
    if used > memory:
        failed = fit_curve(
            known, "gpu_memory", failure=MemoryFailure(size, int(memory))
        )
        return sizes_that_fit(failed, memory).size or 0
    pairs = [(point.x, point.y) for point in known] + [(size, used)]
    return largest_size(
        fit_curve(gather_size_points(pairs, keep="most"), "gpu_memory").upper, memory
    )


def others(found: Sequence[Case], case: Case, level: float) -> float:
    """Find the coefficient from the other networks."""
    return from_scores([score(c) for c in found if c.model != case.model], level)


def with_coefficient(
    found: Sequence[Case], case: Case, level: float
) -> Callable[[float], float]:
    """Give the case's upper bound with the coefficient of the other networks."""
    made, factor = fitted(case), others(found, case, level)
    return lambda x: made.bound(x, factor)


def largest(found: Sequence[Case]) -> None:
    """The card holds just what the held-out size took: 64 is the true maximum."""
    print("\n| largest batch | no OOM | of the true maximum |")
    print("|---|---|---|")
    for name, level in [(f"bound {level:.0%}", level) for level in LEVELS]:
        sizes = [
            largest_size(with_coefficient(found, c, level), c.truth) for c in found
        ]
        _print_row(name, sizes, found)
    confirmed = [_confirmed(found, case) for case in found]
    _print_row("bound 95%, after one confirming run", confirmed, found)
    lines = [largest_size(fit_line(case.known).at, case.truth) for case in found]
    _print_row("bare line", lines, found)


def _confirmed(found: Sequence[Case], case: Case) -> int:
    """Run the recommended size once, as if between 32 and 64 memory were a line.

    If that runs out of memory, the scan knows, and what it recommends is smaller.
    """
    first = largest_size(with_coefficient(found, case, 0.95), case.truth)
    last = case.known[-1]
    if first > case.size:
        failure = MemoryFailure(first, int(case.truth))
        made = fit_curve(case.known, "gpu_memory", failure=failure)
        return sizes_that_fit(made, case.truth).size or 0
    if first == case.size or first <= last.x:
        return first
    slope = (case.truth - last.y) / (case.size - last.x)
    seen = SizePoint(first, *(last.y + slope * (first - last.x),) * 3)
    confirmed = Case(case.model, (*case.known, seen), case.size, case.truth)
    return largest_size(with_coefficient(found, confirmed, 0.95), case.truth)


def largest_size(use: Callable[[float], float], memory: float) -> int:
    """Return the largest size whose *use* fits in *memory*."""
    size = 1
    while use(size + 1) <= memory:
        size += 1
    return size


def _print_row(name: str, sizes: Sequence[int], found: Sequence[Case]) -> None:
    safe = [size <= case.size for size, case in zip(sizes, found, strict=True)]
    share = [min(size, c.size) / c.size for size, c in zip(sizes, found, strict=True)]
    print(f"| {name} | {fmean(safe):.1%} | {fmean(share):.1%} |")


def guide() -> None:
    """The V100 example: 50 and 300, 30 GB for the model and the batch together."""
    giga = 10**9
    totals = gather_size_points(
        [(50, 1.9911 * giga), (300, 7.0809 * giga)], keep="most"
    )
    held = sizes_that_fit(
        fit_curve(totals, "gpu_memory", base=1.3270 * giga), 30 * giga
    )
    print(f"\nV100, 30 GB: {held.size} to {held.at_most}; next {held.next_size}")
    print(*held.why, sep="\n")


def speed() -> None:
    """Time a fit of many records and a bound."""
    made = of_many(10_000)
    start = time.perf_counter()
    of_many_fitted: SizeEstimate = estimate(made, "size")
    fitting = time.perf_counter() - start
    start = time.perf_counter()
    for size in range(1, 1001):
        of_many_fitted.upper(size)
    print(f"\nfit of 10,000 records {fitting:.2f} s; ", end="")
    print(f"a bound {(time.perf_counter() - start):.3f} ms")


def of_many(count: int) -> list[Record]:
    """Make *count* records of different sizes."""
    return [
        Record(
            id=f"{i:012x}",
            command=("job", str(i + 1)),
            parameters={"size": i + 1},
            started="2026-11-21T10:00:00Z",
            state="COMPLETED",
            usage=Usage(
                wall_time=1.0 + i,
                peak_memory=PeakMemory(
                    GIB + i * MIB, GIB, 2 * GIB + i * MIB, None, None, None, "made"
                ),
            ),
        )
        for i in range(count)
    ]


def main() -> None:
    """Print every table."""
    found = cases()
    predictions(found)
    bounds(found)
    own_bounds()
    largest(found)
    real_jobs()
    guide()
    speed()


if __name__ == "__main__":
    main()
