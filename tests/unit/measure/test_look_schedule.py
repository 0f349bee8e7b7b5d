from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from weigh.measure.watcher import LookSchedule

INTERVAL = 0.05
SHARE, CREDIT = 0.005, 0.04  # of a core; CPU seconds
BLIND = 4.0  # seconds: the longest without a look


def waits(
    costs: Iterable[float], used: float = 1.0, schedule: LookSchedule | None = None
) -> list[float]:
    """Return the waits after looks of such *costs* at a tree that works."""
    schedule = schedule or LookSchedule(INTERVAL)
    now, found = 0.0, []
    for cost in costs:
        schedule.begin_look(is_idle=False)
        found.append(schedule.wait_after(now, now, cost, used))
        now += found[-1]
    return found


@given(st.lists(st.floats(0, SHARE * BLIND), min_size=1, max_size=50))
def test_looking_takes_its_share_of_a_core_whatever_a_look_costs(
    costs: list[float],
) -> None:
    allowed = SHARE * sum(waits(costs)) * 1.001 + CREDIT + max(costs)
    assert sum(costs) <= allowed


def test_no_cost_makes_weigh_blind_for_long() -> None:
    assert max(waits([10.0] * 10)) == BLIND


def test_when_looking_gets_cheap_again_it_gets_frequent_again() -> None:
    found = waits([0.01] * 10 + [0.0] * 60)
    assert found[9] > 1
    assert found[-1] == INTERVAL


def test_the_first_looks_come_fast_and_the_others_at_the_interval() -> None:
    found = waits([0.0] * 10)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.004, INTERVAL)


def test_a_short_job_pays_for_less_before_looks_are_earned() -> None:
    assert max(waits([0.004] * 8, used=0.0)) > INTERVAL
    assert max(waits([0.004] * 8, used=10.0)) == INTERVAL


def test_an_idle_tree_is_looked_at_less_and_less_often() -> None:
    schedule = LookSchedule(INTERVAL)
    waits([0.0] * 10, schedule=schedule)
    schedule.begin_look(is_idle=True)
    first = schedule.pause
    for _ in range(20):
        schedule.begin_look(is_idle=True)
    assert first > INTERVAL
    assert schedule.pause == 10 * INTERVAL
    schedule.begin_look(is_idle=False)
    assert schedule.pause == INTERVAL


def test_an_idle_tree_is_read_all_the_same_after_a_while_or_if_none_was_there() -> None:
    schedule = LookSchedule(INTERVAL)
    schedule.wait_after(1.0, 1.0, 0.0, 1.0)
    assert schedule.may_skip(10.9)
    assert not schedule.may_skip(11.1)
    schedule.wait_after(float("-inf"), 2.0, 0.0, 1.0)  # it saw no process
    assert not schedule.may_skip(2.0)
