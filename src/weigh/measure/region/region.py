"""Regions of a program: ``with phase(...)``, and decorated functions."""

# ruff: noqa: ANN401 - decorators take and return whatever is called

from collections.abc import Callable
from functools import partial, wraps
from operator import index
from typing import Any

from weigh.errors import UsageError
from weigh.measure.region.tracker import MeasuredRegion

_LONGEST = 100  # characters of a name: it is one row of a screen, and of each line


def checked_whole_number(number: object, what: str, *, least: int) -> int:
    """Return *number*, which is *what*, as a whole number.

    Raises:
        UsageError: it is none, or below *least*.
    """
    try:
        whole = index(number)  # type: ignore[arg-type] # checked here
    except TypeError:
        whole = None
    # to Python a bool is a whole number, too
    if whole is None or isinstance(number, bool) or whole < least:
        raise UsageError(
            f"{what} is a whole number of at least {least}, not {number!r:.40}"
        )
    return whole


def phase(name: str, *, sync: bool = False) -> MeasuredRegion:
    """Measure a block: ``with weigh.phase("load model"):``. Phases nest.

    A name is cut at 100 characters, and what does not print in it is escaped. With
    *sync*, GPU work of torch, cupy or jax is waited for at both edges, so that it
    counts where it was started.

    Raises:
        UsageError: the name is not text, or empty; later, if the phase is used twice.
    """
    return MeasuredRegion(name=region_name(name, of="phase"), sync=sync)


def measured_function(
    function: Any,
    *,
    name: str | None = None,
    after: Callable[[str], None] | None = None,
    sync: bool = False,
) -> Any:
    """Return *function* so that each of its calls is a phase.

    Coroutines count from their first step to their last. *after* is called with the
    phase's name after each call.

    Raises:
        UsageError: it is no function, or a generator.
    """
    # above @staticmethod: decorate the function inside
    if isinstance(function, staticmethod | classmethod):
        inner = measured_function(function.__func__, name=name, after=after, sync=sync)
        return type(function)(inner)
    # a class would be measured as a function that makes objects, and could not be
    # subclassed
    if not callable(function) or isinstance(function, type):
        raise UsageError(
            f"measured goes above a function, not {type(function).__name__}: "
            "@weigh.measured, or @weigh.measured(name=...)"
        )
    import inspect  # noqa: PLC0415 - phases do without

    # a partial or another callable object has no name of its own
    own_name = getattr(function, "__qualname__", None) or type(function).__name__
    called = name or region_name(own_name.replace("<locals>.", ""), of="measured")
    # its time would be its consumer's, too
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{called} is a generator, which measured does not time: "
            "write `with weigh.phase(...)` around the steps in it"
        )
    region = partial(MeasuredRegion, name=called, sync=sync, and_then=after)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_coroutine(*args: Any, **kwargs: Any) -> Any:
            with region():
                return await function(*args, **kwargs)

        return call_coroutine

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with region():
            return function(*args, **kwargs)

    return call


def region_name(name: object, *, of: str) -> str:
    """Return *name* as one short printable line.

    Raises:
        UsageError: it is not text, or empty.
    """
    if not isinstance(name, str):
        raise UsageError(f"{of}: a name is text, not {type(name).__name__}")
    if not name.strip():
        raise UsageError(f"{of}: the name is empty")
    if not name.isprintable():
        name = name[:_LONGEST].encode("unicode_escape").decode("ascii")
    return name[:_LONGEST]
