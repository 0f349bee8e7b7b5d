"""``@measured`` on whatever can be called."""

import asyncio
import inspect
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from region_programs import places

from weigh.errors import UsageError
from weigh.flow.run.regions import measured, phase
from weigh.measure.region.tracker import RegionTracker


def test_a_function_is_a_phase_of_its_name(tracker: RegionTracker) -> None:
    @measured
    def double(number: int, *, twice: bool = False) -> int:
        return number * (4 if twice else 2)

    assert (double(3), double(3, twice=True)) == (6, 12)
    assert places(tracker.regions().phases)[0][0].endswith("double")
    assert places(tracker.regions().phases)[0][1:] == (0, 2)
    assert double.__name__ == "double"


def test_what_a_function_raises_passes_through_and_a_method_knows_its_object(
    tracker: RegionTracker,
) -> None:
    class Model:
        @measured(name="fail")
        def fail(self) -> None:
            raise KeyError(self)

    model = Model()
    with pytest.raises(KeyError) as raised:
        model.fail()
    assert raised.value.args == (model,)
    assert places(tracker.regions().phases) == [("fail", 0, 1)]


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_static_and_class_methods_may_be_decorated_above(
    tracker: RegionTracker, kind: Any
) -> None:
    class Model:
        load = measured(name="load")(kind(lambda *_: "loaded"))

    assert Model.load() == Model().load() == "loaded"
    assert places(tracker.regions().phases) == [("load", 0, 2)]


def test_a_coroutine_function_stays_one_and_a_partial_of_it_is_awaited(
    tracker: RegionTracker,
) -> None:
    @measured(name="wait")
    async def wait(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def plain(number: int) -> int:
        return number

    assert inspect.iscoroutinefunction(wait)
    assert asyncio.run(wait(7)) == 7
    assert asyncio.run(measured(name="wait")(partial(plain, 8))()) == 8
    assert places(tracker.regions().phases) == [("wait", 0, 2)]


def test_tasks_nest_below_what_started_them_and_not_in_each_other(
    tracker: RegionTracker,
) -> None:
    @measured(name="task")
    async def task(number: int) -> None:
        with phase(f"inside {number}"):
            await asyncio.sleep(0.001 * (3 - number))

    async def main() -> None:
        with phase("main"):
            await asyncio.gather(*(task(number) for number in range(3)))

    asyncio.run(main())
    assert sorted(places(tracker.regions().phases)) == [
        ("inside 0", 2, 1),
        ("inside 1", 2, 1),
        ("inside 2", 2, 1),
        ("main", 0, 1),
        ("task", 1, 3),
    ]


def test_recursion_is_one_phase_whose_time_is_that_of_the_outermost_call(
    tracker: RegionTracker,
) -> None:
    @measured(name="search")
    def search(depth: int) -> None:
        with phase("step"):
            if depth:
                search(depth - 1)

    for depth in (0, 100):
        with phase("all"):
            search(depth)
    found = tracker.regions().phases
    assert places(found) == [("all", 0, 2), ("search", 1, 102), ("step", 2, 102)]
    walls = [one.wall_time for one in found]
    assert walls == sorted(walls, reverse=True)


def test_many_tasks_at_once_cost_no_more_each_and_share_the_processs_cpu_time(
    tracker: RegionTracker,
) -> None:
    steps: Counter[int] = Counter()

    @measured(name="task")
    async def task() -> None:
        await asyncio.sleep(0)

    async def run_tasks(number: int) -> None:
        sys.setprofile(lambda *_: steps.update([number]))
        await asyncio.gather(*(task() for _ in range(number)))
        sys.setprofile(None)

    began = time.process_time()
    asyncio.run(run_tasks(100))
    asyncio.run(run_tasks(400))
    spent = time.process_time() - began
    assert steps[400] < 5 * steps[100]
    (seen,) = tracker.regions().phases
    assert seen.calls == 500
    assert 0 < (seen.cpu_time or 0) <= spent


def of_numbers() -> Iterator[int]:
    yield 1


async def of_later_numbers() -> AsyncIterator[int]:
    yield 1


GENERATOR = r"numbers is a generator.*`with weigh\."


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (of_numbers, GENERATOR),
        (of_later_numbers, GENERATOR),
        *((thing, "above a function") for thing in (3, "load", int, None.__class__)),
    ],
)
def test_what_is_no_function_is_refused_with_what_to_write(
    thing: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        measured(thing)


def test_a_function_and_its_name_may_be_given_at_once(tracker: RegionTracker) -> None:
    assert measured(len, name="count")([1, 2]) == 2  # type: ignore[call-overload]
    assert places(tracker.regions().phases) == [("count", 0, 1)]


def test_show_gpus_without_a_gpu_is_reported_once(
    tracker: RegionTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    @measured(name="step", show_gpus=True)
    def step() -> None:
        pass

    step()
    step()
    assert capsys.readouterr().err == "weigh: after step: no GPU is visible\n"
    assert places(tracker.regions().phases) == [("step", 0, 2)]
