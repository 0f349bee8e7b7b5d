"""When a list of tasks is done, against tasks that are played through."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weigh.model.record import ReportedProgress
from weigh.progress.eta import (
    TaskDurations,
    TaskTally,
    TimeSpan,
    time_left_of,
    until_done,
)

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from progress_lists import look, played

SECONDS = st.floats(0.0, 1e6)
TRIALS = 50


def known(times: Sequence[float]) -> TaskDurations:
    return TaskDurations(tuple(times), len(times))


ONE, OTHER = TimeSpan(20.0, 18.0, 22.0), TimeSpan(10.0, 8.0, 15.0)
NOW = TimeSpan(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("running", "waiting", "times", "lanes", "expected"),
    [
        ([OTHER, ONE], 0, [], 2, ONE),  # the last one counts
        # each is at 100, and the last of many later than each
        ([TimeSpan(100.0, 80.0, 120.0)] * 12, 0, [], 12, TimeSpan(120.0, 105.0, 135.0)),
        ([], 5, [60.0] * 10, 2, TimeSpan(180.0, 160.0, 202.0)),  # three after another
        ([NOW, NOW], 0, [], 2, NOW),
        # without a time of any task nothing is predicted
        ([5.0], 0, [], 1, None),
        ([TimeSpan(1.0, 1.0, 1.0)], 3, [], 2, None),
    ],
)
def test_a_list_ends_with_its_last_task(
    running: list[TimeSpan | float],
    waiting: int,
    times: list[float],
    lanes: int,
    expected: TimeSpan | None,
) -> None:
    found = until_done(running, waiting, known(times), lanes=lanes)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.value == pytest.approx(expected.value, rel=0.03)
    assert found.low == pytest.approx(expected.low, rel=0.06)
    assert found.high == pytest.approx(expected.high, rel=0.06)


def test_the_last_task_ends_as_it_forecasts() -> None:
    assert until_done([OTHER], 0, known([]), lanes=2) == OTHER


def test_many_tasks_are_summed_up_as_they_are_played() -> None:
    played_out = until_done([], 2000, known([10.0, 20.0]), lanes=8)
    summed = until_done([], 2001, known([10.0, 20.0]), lanes=8)
    assert played_out is not None
    assert summed is not None
    assert abs(summed.value - played_out.value) < 0.02 * played_out.value


@pytest.mark.parametrize("lanes", [1, 4, 12])
def test_the_interval_holds_while_short_tasks_are_done_and_long_ones_run(
    lanes: int,
) -> None:
    """What is done first is short, and does not pass for all."""
    draw = random.Random(5)
    held = 0
    for _ in range(TRIALS):
        times = [draw.lognormvariate(4.0, 0.4) for _ in range(60)]
        held += look(played(times, lanes), lanes, draw.choice([6, 15, 40]))[0]
    assert held >= 0.84 * TRIALS


@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS), max_size=6),
    st.integers(0, 50),
    st.lists(SECONDS, max_size=8),
    st.lists(SECONDS, max_size=4),
    st.integers(1, 10),
)
def test_the_value_lies_within_its_interval(
    running: list[tuple[float, float, float]],
    waiting: int,
    times: list[float],
    silent: list[float],
    lanes: int,
) -> None:
    spans = [TimeSpan(sorted(t)[1], min(t), max(t)) for t in running]
    all_known = TaskDurations(tuple(times), len(times), tuple(silent))
    found = until_done([*spans, *silent], waiting, all_known, lanes=lanes)
    if found is not None:
        slack = 1e-9 * (1.0 + found.high)
        assert 0.0 <= found.low <= found.value + slack
        assert found.value <= found.high + slack


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_end_of_tasks_that_take_longer_by_a_factor_is_later_by_it(
    factor: float,
) -> None:
    plain = until_done([5.0], 6, known([0.0, 10.0, 20.0]), lanes=2)
    scaled = until_done(
        [5.0 * factor], 6, known([0.0, 10.0 * factor, 20.0 * factor]), lanes=2
    )
    assert plain is not None
    assert scaled is not None
    expected = [factor * plain.value, factor * plain.low, factor * plain.high]
    assert [scaled.value, scaled.low, scaled.high] == pytest.approx(expected)


@pytest.mark.parametrize("elapsed", [1.0, 10.0, 60.0, 90.0, 3600.0, 1e6])
def test_a_task_far_beyond_all_others_is_expected_to_end_within_its_time_so_far_again(
    elapsed: float,
) -> None:
    # a task that waits for what it left behind, among tasks of some milliseconds
    times = [0.004, 0.01, 0.02, 0.002, 0.011, 0.004, 0.001, 0.05]
    begun = TaskDurations(tuple(times), len(times), (elapsed,))
    left = until_done([elapsed], 1, begun, lanes=2)
    assert left is not None
    assert left.value < elapsed
    assert left.high < 4 * elapsed


def test_a_forecast_is_as_old_as_its_last_count() -> None:
    told = ReportedProgress(
        done=1, source="tqdm", time=10, remaining=30, low=20, high=40
    )
    assert time_left_of(told, 15) == TimeSpan(25, 15, 35)
    for unknown in (None, replace(told, remaining=None)):
        assert time_left_of(unknown, 15) is None


def test_a_task_that_could_not_be_written_down_is_neither_done_nor_failed() -> None:
    tally = TaskTally(tasks=9, slots=2, done=3, failed=1, running=1)
    tally.take_back(was_done=True)
    tally.take_back(was_done=False)
    assert (tally.done, tally.failed, tally.interrupted, tally.waiting) == (2, 0, 2, 6)
