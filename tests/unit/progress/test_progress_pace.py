import math
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weigh.progress.pace import (
    ProgressHistory,
    ProgressPoint,
    StepPace,
    pace,
    without_pause,
)


def points(times: Iterable[float]) -> list[ProgressPoint]:
    """Points one step apart."""
    clock, made = 0.0, [ProgressPoint(0.0, 0.0)]
    for step, time in enumerate(times, 1):
        clock += time
        made.append(ProgressPoint(clock, float(step)))
    return made


def epochs(
    count: float, every: float, steps: int, pause: float = 0.0
) -> list[ProgressPoint]:
    """Points of epochs of so many steps, with a pause after each."""
    done = range(round(count * steps) + 1)
    return [ProgressPoint(n * every + n // steps * pause, n / steps) for n in done]


def known(
    times: Iterable[float], *, ahead: float = 100, cycles: bool = False
) -> StepPace:
    found = pace(points(times), ahead=ahead, has_cycles=cycles)
    assert found is not None
    return found


def half(found: StepPace | None) -> float:
    """Return half the width of the interval, as a share of the remaining time."""
    assert found
    return (found.high - found.low) / 2 / found.remaining


def wavy(count: int, level: float = 1.0) -> list[float]:
    return [level * (1 + 0.1 * math.sin(7.0 * n)) for n in range(count)]


def mixed(values: list[float]) -> list[float]:
    return [values[n * 77 % len(values)] for n in range(len(values))]


@pytest.mark.parametrize(
    ("times", "step_time"),
    [
        ([2.0] * 50, 2),
        ([9.0] * 5 + wavy(95), 1),  # a warm-up
        (wavy(100) + wavy(60, 3.0), 3),  # a change of level
        (wavy(90, 5.0) + wavy(90) + wavy(60, 2.0), 2),  # and two of them
        ([*wavy(50), 3600.0, *wavy(50)], 1),  # suspended once
    ],
)
def test_the_pace_is_that_of_the_last_level(
    times: list[float], step_time: float
) -> None:
    assert known(times).step_time == pytest.approx(step_time, rel=0.03)


@pytest.mark.parametrize(
    ("made", "ahead"),
    [(points([])[:0], 9), (points([]), 9), (points([1.0]), 100)],
)
def test_of_too_few_steps_nothing_is_known(
    made: list[ProgressPoint], ahead: float
) -> None:
    assert pace(made, ahead=ahead, has_cycles=False) is None


def test_pauses_that_recur_count_and_of_three_steps_none_is_the_exception() -> None:
    times = wavy(100)
    times[30] += 50
    times[80] += 50
    for steps in (times, [1.0, 1.0, 99.0]):
        assert without_pause(points(steps)) == points(steps)


@pytest.mark.parametrize(
    ("made", "step_time"),
    [
        *((epochs(count + 0.4, 0.5, 20), 10) for count in (1, 2, 3, 30, 200)),
        (epochs(4.9, 1.0, 10, pause=4.0), 14),  # the pause after each counts in full
    ],
)
def test_whole_epochs_are_a_fair_sample_however_many(
    made: list[ProgressPoint], step_time: float
) -> None:
    found = pace(made, ahead=5, has_cycles=True)
    assert found
    assert found.step_time == pytest.approx(step_time, rel=1e-6)


def trend(count: int) -> list[float]:
    return [1 + n / count for n in range(count)]


def waves(count: int) -> list[float]:
    return [1 + 0.3 * math.sin(n / 30) for n in range(count)]


@pytest.mark.parametrize(
    ("narrow", "wide", "factor"),
    [
        (known(wavy(60)), known([0.2 + n * 79 % 101 / 60 for n in range(60)]), 1.5),
        # neighbours that are alike, and a drift
        (known(mixed(waves(240))), known(waves(240)), 1.2),
        (known(mixed(trend(100))), known(trend(100)), 2),
        # the first steps may be a warm-up
        (known([1.0] * 50, ahead=450), known([1.0] * 10, ahead=490), 2),
        # one step that is a good part of the run
        (known([1.0] * 50, ahead=9), known([1.0], ahead=9), 2),
        # before the first epoch is over
        (
            pace(epochs(0.6, 1.0, 100), ahead=9.4, has_cycles=False),
            pace(epochs(0.6, 1.0, 100), ahead=9.4, has_cycles=True),
            1.2,
        ),
        # equal shares of an unknown unit need not be equal work
        (
            pace(points([1.0] * 50), ahead=50, has_cycles=False),
            pace(points([1.0] * 50), ahead=50, has_cycles=False, is_even=False),
            2,
        ),
    ],
)
def test_the_less_is_known_the_wider_is_the_interval(
    narrow: StepPace | None, wide: StepPace | None, factor: float
) -> None:
    assert half(narrow) < 0.2
    assert half(wide) > factor * half(narrow)


def test_steps_that_only_scatter_are_no_drift() -> None:
    assert half(known([0.5, 1.5] * 12)) < 0.3


steps = st.lists(st.floats(1e-3, 1e5), min_size=3, max_size=80)


@given(steps, st.floats(0, 1e9), st.booleans())
def test_whatever_the_steps_the_numbers_are_finite_and_not_below_zero(
    times: list[float],
    ahead: float,
    cycles: bool,  # noqa: FBT001
) -> None:
    found = known(times, ahead=ahead, cycles=cycles)
    assert all(0 <= value < math.inf for value in found)
    assert found.low <= found.remaining <= found.high
    slack = 1e-6 * max(times)
    assert min(times) - slack <= found.step_time <= max(times) + slack


@example([2.0, 2.0, 1.0, 1.0, 1.0, 11.0], 3.0)  # a level just as far off as counts
@given(steps, st.floats(0.01, 100))
def test_a_run_twice_as_slow_takes_twice_as_long(
    times: list[float], factor: float
) -> None:
    plain, scaled = known(times), known([factor * time for time in times])
    assert scaled.remaining == pytest.approx(factor * plain.remaining, rel=1e-3)


def test_of_points_at_about_one_time_the_last_counts() -> None:
    history = ProgressHistory()
    for time, position in [(0, 0), (0, 0.5), (5, 1), (5.02, 9), (6, 9), (7, 3)]:
        history.add(time, position)
    assert history.points == [(0, 0.5), (5.02, 9)]
