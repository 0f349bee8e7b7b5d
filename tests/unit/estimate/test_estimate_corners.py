"""Curves, points and counts where there is little to go by."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.estimate.curve import SizePoint, bent_line


def test_worked_examples_of_curves_and_counts() -> None:
    check_session(Path(__file__).with_name("corners.session"), {})


@given(*[st.integers(-9, 9)] * 3, st.integers(1, 40))
def test_a_bent_line_through_three_points_is_exact(
    a: int, b: int, c: int, least: int
) -> None:
    made = [(x, float(a + b * x + c * x * x)) for x in (least, 2 * least, 5 * least)]
    curve = bent_line([SizePoint(x=x, y=y, low=y, high=y) for x, y in made])

    found = (curve.intercept, curve.slope, curve.square)
    assert found == pytest.approx((a, b, c), abs=1e-6)
