"""Measured curves of memory: what larger sizes took is held out.

They are those of benchmarks/estimate.py, which prints what is asserted here: of a
network the coefficients come from the eleven others, and nothing was chosen on HELD_OUT
or on the jobs that are held back.
"""

import sys
from pathlib import Path
from statistics import fmean

import pytest
from conformal import from_scores
from sized_runs import fit_of

from weigh.estimate.curve import LinearCurve
from weigh.estimate.fit import caveats, coefficient, fit_curve
from weigh.units import MIB

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from estimate import (
    HELD_OUT,
    SEEN,
    cases,
    fitted,
    largest_size,
    milabench,
    of_curve,
    own,
    score,
    well_apart,
    with_coefficient,
)

CASES = cases()


def test_there_are_sixty_curves_of_three_batches_and_their_double() -> None:
    assert len(CASES) == 60
    assert all(case.size == 2 * case.known[-1].x for case in CASES)


def test_twice_the_largest_batch_is_predicted_to_six_per_cent() -> None:
    errors = [abs(fitted(c).predict(c.size) - c.truth) / c.truth for c in CASES]

    assert fmean(errors) <= 0.06


@pytest.mark.parametrize(
    ("level", "covered", "slack"), [(0.95, 0.96, 0.23), (0.99, 0.98, 0.27)]
)
def test_bounds_hold_for_networks_they_were_not_found_from(
    level: float, covered: float, slack: float
) -> None:
    shares = [with_coefficient(CASES, c, level)(c.size) / c.truth for c in CASES]

    assert fmean(share >= 1 for share in shares) >= covered
    assert fmean(shares) - 1 <= slack


def test_the_coefficients_in_the_package_hold_as_well() -> None:
    for level in (0.9, 0.95, 0.99):
        held = [fitted(case).upper(case.size, level) >= case.truth for case in CASES]

        assert fmean(held) >= level


def test_the_packaged_table_is_what_the_measurements_give() -> None:
    lines = [
        one
        for one in own(SEEN)
        if isinstance(fit_curve(one.known, "memory").curve, LinearCurve)
    ]
    scores = [score(case) for case in (*CASES, *lines)]

    for level in (0.9, 0.95, 0.99):
        assert coefficient(level) == pytest.approx(from_scores(scores, level), abs=0.02)


@pytest.mark.parametrize(
    ("level", "covered", "slack"),
    [(0.9, 0.95, 0.29), (0.95, 0.97, 0.3), (0.99, 1, 0.36)],
)
def test_bounds_hold_for_families_that_nothing_was_chosen_on(
    level: float, covered: float, slack: float
) -> None:
    shares = [
        fit_curve(case.known, "memory").upper(case.size, level) / case.truth
        for case in own(HELD_OUT)
    ]

    assert fmean(share >= 1 for share in shares) >= covered
    assert fmean(shares) - 1 <= slack


def test_bounds_hold_for_real_training_jobs_that_nothing_was_chosen_on() -> None:
    shares = [
        [
            fit_curve(points, "gpu_memory").upper(size) / curve[size]
            for points, size in of_curve(curve, well_apart)
        ]
        for curve in milabench(["H100", "L40S"], held_back=True)
    ]

    found = [each for each in shares if each]
    assert len(found) > 20
    assert fmean(fmean(one >= 1 for one in each) for each in found) >= 0.95
    assert fmean(fmean(each) for each in found) - 1 <= 0.15


@pytest.mark.parametrize("sizes", [(100, 200, 400), (300, 400, 500), (8, 12, 16)])
@pytest.mark.parametrize("linear", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("times", [2, 4])
def test_memory_that_grows_with_the_square_is_bounded(
    sizes: tuple[int, ...], linear: float, times: int
) -> None:
    def use(size: float) -> float:
        part = size / sizes[-1]
        return (500 + 200 * (part * part + linear * part)) * MIB

    made = fit_of((size, use(size)) for size in sizes)

    assert made.upper(times * sizes[-1]) >= use(times * sizes[-1])


def test_sizes_close_to_each_other_are_no_reason_to_trust_a_number_far_off() -> None:
    made = fit_of((x, x * x * MIB) for x in (10, 11, 12))

    assert any("too close" in why for why in caveats(made, 24))


def test_the_largest_batch_by_its_bound_never_runs_out_and_wastes_little() -> None:
    """The card holds just what the held-out batch took."""
    held = [largest_size(fitted(c).upper, c.truth) / c.size for c in CASES]

    assert fmean(share <= 1 for share in held) >= 0.975
    assert fmean(min(1.0, share) for share in held) >= 0.85
