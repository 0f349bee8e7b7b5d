"""``weigh.timeit``."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from weigh.errors import UsageError
from weigh.flow.run.regions import timeit
from weigh.measure.region import timing


class Clock:
    """A clock that tests wind."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "perf_counter", clock)
    return clock


def test_the_minimum_a_call_is_given_and_set_up_is_left_out(clock: Clock) -> None:
    steps = iter([3.0] * 4 + [2.0] * 4 + [9.0] * 4)

    def work() -> None:
        clock.now += next(steps)

    def setup() -> None:
        clock.now += 1000

    timed = timeit(work, number=4, repeat=3, setup=setup)
    assert (timed.minimum, timed.median, timed.maximum) == (2.0, 3.0, 9.0)
    assert timed.times == (3.0, 2.0, 9.0)
    assert str(timed) == "2.00 s a call (quickest of 3 x 4 calls; slowest 9.00 s)"


def test_it_calls_as_often_as_requested_with_set_up_before_each_repetition() -> None:
    calls: list[str] = []
    append = calls.append
    timeit(lambda: append("c"), number=2, repeat=3, setup=lambda: append("s"))
    assert "".join(calls) == "sccsccscc"


def test_without_a_number_it_calls_until_that_takes_long_enough(clock: Clock) -> None:
    def work() -> None:
        clock.now += 0.003

    assert timeit(work, repeat=1).number == 100


def test_an_exception_passes_and_leaves_the_collector_on() -> None:
    with pytest.raises(ZeroDivisionError):
        timeit(lambda: 1 / 0, number=1)
    assert gc.isenabled()


async def coroutine() -> None:
    """Do nothing."""


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("pass", {}),
        (coroutine, {}),
        (generator, {}),
        (print, {"number": 0}),
        (print, {"repeat": -1}),
        (print, {"number": 1.5}),
        (print, {"setup": "x = 1"}),
    ],
)
def test_bad_input_is_one_clear_line(function: Any, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^timeit: [^\n]+$"):
        timeit(function, **options)
