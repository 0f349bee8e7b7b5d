"""Curves, points and counts where there is little to go by."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from sized_runs import BY
from some_runs import a_run

from weigh.estimate.curve import SizePoint, bent_line
from weigh.estimate.readings import groups_of


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


@pytest.mark.parametrize("word", ["{}e6", "data.{}.csv", ".{}", "{}000", "a1{}", "-{}"])
def test_runs_are_one_group_however_the_size_is_written_in_a_word(word: str) -> None:
    def groups(*sizes: int) -> list[str]:
        runs = [a_run(f"a {word.format(n)} 421", parameters={BY: n}) for n in sizes]
        return [" ".join(group.command) for group in groups_of(runs)]

    assert groups(1, 2, 4) == [f"a {word} 421".replace("{}", f"{{{BY}}}")] * 3
