import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.estimate.trend import ratio_interval, student_quantile, student_share

# Abramowitz and Stegun, table 26.10, and any textbook's
TABLE = {
    (1, 0.95): 12.706,
    (2, 0.95): 4.303,
    (3, 0.95): 3.182,
    (4, 0.95): 2.776,
    (10, 0.95): 2.228,
    (30, 0.95): 2.042,
    (5, 0.99): 4.032,
}
figures = st.floats(0.1, 1e12)


@pytest.mark.parametrize(("freedom", "level"), TABLE)
def test_quantiles_are_those_of_the_printed_table(freedom: int, level: float) -> None:
    expected = TABLE[freedom, level]
    assert student_quantile(freedom, level) == pytest.approx(expected, abs=6e-4)


@given(st.integers(1, 60), st.floats(0.05, 8.0))
def test_the_share_is_the_integral_of_the_density(freedom: int, reach: float) -> None:
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    width = 2 * reach / 2000
    points = (-reach + (turn + 0.5) * width for turn in range(2000))
    area = sum((1 + x * x / freedom) ** (-(freedom + 1) / 2) for x in points) * width
    assert student_share(freedom, reach) == pytest.approx(scale * area, abs=1e-4)


@given(
    st.lists(figures, min_size=2, max_size=6), st.lists(figures, min_size=1, max_size=6)
)
def test_swapping_the_sides_inverts_the_interval(
    base: list[float], other: list[float]
) -> None:
    there, back = ratio_interval(base, other, 0.95), ratio_interval(other, base, 0.95)
    assert there is not None
    assert back is not None
    logs = [math.log(x) if 0 < x < math.inf else None for x in (*there, *back)]
    if None not in logs:
        low, high, its_low, its_high = (one or 0.0 for one in logs)
        assert (its_low, its_high) == pytest.approx((-high, -low), abs=1e-6, rel=1e-6)


@given(
    st.lists(figures, min_size=2, max_size=6),
    st.lists(figures, min_size=2, max_size=6),
    st.floats(1e-3, 1e3),
)
def test_the_unit_of_the_figures_makes_no_difference(
    base: list[float], other: list[float], unit: float
) -> None:
    plain = ratio_interval(base, other, 0.95)
    scaled = ratio_interval([v * unit for v in base], [v * unit for v in other], 0.95)
    assert scaled == pytest.approx(plain, rel=1e-3)


def test_one_run_each_has_no_interval() -> None:
    assert ratio_interval([2.0], [3.0], 0.95) is None


@pytest.mark.parametrize("runs", [(2, 2), (3, 3), (5, 5), (1, 5), (10, 10)])
def test_of_equal_runs_at_most_one_pair_in_fifteen_is_distinguished(
    runs: tuple[int, int],
) -> None:
    told = 0
    for seed in range(1000):
        noise = random.Random(seed)
        sides = [[math.exp(noise.gauss(0, 0.05)) for _ in range(n)] for n in runs]
        low, high = ratio_interval(sides[0], sides[1], 0.95) or (0.0, 2.0)
        told += not low <= 1 <= high
    assert told <= 67
