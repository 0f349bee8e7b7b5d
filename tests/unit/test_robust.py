import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.robust import ratio_interval, student_quantile

# Abramowitz and Stegun, table 26.10, and any textbook's
TABLE = {1: 12.706, 2: 4.303, 4: 2.776, 10: 2.228, 30: 2.042, 40: 2.021, 120: 1.980}
figures = st.floats(0.1, 1e12)


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_are_those_of_the_printed_table(freedom: int) -> None:
    assert student_quantile(freedom) == pytest.approx(TABLE[freedom], abs=6e-4)


@given(
    st.lists(figures, min_size=2, max_size=6), st.lists(figures, min_size=1, max_size=6)
)
def test_swapping_the_sides_inverts_the_interval(
    base: list[float], other: list[float]
) -> None:
    there, back = ratio_interval(base, other), ratio_interval(other, base)
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
    plain = ratio_interval(base, other)
    scaled = ratio_interval([v * unit for v in base], [v * unit for v in other])
    assert scaled == pytest.approx(plain, rel=1e-3)


def test_one_run_each_has_no_interval() -> None:
    assert ratio_interval([2.0], [3.0]) is None


@pytest.mark.parametrize("runs", [(2, 2), (3, 3), (5, 5), (1, 5), (10, 10)])
def test_of_equal_runs_at_most_one_pair_in_fifteen_is_distinguished(
    runs: tuple[int, int],
) -> None:
    told = 0
    for seed in range(1000):
        noise = random.Random(seed)
        sides = [[math.exp(noise.gauss(0, 0.05)) for _ in range(n)] for n in runs]
        low, high = ratio_interval(sides[0], sides[1]) or (0.0, 2.0)
        told += not low <= 1 <= high
    assert told <= 67
