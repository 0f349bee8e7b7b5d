"""Public measurements: 12 networks on 5 GPUs, the largest of four batches held out.

Nothing that judges a network was found from that network: the coefficients come from
the other eleven.
"""

import csv
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from weigh.estimate.fit import Fit, coefficient, fit, from_scores, margin_unit
from weigh.estimate.samples import gather
from weigh.units import MIB

DATA = Path(__file__).parents[2] / "support" / "data" / "gpu_memory" / "schedtune.csv"


class Case(msgspec.Struct, frozen=True):
    """A network on a GPU: the fit of its three smaller batches, and the fourth."""

    network: str
    made: Fit
    size: float
    truth: float

    def score(self) -> float:
        last = self.made.points[-1]
        line = self.made.curve.at(self.size)
        proportional = last.y * self.size / last.x
        return (self.truth - line) / margin_unit(
            line, proportional=proportional, largest=last.y
        )


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
        made = fit(gather(known, keep="most"), "gpu_memory")
        found.append(Case(key[0], made, size, truth))
    return found


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
    ("level", "covered", "slack"), [(0.95, 0.97, 0.15), (0.99, 0.99, 0.19)]
)
def test_bounds_hold_for_networks_they_were_not_found_from(
    cases: list[Case], level: float, covered: float, slack: float
) -> None:
    shares = bounds(cases, level)

    assert fmean(share >= 1 for share in shares) >= covered
    assert fmean(shares) - 1 <= slack


def test_the_coefficients_in_the_package_hold_as_well(cases: list[Case]) -> None:
    for level, covered in ((0.9, 0.9), (0.95, 0.97), (0.99, 0.99)):
        uppers = [case.made.upper(case.size, level) >= case.truth for case in cases]

        assert fmean(uppers) >= covered


def test_the_packaged_table_is_what_the_measurements_give(cases: list[Case]) -> None:
    scores = [case.score() for case in cases]

    for level in (0.95, 0.99):
        assert coefficient(level) == pytest.approx(from_scores(scores, level), abs=0.02)


def test_the_largest_batch_by_its_bound_never_runs_out_and_wastes_little(
    cases: list[Case],
) -> None:
    """The card holds just what the held-out batch took."""
    held = [_most(case.made, case.truth) / case.size for case in cases]

    assert fmean(share <= 1 for share in held) >= 0.975
    assert fmean(min(1.0, share) for share in held) >= 0.85


def _most(made: Fit, memory: float) -> int:
    return max(size for size in range(1, 129) if made.upper(size) <= memory)
