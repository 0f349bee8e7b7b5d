"""Time a small piece of code: many calls, several repetitions, the fastest counts."""

import gc
import inspect
from collections.abc import Callable
from itertools import count
from itertools import repeat as times
from time import perf_counter

import msgspec

from weigh.errors import UsageError
from weigh.measure.region.region import checked_whole_number
from weigh.probe.gpu_libraries import wait_for_gpus
from weigh.units import Seconds, format_brief

_LONG_ENOUGH = 0.2  # seconds; shorter times depend on the clock's resolution
_STEPS = (1, 2, 5)


class CallTiming(msgspec.Struct, frozen=True):
    """Seconds per call, over *repeat* times *number* calls.

    ``minimum`` is the figure to compare: longer times are due to other activity on the
    machine. ``times`` are the repetitions' means per call, in order.
    """

    minimum: Seconds
    median: Seconds
    maximum: Seconds
    number: int
    repeat: int
    times: tuple[Seconds, ...]

    def __str__(self) -> str:
        best, worst = format_brief(self.minimum), format_brief(self.maximum)
        runs = f"{self.repeat} x {self.number:,} calls"
        return f"{best} a call (quickest of {runs}; slowest {worst})"


def timeit(
    function: Callable[[], object],
    *,
    number: int | None = None,
    repeat: int = 5,
    setup: Callable[[], object] | None = None,
    sync: bool = True,
) -> CallTiming:
    """Time *function*, with the garbage collector off, as in the module ``timeit``.

    Work that it starts with torch, cupy or jax counts until it is done; with
    ``sync=False``, only its launch does.

    Args:
        function: what to time; ``lambda: f(x)`` for one with arguments.
        number: calls in a repetition; by default as many as take 0.2 s.
        repeat: repetitions.
        setup: called before each repetition, and not timed.
        sync: wait for the GPU before and after each repetition.

    Raises:
        UsageError: an argument is not a function, or a number is below 1.
    """
    _check_callable("the function", function)
    if setup is not None:
        _check_callable("setup", setup)
    repeat = checked_whole_number(repeat, "timeit: repeat", least=1)
    if number is None:
        number = _enough(function, setup, sync=sync)
    number = checked_whole_number(number, "timeit: number", least=1)
    took = [
        _seconds_of_calls(function, setup, number, sync=sync) / number
        for _ in range(repeat)
    ]
    ordered = sorted(took)
    middle = (ordered[(repeat - 1) // 2] + ordered[repeat // 2]) / 2
    return CallTiming(
        minimum=ordered[0],
        median=middle,
        maximum=ordered[-1],
        number=number,
        repeat=repeat,
        times=tuple(took),
    )


def _enough(
    function: Callable[[], object], setup: Callable[[], object] | None, *, sync: bool
) -> int:
    """Return the number of calls that takes long enough: 1, 2, 5, 10, 20, 50..."""
    numbers = (int(step * 10**power) for power in count() for step in _STEPS)
    return next(
        number
        for number in numbers
        if _seconds_of_calls(function, setup, number, sync=sync) >= _LONG_ENOUGH
    )


def _seconds_of_calls(
    function: Callable[[], object],
    setup: Callable[[], object] | None,
    number: int,
    *,
    sync: bool,
) -> Seconds:
    """Return the seconds that *number* calls take."""
    if setup is not None:
        setup()
    result: object = None
    # a collection would count for whichever call it falls into
    collects = gc.isenabled()
    gc.disable()
    try:
        if sync:  # work of before must not count
            wait_for_gpus()
        began = perf_counter()
        for _ in times(None, number):
            result = function()
        if sync:  # jax is waited for by its result
            wait_for_gpus(result)
        return perf_counter() - began
    finally:
        if collects:
            gc.enable()


def _check_callable(what: str, value: object) -> None:
    if not callable(value):
        raise UsageError(
            f"timeit: {what} cannot be called: give a function without arguments, "
            f"such as a lambda, not {type(value).__name__}"
        )
    # calling one only makes an object, and its code would not be timed
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        raise UsageError(f"timeit: {what} is async, and would only make a coroutine")
    if inspect.isgeneratorfunction(value):
        raise UsageError(f"timeit: {what} would only make a generator, and not run it")
