"""Time a small piece of code: many calls, several repetitions, the fastest counts."""

import inspect
import sys
from collections.abc import Callable
from time import perf_counter
from timeit import Timer

import msgspec

from weigh.errors import UsageError
from weigh.measure.region.region import checked_whole_number
from weigh.probe.gpu_libraries import wait_for_gpus
from weigh.robust import median_of
from weigh.units import Seconds, format_brief


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
    if number is not None:
        number = checked_whole_number(number, "timeit: number", least=1)
    # jax is waited for by its result; another program is not slowed by keeping it
    results: list[object] = []

    def keep() -> None:
        results[:] = [function()]

    def settled_clock() -> Seconds:
        if sync:  # work of before must not count, and that of the calls must
            wait_for_gpus(results[0] if results else None)
        return perf_counter()

    timed_calls = Timer(
        keep if "jax" in sys.modules else function, setup or "pass", settled_clock
    )
    number = number or timed_calls.autorange()[0]
    took = [seconds / number for seconds in timed_calls.repeat(repeat, number)]
    return CallTiming(
        minimum=min(took),
        median=median_of(took),
        maximum=max(took),
        number=number,
        repeat=repeat,
        times=tuple(took),
    )


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
