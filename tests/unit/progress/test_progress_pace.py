import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.progress.pace import (
    MOST_POINTS,
    ProgressHistory,
    ProgressPoint,
    StepPace,
    last_change,
    pace,
    time_at,
    without_pause,
)


def points(times: Iterable[float]) -> list[ProgressPoint]:
    """Points one step apart."""
    clock, made = 0.0, [ProgressPoint(0.0, 0.0)]
    for step, time in enumerate(times, 1):
        clock += time
        made.append(ProgressPoint(clock, float(step)))
    return made


def known(
    times: Iterable[float], *, ahead: float = 100, cycles: bool = False
) -> StepPace:
    found = pace(points(times), ahead=ahead, has_cycles=cycles)
    assert found is not None
    return found


def half(found: StepPace) -> float:
    """Return half the width of the interval."""
    return (found.high - found.low) / 2


def wavy(count: int, level: float = 1.0) -> list[float]:
    return [level * (1 + 0.1 * math.sin(7.0 * n)) for n in range(count)]


def test_an_even_run_goes_on_as_it_did() -> None:
    found = known([2.0] * 50)
    assert found.step_time == pytest.approx(2)
    assert found.remaining == pytest.approx(200)
    assert half(found) < 0.1 * found.remaining


@pytest.mark.parametrize("count", [0, 1])
def test_one_point_or_none_prints_nothing(count: int) -> None:
    assert pace(points([1.0] * 5)[:count], ahead=9, has_cycles=False) is None


def test_one_step_states_something_only_where_it_is_a_good_part_of_the_run() -> None:
    assert pace(points([1.0]), ahead=100, has_cycles=False) is None
    found = pace(points([1.0]), ahead=9, has_cycles=False)
    assert found
    assert half(found) > 0.25 * found.remaining


def test_a_warm_up_is_left_out() -> None:
    assert known([9.0] * 5 + wavy(95)).step_time == pytest.approx(1, rel=0.02)


def test_a_change_of_level_is_followed() -> None:
    assert known(wavy(100) + wavy(60, 3.0)).step_time == pytest.approx(3, rel=0.03)


def test_two_changes_of_level_are_followed() -> None:
    found = known(wavy(90, 5.0) + wavy(90) + wavy(60, 2.0))
    assert found.step_time == pytest.approx(2, rel=0.03)


def test_changes_without_end_are_given_up_on() -> None:
    found = known([4.0**n for n in range(8) for _ in range(64)])
    assert found.step_time > 4.0**6


def test_a_suspended_hour_is_not_taken_for_the_pace() -> None:
    times = wavy(100)
    times[50] += 3600
    assert known(times).step_time == pytest.approx(1, rel=0.03)


def test_pauses_that_come_again_count() -> None:
    times = wavy(100)
    times[30] += 50
    times[80] += 50
    assert without_pause(points(times)) == points(times)


def test_of_three_steps_none_is_the_exception() -> None:
    assert without_pause(points([1, 1, 99])) == points([1, 1, 99])


def test_the_pause_after_each_epoch_counts_in_full() -> None:
    made = [ProgressPoint(0.0, 0.0)]
    for epoch in range(5):
        start = epoch * 14.0
        made += [ProgressPoint(start + n, epoch + n / 10) for n in range(1, 11)]
    found = pace(made, ahead=5, has_cycles=True)
    assert found
    assert found.step_time == pytest.approx(14, rel=0.01)


def test_before_an_epoch_is_over_the_interval_is_wide() -> None:
    made = [ProgressPoint(float(n), n / 100) for n in range(60)]
    inner = pace(made, ahead=9.4, has_cycles=True)
    plain = pace(made, ahead=9.4, has_cycles=False)
    assert inner
    assert plain
    assert half(inner) > 1.2 * half(plain)


@pytest.mark.parametrize("epochs", [1, 2, 3, 30, 200])
def test_whole_epochs_are_a_fair_sample_however_many(epochs: int) -> None:
    made = [ProgressPoint(n * 0.5, n / 20) for n in range(epochs * 20 + 8)]
    found = pace(made, ahead=5, has_cycles=True)
    assert found
    assert found.step_time == pytest.approx(10)


def test_a_scattered_run_has_a_wide_interval() -> None:
    even, uneven = known(wavy(60)), known([0.2 + n * 79 % 101 / 60 for n in range(60)])
    assert half(uneven) > 1.5 * half(even)


def test_neighbours_alike_widen_the_interval() -> None:
    ordered = [1 + 0.3 * math.sin(n / 30) for n in range(240)]
    mixed = [ordered[n * 77 % 240] for n in range(240)]
    assert half(known(ordered)) > 1.2 * half(known(mixed))


def test_no_level_changes_in_a_flat_run() -> None:
    assert last_change(wavy(24)) == 0
    assert last_change([]) == 0


def test_the_place_of_a_change_is_found() -> None:
    assert last_change(wavy(9) + wavy(15, 2.0)) == 9


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


@given(steps, st.floats(0.01, 100))
def test_a_run_twice_as_slow_takes_twice_as_long(
    times: list[float], factor: float
) -> None:
    plain, scaled = known(times), known([factor * time for time in times])
    assert scaled.remaining == pytest.approx(factor * plain.remaining, rel=1e-3)


def test_a_history_keeps_its_ends_and_its_bound() -> None:
    history = ProgressHistory()
    for step in range(5000):
        history.add(step, step)
    assert len(history.points) <= MOST_POINTS
    assert (history.points[0], history.points[-1]) == ((0, 0), (4999, 4999))


def test_of_points_at_one_time_the_last_counts() -> None:
    history = ProgressHistory()
    for time, position in [(0, 0), (5, 1), (5, 9), (6, 9), (7, 3)]:
        history.add(time, position)
    assert history.points == [(0, 0), (5, 9)]


def test_a_first_point_gives_way_to_a_later_one_of_the_same_time() -> None:
    history = ProgressHistory()
    history.add(0, 1)
    history.add(0, 2)
    assert history.points == [(0, 2)]


@pytest.mark.parametrize(
    ("position", "time"), [(-1, 0), (0, 0), (1, 5), (2, 10), (3, 30), (4, 50), (5, 50)]
)
def test_the_time_between_two_points_is_read_off_the_line(
    position: float, time: float
) -> None:
    assert (
        time_at(
            [ProgressPoint(0, 0), ProgressPoint(10, 2), ProgressPoint(50, 4)], position
        )
        == time
    )


def test_the_first_steps_may_be_a_warm_up() -> None:
    begun, later = known([1.0] * 10, ahead=490), known([1.0] * 50, ahead=450)
    assert begun.low < begun.remaining / 4
    assert later.low > 0.8 * later.remaining


def test_a_pace_that_drifts_has_a_wide_interval() -> None:
    drifting = [1 + n / 100 for n in range(100)]
    mixed = [drifting[n * 37 % 100] for n in range(100)]
    assert half(known(drifting)) > 2 * half(known(mixed))


def test_equal_shares_of_an_unknown_unit_need_not_be_equal_work() -> None:
    made = points([1.0] * 50)
    even = pace(made, ahead=50, has_cycles=False)
    uneven = pace(made, ahead=50, has_cycles=False, is_even=False)
    assert even
    assert uneven
    assert half(uneven) > 2 * half(even)
    assert uneven.remaining == even.remaining
