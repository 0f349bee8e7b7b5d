"""Regions of a program: ``with phase(...)``, and decorated functions."""

# ruff: noqa: ANN401 - decorators take and return whatever is called

from collections.abc import Callable
from functools import wraps
from operator import index
from typing import Any, Literal, NoReturn, Self, TypeVar

from weigh.errors import UsageError
from weigh.measure.region.spans import OpenPhase
from weigh.measure.region.tracker import current, leave_phase
from weigh.probe.gpu_libraries import wait_quietly

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


_Function = TypeVar("_Function", bound=Callable[..., Any])
After = Callable[[str], None]  # called with the name of the function, after each call


class MeasuredRegion(OpenPhase, eq=False):
    """A region of a program: the block of a ``with`` statement.

    Its figures are available after its end. It can be used once. ``and_then`` is
    called with its name at the end.
    """

    name: str = ""
    sync: bool = False
    and_then: After | None = None
    state: Literal["new", "open", "closed"] = "new"

    def __enter__(self) -> Self:
        if self.state != "new":
            raise UsageError(
                f"phase {self.name!r} is used twice: "
                "write `with weigh.phase(...)` anew each time"
            )
        self.state = "open"
        if self.sync:
            wait_quietly()
        current().enter(self, self.name)
        return self

    def __exit__(self, *_: object) -> None:
        if self.state != "open":
            return
        if self.sync:
            wait_quietly()
        self.state = "closed"
        leave_phase(self)
        if self.and_then is not None:
            self.and_then(self.name)

    def __call__(self, *_: object) -> NoReturn:
        """Raise UsageError: a phase is no decorator."""
        raise UsageError(
            f"phase {self.name!r} goes into a with statement; above a function, "
            f"write @weigh.measured(name={self.name!r})"
        )

    def __repr__(self) -> str:
        return f"<weigh.phase {self.name!r}, {self.state}>"


def phase(name: str, *, sync: bool = False) -> MeasuredRegion:
    """Measure a block: ``with weigh.phase("load model"):``. Phases nest.

    A name is cut at 100 characters, and what does not print in it is escaped. With
    *sync*, GPU work of torch, cupy or jax is waited for at both edges, so that it
    counts where it was started.

    Raises:
        UsageError: the name is not text, or empty; later, if the phase is used twice.
    """
    return MeasuredRegion(name=region_name(name, of="phase"), sync=sync)


def measuring(
    *, name: str | None = None, after: After | None = None, sync: bool = False
) -> Callable[[_Function], _Function]:
    """Return a decorator that makes every call of a function a phase.

    Coroutines count from their first step to their last.

    Args:
        name: the name in the report; by default the function's own.
        after: called with that name after each call.
        sync: wait for the GPU before and after each call.

    Raises:
        UsageError: later, if the decorated object is no function, or a generator.
    """
    if name is not None:
        name = region_name(name, of="measured")
    return lambda function: _decorated(function, name, after, sync=sync)


def _decorated(
    function: Any, name: str | None, after: After | None, *, sync: bool
) -> Any:
    # above @staticmethod: decorate the function inside
    if isinstance(function, staticmethod | classmethod):
        return type(function)(_decorated(function.__func__, name, after, sync=sync))
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

    def region() -> MeasuredRegion:
        return MeasuredRegion(name=called, sync=sync, and_then=after)

    # its time would be its consumer's, too
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{called} is a generator, which measured does not time: "
            "write `with weigh.phase(...)` around the steps in it"
        )
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
