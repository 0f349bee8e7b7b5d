"""The guard of memory, of the host and of GPUs: whom it stops, and what may start."""

import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.runner.attempt import TaskAttempt
from weigh.runner.memory_guard import (
    GuardedMemory,
    MemoryKind,
    MemoryReading,
    MemoryRoom,
    fits_by_plan,
)
from weigh.runner.slots import NO_RESERVATION, RunSlot, TaskReservation
from weigh.units import GIB, MIB

STEP = 0.05


def an_attempt(  # noqa: PLR0913 - what varies from one to another
    seq: int = 1,
    *,
    plan: int = 0,
    now: int = 0,
    began: float = 0.0,
    gpu: str | None = None,
    reservation: TaskReservation = NO_RESERVATION,
) -> TaskAttempt:
    """Return an attempt that holds as much of the host and a GPU, both as planned."""
    needs = TaskReservation(plan, plan)
    attempt = TaskAttempt(
        seq, 1, b"", RunSlot(1, gpu=gpu), plan=needs, reservation=reservation
    )
    attempt.launch.began = began
    hold(attempt, now)
    return attempt


def hold(attempt: TaskAttempt, now: int) -> None:
    attempt.host.now = attempt.gpu.now = now
    attempt.host.peak = attempt.gpu.peak = max(attempt.host.peak, now)


