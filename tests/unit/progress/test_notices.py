"""What is reported of a run while there is still time: once, and not too easily."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from weigh.model.record import ReportedProgress
from weigh.progress.notices import LimitWatch, StallWatch, StuckWatch

MINUTES = 60.0
BARE = ReportedProgress(done=40, total=None, time=4000, source="tqdm")
FORECAST = replace(BARE, total=100, step_time=100, remaining=6000, low=5000, high=8000)


def warnings_of(
    limit: float, forecasts: Callable[[int], ReportedProgress | None]
) -> list[tuple[int, str]]:
    """Look every ten seconds for a quarter of an hour; return when what is reported."""
    watch = LimitWatch(limit, lambda seconds: f"--time={seconds:.0f}")
    found = ((now, watch.look(now, forecasts(now))) for now in range(4000, 4900, 10))
    return [(now, words) for now, words in found if words]


def test_a_run_that_will_be_too_late_is_reported_once_with_a_limit_for_all_of_it() -> (
    None
):
    ((at, words),) = warnings_of(8999, lambda _: FORECAST)
    assert at == 4050  # after half a per cent of the limit
    # 12,000 s and 15 %, up to five minutes
    assert words.splitlines() == [
        "will not end before the time limit: 40% done, 1 h 39 m to go, 1 h 22 m left",
        "request --time=13800 next time",
    ]


@pytest.mark.parametrize(
    ("limit", "forecasts"),
    [
        (9000, lambda _: FORECAST),  # the early end is just in time
        (8999, lambda now: FORECAST if now % 20 else replace(FORECAST, low=10)),
        (8999, lambda now: FORECAST if now % 20 else BARE),
        (4500, lambda _: BARE),
        (4500, lambda _: None),
    ],
)
def test_a_run_that_may_be_in_time_is_not_reported(
    limit: float, forecasts: Callable[[int], ReportedProgress | None]
) -> None:
    assert warnings_of(limit, forecasts) == []


def stalls(
    *,
    gpus: int = 0,
    busy: float | None = 0.0,
    wrote_at: float | None = 1000.0,
    gpu: bool = False,
) -> list[str]:
    """Look every ten seconds for half an hour, from 1000 s on; *busy* is cores."""
    stall = StallWatch(10 * MINUTES, gpus=gpus)
    found = (
        stall.look(
            float(now),
            cpu_time=None if busy is None else 99 + now * busy,
            wrote_at=wrote_at,
            gpu_idle=now - 1000.0 if gpu else None,
        )
        for now in range(1000, 2800, 10)
    )
    return [words for words in found if words]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({}, ["no output and no CPU time for 10 minutes: it may hang"]),
        ({"busy": 1.0}, []),
        ({"wrote_at": 2700.0}, []),
        ({"wrote_at": None}, []),
        ({"gpu": True, "busy": 1.0}, []),
        (
            {"gpus": 1, "gpu": True, "busy": 1.0},
            ["0 % GPU for 10 minutes, no output, 1.0 CPUs busy: is it on the CPU?"],
        ),
        (
            {"gpus": 1, "gpu": True},
            ["0 % GPU for 10 minutes, no output, no CPU time: it may hang"],
        ),
        (
            {"gpus": 1, "gpu": True, "busy": 0.1},
            ["0 % GPU for 10 minutes, no output"],
        ),
        (
            {"gpus": 1, "gpu": True, "busy": None, "wrote_at": None},
            ["0 % GPU for 10 minutes"],
        ),
    ],
)
def test_a_run_that_does_nothing_is_reported_once(
    seen: dict[str, Any], words: list[str]
) -> None:
    assert stalls(**seen) == words


def stuck_after(
    step: int = 5, after: float = 30 * MINUTES, **signs: Callable[[int], Any]
) -> tuple[int, str] | None:
    """Return when a task is found stuck, by default after 30 minutes, and the words."""
    watch = StuckWatch(after)
    usual = {"output": lambda _: 7.0, "work": lambda _: 0.0, "gpu": lambda _: None}
    for now in range(0, 3600, step):
        at = {name: of_time(now) for name, of_time in {**usual, **signs}.items()}
        is_suspended, steps = at.pop("suspended", False), at.pop("done", None)
        made = replace(FORECAST, done=steps) if steps else None
        words = watch.look(
            float(now), {**at, "traffic": 0.0}, is_suspended=is_suspended, forecast=made
        )
        if words is not None:
            return now, words
    return None


def test_a_task_without_any_sign_of_life_is_stuck_when_the_time_is_over() -> None:
    idle = "no output, no CPU time and no progress for 30 minutes"
    assert stuck_after() == (1800, idle)
    assert stuck_after(after=90.0) == (90, idle.replace("30 minutes", "1 m 30 s"))
    # a heartbeat of a hung program is no work
    assert stuck_after(work=lambda now: now * 0.002) == (1800, idle)
    # it worked for ten minutes first
    assert stuck_after(work=lambda now: min(now, 600)) == (2400, idle)
    found = stuck_after(gpu=lambda now: min(now, 60))
    assert found == (1860, idle.replace(" and", ", no GPU work and"))


def test_a_hung_collective_that_keeps_the_gpu_busy_is_stuck_by_its_progress() -> None:
    found = stuck_after(gpu=float, work=float, done=lambda now: min(now // 10 + 1, 42))
    assert found == (
        2210,
        "no output for 30 minutes, and no progress after 42 of 100",
    )


@pytest.mark.parametrize(
    "signs",
    [
        {"output": lambda now: now // 600},
        {"output": lambda _: None},  # it cannot be read
        {"work": lambda now: now * 0.01},
        {"work": lambda now: now // 60},  # new processes, in a loop that waits
        {"gpu": float},  # busy, and progress was never reported
        {"gpu": float, "done": lambda now: min(now + 1, 100)},  # after the last step
        {"gpu": lambda _: 0.0, "work": float, "done": lambda _: 42},  # on the CPU
        {"done": lambda now: now // 600 + 1},
        {"suspended": lambda now: now > 600},
        {"step": 600},  # weigh itself was stopped, time and again
    ],
)
def test_a_task_that_shows_any_sign_of_life_is_not_stuck(signs: Any) -> None:
    assert stuck_after(**signs) is None
