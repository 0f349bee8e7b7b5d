"""What is said of a run while there is still time: once, and not too easily."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from weigh.model.progress import EndForecast
from weigh.progress.notices import LimitWatch, StallWatch, StuckWatch

MINUTES = 60.0


def forecast(time: float, low: float, high: float) -> EndForecast:
    return EndForecast(
        done=10.0,
        total=100.0,
        time=time,
        source="tqdm",
        step_time=1.0,
        remaining=(low + high) / 2,
        low=low,
        high=high,
    )


def watch(limit: float) -> LimitWatch:
    return LimitWatch(limit, lambda seconds: f"--time={seconds:.0f}")


def warnings_of(
    limits: LimitWatch, found: EndForecast | None, times: range
) -> list[str]:
    return [words for now in times if (words := limits.look(float(now), found))]


def test_a_run_that_will_be_too_late_is_reported_once() -> None:
    words = warnings_of(watch(1000.0), forecast(0.0, 2000.0, 2400.0), range(1, 200, 5))
    assert len(words) == 1
    assert "10% done" in words[0]


def test_the_suggested_limit_exceeds_the_whole_run() -> None:
    (words,) = warnings_of(
        watch(1000.0), forecast(0.0, 2000.0, 2400.0), range(1, 200, 5)
    )
    asked = int(words.rpartition("--time=")[2].removesuffix(" next time"))
    assert asked >= 2400 * 1.15


def test_a_run_that_may_be_in_time_is_not_reported() -> None:
    assert (
        warnings_of(watch(1000.0), forecast(0.0, 900.0, 1500.0), range(1, 200, 5)) == []
    )


def test_one_look_is_not_enough() -> None:
    limits = watch(1000.0)
    late, fine = forecast(0.0, 2000.0, 2400.0), forecast(0.0, 10.0, 20.0)
    words = [limits.look(float(t), late if t % 2 else fine) for t in range(1, 60)]
    assert not any(words)


def test_without_a_forecast_nothing_is_reported() -> None:
    assert warnings_of(watch(1000.0), None, range(1, 2000, 5)) == []


def stalls(
    *, gpus: int = 0, busy: float = 0.0, wrote_at: float | None = 0.0, gpu: bool = False
) -> list[str]:
    """Look every ten seconds for half an hour; *busy* is cores."""
    stall = StallWatch(10 * MINUTES, gpus=gpus)
    words = []
    for now in range(0, 1800, 10):
        found = stall.look(
            float(now),
            cpu_time=now * busy,
            wrote_at=wrote_at,
            gpu_idle=float(now) if gpu else None,
        )
        words += [found] if found else []
    return words


def test_a_run_without_work_and_output_is_reported_once() -> None:
    (words,) = stalls()
    assert "no output and no CPU time for 10 minutes" in words


@pytest.mark.parametrize(
    "words",
    [
        stalls(busy=1.0),
        stalls(wrote_at=1700.0),
        stalls(wrote_at=None),
        stalls(gpus=0, gpu=True, busy=1.0),
    ],
)
def test_a_run_that_may_still_work_is_not_called_stalled(words: list[str]) -> None:
    assert words == []


def test_an_idle_gpu_is_reported_once_with_the_busy_processor() -> None:
    (words,) = stalls(gpus=1, gpu=True, busy=1.0)
    assert "0 % GPU for 10 minutes" in words
    assert "is it on the CPU" in words


def test_an_idle_gpu_is_reported_alone_if_cpu_time_is_unknown() -> None:
    stall = StallWatch(10 * MINUTES, gpus=1)

    words = stall.look(600.0, cpu_time=None, wrote_at=None, gpu_idle=600.0)

    assert words == "0 % GPU for 10 minutes"


def test_an_idle_gpu_with_an_idle_processor_may_hang() -> None:
    (words,) = stalls(gpus=1, gpu=True)
    assert words.endswith("no CPU time: it may hang")


def test_an_idle_gpu_with_a_little_cpu_work_is_only_idle() -> None:
    (words,) = stalls(gpus=1, gpu=True, busy=0.1)
    assert words == "0 % GPU for 10 minutes, no output"


def test_a_stall_of_odd_seconds_is_reported_in_seconds_too() -> None:
    stall = StallWatch(90.0, gpus=1)

    words = stall.look(90.0, cpu_time=None, wrote_at=None, gpu_idle=90.0)

    assert words == "0 % GPU for 1 m 30 s"


def stuck_after(step: int = 5, **signs: Callable[[int], Any]) -> tuple[int, str] | None:
    """Return when a task is found stuck after 30 minutes, and the words."""
    watch = StuckWatch(30 * MINUTES)
    usual = {"output": lambda _: 7.0, "work": lambda _: 0.0, "gpu": lambda _: None}
    for now in range(0, 3600, step):
        at = {name: of_time(now) for name, of_time in {**usual, **signs}.items()}
        is_suspended, steps = at.pop("suspended", False), at.pop("done", None)
        made = replace(forecast(0.0, 1.0, 2.0), done=steps) if steps else None
        words = watch.look(
            float(now), {**at, "traffic": 0.0}, is_suspended=is_suspended, forecast=made
        )
        if words is not None:
            return now, words
    return None


def test_a_task_without_any_sign_of_life_is_stuck_when_the_time_is_over() -> None:
    idle = "no output, no CPU time and no progress for 30 minutes"
    assert stuck_after() == (1800, idle)
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