def stopped_by(guard: GuardedMemory, rng: random.Random, *, over: bool) -> list[int]:
    """Let tasks grow as they like, and return those that the guard stops; 0 is over."""
    plans = [rng.randint(50, 2000) * MIB for _ in range(rng.randint(2, 8))]
    others = rng.choice([0, 0, 30 * MIB])
    slack = rng.choice([others, others, sum(plans) // 10 + others])
    limit = sum(plans) + slack
    tasks = [
        an_attempt(seq, plan=plan, began=rng.random()) for seq, plan in enumerate(plans)
    ]
    ends = [round(plan * rng.uniform(0.3, 1.0)) for plan in plans]
    if over:
        ends[0] = round(plans[0] * 1.05) + limit - sum(ends[1:])
    paths = [path_to(rng, end) for end in ends]
    lag = rng.randint(0, 8)
    found: list[int] = []
    for step in range(len(paths[0])):
        used = sum(
            path[step]
            for task, path in zip(tasks, paths, strict=True)
            if task.seq not in found
        )
        running = [task for task in tasks if task.seq not in found]
        for task in running:
            if rng.random() < 0.7 or step == lag:
                hold(task, paths[task.seq][max(0, step - lag)])
        if used + others > limit:
            return found or [0]  # the kernel kills before anybody can look
        room = MemoryRoom(used + others, limit)
        if guard.is_short(step * STEP, room, running):
            victim = guard.victim(running, step * STEP)
            if victim is not None:
                found.append(victim.seq)
    return found


def path_to(rng: random.Random, end: int) -> list[int]:
    """Grow to *end* at some time, all at once or slowly."""
    begin, length = rng.randint(0, 40), rng.choice([1, 5, 60])
    held = [min(1.0, max(0, step - begin) / length) * end for step in range(140)]
    return [round(one) for one in held]


@pytest.mark.parametrize("kind", get_args(MemoryKind))
@given(seed=st.integers(0, 1 << 30))
def test_tasks_that_fit_by_plan_are_never_stopped(kind: MemoryKind, seed: int) -> None:
    assert stopped_by(GuardedMemory(kind), random.Random(seed), over=False) == []


@pytest.mark.parametrize("kind", get_args(MemoryKind))
@given(seed=st.integers(0, 1 << 30))
def test_a_task_over_its_plan_is_the_one_that_is_stopped(
    kind: MemoryKind, seed: int
) -> None:
    assert stopped_by(GuardedMemory(kind), random.Random(seed), over=True) == [0]


@pytest.mark.parametrize(
    ("tasks", "victim"),
    [
        # of several over their plans the furthest; without a plan before all others
        (["1 100 110", "2 100 150", "3 300 290"], 2),
        (["1 100 90", "2 0 90", "3 9 8"], 2),
        (["1 100 200"], None),  # alone
    ],
)
def test_the_victim_is_the_one_that_takes_what_others_were_promised(
    tasks: list[str], victim: int | None
) -> None:
    numbers = [[*map(int, words.split())] for words in tasks]
    running = [an_attempt(seq, plan=plan, now=now) for seq, plan, now in numbers]
    found = GuardedMemory().victim(running)
    assert (None if found is None else found.seq) == victim


def test_a_plan_that_does_not_fit_still_leaves_the_guard_at_work() -> None:
    guard = GuardedMemory()
    tasks = [
        an_attempt(1, plan=600 * MIB, now=500 * MIB),
        an_attempt(2, plan=600 * MIB, now=480 * MIB, began=1.0),
    ]
    assert guard.is_short(2.0, MemoryRoom(1010 * MIB, GIB), tasks)
    assert guard.victim(tasks, 2.0) is tasks[1]


@pytest.mark.parametrize("why", ["timeout", "signal", "halt"])
def test_a_task_that_takes_long_to_end_does_not_disable_the_guard(why: str) -> None:
    tasks = [an_attempt(seq, began=float(seq)) for seq in (1, 2, 3)]
    tasks[2].state.stop = why  # type: ignore[assignment]
    assert GuardedMemory().victim(tasks) is tasks[1]


def test_one_that_was_stopped_for_memory_holds_up_the_next_for_a_moment_only() -> None:
    tasks = [an_attempt(seq, began=float(seq)) for seq in (1, 2, 3)]
    guard = GuardedMemory()
    assert guard.victim(tasks, 10.0) is tasks[2]
    tasks[2].state.stop = "memory"
    assert guard.victim(tasks, 11.0) is None
    assert guard.victim(tasks, 13.0) is tasks[1]


def test_memory_is_short_when_little_is_left_or_it_goes_fast() -> None:
    guard = GuardedMemory()
    assert not guard.is_short(0.0, MemoryRoom(50 * MIB, GIB))
    assert not guard.is_short(1.0, MemoryRoom(60 * MIB, GIB))
    assert guard.is_short(1.1, MemoryRoom(800 * MIB, GIB))
    assert GuardedMemory().is_short(0.0, MemoryRoom(1000 * MIB, GIB))


def test_a_task_starts_again_when_all_can_grow_to_its_size() -> None:
    guard = GuardedMemory()
    learnt = an_attempt(began=1.0)
    learnt.host.peak = 100 * MIB  # 120 MiB are needed from now on
    guard.learn(learnt)
    running = [an_attempt(now=80 * MIB)]
    assert not guard.may_start(MemoryRoom(80 * MIB, 230 * MIB), running)
    assert guard.may_start(MemoryRoom(80 * MIB, 300 * MIB), running)
    assert guard.may_start(MemoryRoom(80 * MIB, 90 * MIB), [])


# a GPU


def gpu_guard(used: int, at: float = 10.0) -> GuardedMemory:
    """Return the guard of a GPU of 8 GiB, of which so much was in use at a time."""
    reading = MemoryReading(MemoryRoom(used, 8 * GIB), at, "left on GPU 0")
    return GuardedMemory("gpu_memory", lambda _: reading, "0")


def test_nobody_is_stopped_for_what_one_that_ended_had_held() -> None:
    old, young = (an_attempt(gpu="0", began=began) for began in (1.0, 2.0))
    watch = gpu_guard(8 * GIB)
    watch.ended_at = 10.1
    assert watch.look(10.2, [old, young]) is None
    watch = gpu_guard(8 * GIB, at=10.3)
    watch.ended_at = 10.1
    found = watch.look(10.4, [old, young])
    assert found is not None
    assert found[0] is young


def test_nobody_is_stopped_by_the_word_of_a_driver_that_hangs() -> None:
    running = [an_attempt(gpu="0", began=began) for began in (1.0, 2.0)]
    assert gpu_guard(8 * GIB).look(60.0, running) is None


@pytest.mark.parametrize(
    ("used", "on", "wanted", "fits"),
    [(6, "0", 1, True), (6, "0", 2, False), (6, "1", 7, True), (6, None, 7, True)],
)
def test_a_gpu_is_shared_up_to_its_limit(
    used: int, on: str | None, wanted: int, *, fits: bool
) -> None:
    running = [] if on is None else [an_attempt(gpu=on)]
    need = TaskReservation(gpu_memory=wanted * GIB)
    assert gpu_guard(used * GIB).fits(running, need) is fits


def test_memory_reserved_for_a_task_is_not_given_to_another() -> None:
    reserved = TaskReservation(gpu_memory=6 * GIB)
    large = an_attempt(gpu="0", reservation=reserved, now=GIB)
    small = an_attempt(gpu="0", now=GIB)
    large.gpu.peak = 0
    watch = gpu_guard(2 * GIB)
    assert not watch.fits([large, small], TaskReservation())
    assert watch.fits([small], TaskReservation())


@pytest.mark.parametrize(
    ("held", "before", "share"),
    [(GIB, 0, 2), (0, 0, 4), (5 * GIB, 0, 8), (GIB, 3, 3), (0, 9, 8)],
)
def test_the_larger_reservation_on_a_gpu(held: int, before: int, share: int) -> None:
    reserved = TaskReservation(gpu_memory=before * GIB)
    attempt = an_attempt(reservation=reserved, now=held)
    larger = gpu_guard(GIB).larger_reservation(attempt)
    assert larger == TaskReservation(gpu_memory=share * GIB)


def test_without_a_reading_there_is_no_share_to_give() -> None:
    watch = GuardedMemory("gpu_memory", lambda _: None, "0")
    assert watch.larger_reservation(an_attempt(gpu="0")) is None


@pytest.mark.parametrize(
    ("need", "plan", "holds", "gpu", "fits"),
    [
        # memory, GPU memory and CPUs of what is to start and of what runs
        ({"memory": 6, "cpus": 2}, {"memory": 4, "cpus": 2}, 0, "0", True),
        ({"memory": 7}, {"memory": 4}, 0, "0", False),
        ({"memory": 6}, {"memory": 4}, 5, "0", False),
        ({"cpus": 3}, {"cpus": 2}, 0, "0", False),
        ({"gpu_memory": 5}, {"gpu_memory": 4}, 0, "0", False),
        ({"gpu_memory": 5}, {"gpu_memory": 4}, 0, "1", True),
        ({"memory": 99}, None, 0, "0", True),  # alone: it may not wait for ever
    ],
)
def test_tasks_fit_by_what_they_are_planned_to_need_and_what_they_hold(
    need: dict[str, int],
    plan: dict[str, int] | None,
    holds: int,
    gpu: str,
    *,
    fits: bool,
) -> None:
    room = TaskReservation(memory=10, gpu_memory=8, cpus=4)
    running: list[Any] = []
    if plan is not None:
        slot = RunSlot(1, gpu="0")
        running.append(TaskAttempt(1, 1, b"", slot, plan=TaskReservation(**plan)))
        running[0].host.now = holds
    wanted = TaskReservation(**need)
    assert fits_by_plan(room, RunSlot(2, gpu=gpu), running, wanted) is fits
