"""Scripts that users wrote, read as their scheduler does; jobs that it describes."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.schedulers import KINDS


def test_worked_examples_of_scripts_of_users() -> None:
    check_session(Path(__file__).with_name("user_scripts.session"), {})


@given(st.sets(st.integers(1, 60), min_size=1))
def test_the_ranges_of_grid_engine_cover_each_index_once(numbers: set[int]) -> None:
    covered: list[int] = []
    for flags in KINDS["gridengine"].user_scripts.only(sorted(numbers), None):
        first, _, rest = flags[1].partition("-")
        last, _, step = rest.partition(":")
        covered += range(int(first), int(last or first) + 1, int(step or 1))

    assert covered == sorted(numbers)
