"""The guard of memory, of the host and of GPUs: whom it stops, and what may start."""

import random
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.runner.attempt import TaskAttempt
from weigh.runner.memory_guard import GuardedMemory, MemoryKind, MemoryRoom
from weigh.runner.slots import NO_RESERVATION, RunSlot, TaskReservation
from weigh.units import MIB

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


def test_worked_examples_of_the_guard() -> None:
    check_session(
        Path(__file__).with_name("memory_guard.session"), {"an_attempt": an_attempt}
    )
