"""Measured curves of memory: what larger sizes took is held out.

Public: 12 networks on 5 GPUs, their largest batch held out; the coefficients that judge
a network come from the other eleven. Our own: six families of networks in torch, three
of each, the memory of a process on a CPU at ten batches; three sizes are known, larger
ones, up to four times the largest, held out. Nothing was chosen on the last three.
milabench's training jobs on an H100 and an L40S, likewise: nothing was chosen on the
jobs of HELD_BACK.
"""

import csv
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
from conformal import from_scores

from weigh.estimate.curve import LinearCurve, gather_size_points
from weigh.estimate.fit import (
    FittedCurve,
    caveats,
    coefficient,
    fit_curve,
    margin_unit,
)
from weigh.units import MIB

FOLDER = Path(__file__).parents[2] / "support" / "data"
DATA = FOLDER / "gpu_memory" / "schedtune.csv"
OWN = FOLDER / "memory" / "torch.csv"
SEEN, HELD_OUT = {"mlp", "gnn", "lstm"}, {"unet", "gpt", "cnn"}
JOBS = FOLDER / "gpu_memory" / "milabench.csv"
HELD_BACK: tuple[str, ...] = (
    "brax",
    "diffusion",
    "dinov2",
    "lightning",
    "recursiongfn",
    "regnet",
)
HELD_BACK += ("resnet", "t5", "vjepa", "whisper")
FULL = {"H100": 79_900, "L40S": 45_100}  # MiB: from here on caches are given back
KNOWN = [(4, 8, 12), (4, 8, 16), (4, 16, 32), (8, 16, 32), (12, 16, 24), (16, 24, 32)]


class Case(msgspec.Struct, frozen=True):
    """A network on a GPU: the fit of its three smaller batches, and the fourth."""

    network: str
    made: FittedCurve
    size: float
    truth: float

    def score(self) -> float:
        line = self.made.curve.at(self.size)
        return (self.truth - line) / margin_unit(self.made.points, line, self.size)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    curves: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            gpu = (row["Pipelines/CUDA cores"], row["Memory bandwidth (GB/s)"])
            point = (float(row["batchsize"]), float(row["peak mem usage"]) * MIB)
            curves.setdefault((row["model"], *gpu), []).append(point)
    found = []
    for key, points in curves.items():
        *known, (size, truth) = sorted(points)
        made = fit_curve(gather_size_points(known, keep="most"), "gpu_memory")
        found.append(Case(key[0], made, size, truth))
    return found


def own(families: set[str]) -> Iterator[Case]:
    """Give our own curves, three known sizes and each larger one at a time."""
    curves: dict[str, dict[int, float]] = {}
    with OWN.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["family"] in families:
                name = row["family"] + row["variant"]
                curves.setdefault(name, {})[int(row["batch"])] = float(
                    row["peak_memory"]
                )
    for name, curve in curves.items():
        for known in (*KNOWN, (24, 32, 48)):
            points = gather_size_points(
                [(size, curve[size]) for size in known], keep="most"
            )
            made = fit_curve(points, "memory")
            larger = (x for x in curve if known[-1] < x <= 4 * known[-1])
            for size in larger:
                yield Case(name, made, size, curve[size])


def jobs() -> Iterator[Case]:
    """Give milabench's curves held back, by all threes of sizes that are well apart."""
    curves: dict[tuple[str, str], dict[int, float]] = {}
    with JOBS.open(newline="") as file:
        for row in csv.DictReader(file):
            job, memory = (row["gpu"], row["model"]), int(row["memory_mib"])
            if row["model"].startswith(HELD_BACK) and memory < FULL.get(row["gpu"], 0):
                curves.setdefault(job, {})[int(row["batch"])] = float(memory * MIB)
    for job, curve in curves.items():
        for known in combinations(sorted(curve), 3):
            points = gather_size_points(
                [(size, curve[size]) for size in known], keep="most"
            )
            if known[1] >= 1.25 * known[0] and known[2] >= 1.25 * known[1]:
                made = fit_curve(points, "gpu_memory")
                larger = (x for x in curve if known[-1] < x <= 4 * known[-1])
                yield from (Case("-".join(job), made, x, curve[x]) for x in larger)


