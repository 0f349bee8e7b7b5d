import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.estimate.history import (
    LowerBound,
    PastValue,
    RunHistory,
    escalate,
    least_request,
    margin_above_largest,
    still_open,
)

figures = st.floats(1, 1e15)


def three_runs(*bounds: LowerBound) -> RunHistory:
    runs = [PastValue(float(value), (float(value),)) for value in (10, 20, 30)]
    return RunHistory.of([*runs, *bounds], ["x"])


@given(figures, figures)
def test_a_retry_requests_twice_as_much_and_for_what_history_states(
    killed_at: float, predicted: float
) -> None:
    assert escalate(killed_at, predicted) == max(2 * killed_at, predicted)


def test_a_kill_doubles_what_the_next_is_given() -> None:
    said = three_runs(LowerBound(40.0, (20.0,))).predict([20.0])

    assert (said.value, said.after_kill) == (80.0, 80.0)


def test_each_kill_doubles_again() -> None:
    bounds = [LowerBound(40.0, (20.0,)), LowerBound(80.0, (20.0,))]

    assert three_runs(*bounds).predict([20.0]).value == 160.0


def test_history_wins_where_it_states_more() -> None:
    said = three_runs(LowerBound(12.0, (20.0,))).predict([20.0])

    assert said.value == pytest.approx(30 * (1 + margin_above_largest(3, [30, 20, 10])))
    assert said.after_kill is None


def test_a_smaller_run_is_not_raised_by_a_kill_of_a_larger() -> None:
    history = three_runs(LowerBound(40.0, (30.0,)))

    assert history.predict([20.0]).after_kill is None


@pytest.mark.parametrize("at", [[20.0], [25.0], [math.nan]])
def test_an_equal_a_larger_and_an_unknown_run_are_raised(at: list[float]) -> None:
    assert three_runs(LowerBound(40.0, (20.0,))).predict(at).value == 80.0


def test_a_run_that_completes_with_as_much_settles_it() -> None:
    history = three_runs(LowerBound(40.0, (20.0,)))
    history.add(PastValue(40.0, (20.0,)))

    said = history.predict([20.0])

    assert said.after_kill is None
    assert said.value == pytest.approx(40 * (1 + margin_above_largest(4, [40, 30, 20])))


def test_a_run_that_completes_with_less_settles_it_where_it_is_no_smaller() -> None:
    history = three_runs(LowerBound(40.0, (20.0,)))
    history.add(PastValue(25.0, (20.0,)))

    assert history.predict([20.0]).after_kill is None


def test_without_sizes_a_smaller_use_settles_nothing() -> None:
    bounds = [LowerBound(40.0)]

    assert still_open(bounds, 25.0, ()) == bounds


def test_a_run_that_was_only_seen_to_use_so_much_is_not_doubled() -> None:
    assert least_request([LowerBound(40.0, factor=1)], ()) == 40.0
