from weigh.measure.watcher import LookSchedule

INTERVAL = 0.05


def waits(schedule: LookSchedule, cost: float, used: float, looks: int) -> list[float]:
    """Look so often at a tree that works, and return the waits after it."""
    now, found = 0.0, []
    for _ in range(looks):
        schedule.begin_look(is_idle=False)
        found.append(schedule.wait_after(now, now, cost, used))
        now += found[-1]
    return found


def test_the_first_looks_come_fast_and_the_others_at_the_interval() -> None:
    found = waits(LookSchedule(INTERVAL), 0.0, 1.0, 10)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.004, INTERVAL)


def test_a_short_job_pays_for_less_before_looks_are_earned() -> None:
    short = waits(LookSchedule(INTERVAL), 0.004, 0.0, 8)
    long = waits(LookSchedule(INTERVAL), 0.004, 10.0, 8)
    assert max(short) > INTERVAL
    assert max(long) == INTERVAL


def test_an_idle_tree_is_looked_at_less_and_less_often() -> None:
    schedule = LookSchedule(INTERVAL)
    waits(schedule, 0.0, 1.0, 10)
    schedule.begin_look(is_idle=True)
    first = schedule.pause
    for _ in range(20):
        schedule.begin_look(is_idle=True)
    assert first > INTERVAL
    assert schedule.pause == 10 * INTERVAL
    schedule.begin_look(is_idle=False)
    assert schedule.pause == INTERVAL


def test_a_look_at_an_idle_tree_is_skipped_for_a_while_if_it_saw_a_process() -> None:
    schedule = LookSchedule(INTERVAL)
    schedule.begin_look(is_idle=False)
    schedule.wait_after(1.0, 1.0, 0.0, 1.0)
    assert schedule.may_skip(1.4)
    assert not schedule.may_skip(1.6)
    schedule.wait_after(float("-inf"), 2.0, 0.0, 1.0)
    assert not schedule.may_skip(2.0)