def bounds(cases: list[Case], level: float) -> list[float]:
    """Give each bound as a share of the truth, by the other networks' scores."""
    found = []
    for case in cases:
        others = [c.score() for c in cases if c.network != case.network]
        upper = case.made.bound(case.size, from_scores(others, level))
        found.append(upper / case.truth)
    return found


def test_there_are_sixty_curves_of_three_batches_and_their_double(
    cases: list[Case],
) -> None:
    assert len(cases) == 60
    assert all(case.size == 2 * case.made.largest_size for case in cases)


def test_twice_the_largest_batch_is_predicted_to_six_per_cent(
    cases: list[Case],
) -> None:
    errors = [abs(c.made.predict(c.size) - c.truth) / c.truth for c in cases]

    assert fmean(errors) <= 0.06


@pytest.mark.parametrize(
    ("level", "covered", "slack"), [(0.95, 0.96, 0.23), (0.99, 0.98, 0.27)]
)
def test_bounds_hold_for_networks_they_were_not_found_from(
    cases: list[Case], level: float, covered: float, slack: float
) -> None:
    shares = bounds(cases, level)

    assert fmean(share >= 1 for share in shares) >= covered
    assert fmean(shares) - 1 <= slack


def test_the_coefficients_in_the_package_hold_as_well(cases: list[Case]) -> None:
    for level, covered in ((0.9, 0.9), (0.95, 0.95), (0.99, 0.99)):
        uppers = [case.made.upper(case.size, level) >= case.truth for case in cases]

        assert fmean(uppers) >= covered


def test_the_packaged_table_is_what_the_measurements_give(cases: list[Case]) -> None:
    lines = [one for one in own(SEEN) if isinstance(one.made.curve, LinearCurve)]
    scores = [case.score() for case in (*cases, *lines)]

    for level in (0.9, 0.95, 0.99):
        assert coefficient(level) == pytest.approx(from_scores(scores, level), abs=0.02)


@pytest.mark.parametrize(
    ("level", "covered", "slack"),
    [(0.9, 0.95, 0.29), (0.95, 0.97, 0.3), (0.99, 1, 0.36)],
)
def test_bounds_hold_for_families_that_nothing_was_chosen_on(
    level: float, covered: float, slack: float
) -> None:
    shares = [case.made.upper(case.size, level) / case.truth for case in own(HELD_OUT)]

    assert fmean(share >= 1 for share in shares) >= covered
    assert fmean(shares) - 1 <= slack


def test_bounds_hold_for_real_training_jobs_that_nothing_was_chosen_on() -> None:
    shares: dict[str, list[float]] = {}
    for case in jobs():
        share = case.made.upper(case.size) / case.truth
        shares.setdefault(case.network, []).append(share)

    held = [fmean(one >= 1 for one in found) for found in shares.values()]
    assert len(held) > 20
    assert fmean(held) >= 0.95
    assert fmean(fmean(found) for found in shares.values()) - 1 <= 0.15


@pytest.mark.parametrize("sizes", [(100, 200, 400), (300, 400, 500), (8, 12, 16)])
@pytest.mark.parametrize("linear", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("times", [2, 4])
def test_memory_that_grows_with_the_square_is_bounded(
    sizes: tuple[int, ...], linear: float, times: int
) -> None:
    def use(size: float) -> float:
        part = size / sizes[-1]
        return (500 + 200 * (part * part + linear * part)) * MIB

    made = fit_curve(
        gather_size_points([(size, use(size)) for size in sizes], keep="most"), "memory"
    )

    assert made.upper(times * sizes[-1]) >= use(times * sizes[-1])


def test_sizes_close_to_each_other_are_no_reason_to_trust_a_number_far_off() -> None:
    points = gather_size_points([(x, x * x * MIB) for x in (10, 11, 12)], keep="most")

    assert any("too close" in why for why in caveats(fit_curve(points, "memory"), 24))


def test_the_largest_batch_by_its_bound_never_runs_out_and_wastes_little(
    cases: list[Case],
) -> None:
    """The card holds just what the held-out batch took."""
    held = [_most(case.made, case.truth) / case.size for case in cases]

    assert fmean(share <= 1 for share in held) >= 0.975
    assert fmean(min(1.0, share) for share in held) >= 0.85


def _most(made: FittedCurve, memory: float) -> int:
    return max(size for size in range(1, 129) if made.upper(size) <= memory)
