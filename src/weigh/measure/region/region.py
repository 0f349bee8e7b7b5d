"""Regions of a program: ``with phase(...)``, and decorated functions."""

# ruff: noqa: ANN401 - decorators take and return whatever is called

from collections.abc import AsyncGenerator, Callable, Generator
from functools import wraps
from operator import index
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from weigh.errors import UsageError
from weigh.measure.region.channel import clock
from weigh.measure.region.spans import OpenPhase, cpu_time, here, step_in, step_out
from weigh.measure.region.tracker import current, is_current
from weigh.probe.gpu_libraries import wait_quietly
from weigh.units import Bytes, Seconds

_LONGEST = 100  # characters of a name


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


class MeasuredRegion:
    """A region of a program: the block of a ``with`` statement.

    Its figures are available after its end. It can be used once.
    """

    __slots__ = ("_account", "_state", "_sync", "name")

    def __init__(self, name: str, *, sync: bool = False) -> None:
        self.name = named(name, of="phase")
        self._sync = sync
        self._account: OpenPhase | None = None
        self._state = "new"

    def __enter__(self) -> Self:
        if self._state != "new":
            raise UsageError(
                f"phase {self.name!r} is used twice: "
                "write `with weigh.phase(...)` anew each time"
            )
        self._state = "open"
        self._account = _enter_region(self.name, sync=self._sync)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._state != "open":
            if kind is None:
                raise UsageError(f"phase {self.name!r} is not open: closed twice?")
            return  # the program's own error is the one to see
        self._state = "closed"
        if self._account is not None:
            _leave_region(self._account)

    @property
    def wall_time(self) -> Seconds | None:
        """Its wall time in seconds; None until it has ended."""
        account = self._ended()
        return None if account is None else account.wall

    @property
    def cpu_time(self) -> Seconds | None:
        """CPU seconds of the whole process during the region."""
        account = self._ended()
        return None if account is None else account.cpu

    @property
    def peak_memory(self) -> Bytes | None:
        """The peak memory of this process during the region."""
        account = self._ended()
        return None if account is None else account.peak

    def __call__(self, *_: object) -> NoReturn:
        """Raise UsageError: a phase is no decorator."""
        raise UsageError(
            f"phase {self.name!r} goes into a with statement; above a function, "
            f"write @weigh.measured(name={self.name!r})"
        )

    def _ended(self) -> OpenPhase | None:
        return self._account if self._state == "closed" else None

    def __repr__(self) -> str:
        return f"<weigh.phase {self.name!r}, {self._state}>"


def phase(name: str, *, sync: bool = False) -> MeasuredRegion:
    """Measure a block: ``with weigh.phase("load model"):``. Phases nest.

    A long or unprintable name is changed, with one warning on stderr. With *sync*,
    GPU work of torch, cupy or jax is waited for at both edges, so that it counts where
    it was started.

    Raises:
        UsageError: the name is not text, or empty; later, if used or closed twice.
    """
    return MeasuredRegion(name, sync=sync)


class _MeasuredCalls(NamedTuple):
    """How the calls of one function are measured."""

    name: str
    after: After | None
    sync: bool

    def enter(self) -> OpenPhase | None:
        """Start the region of a call."""
        return _enter_region(self.name, sync=self.sync)

    def leave(self, region: OpenPhase | None) -> None:
        """End the region of a call."""
        if region is not None:
            _leave_region(region)
        if self.after is not None:
            self.after(self.name)


def measuring(
    *, name: str | None = None, after: After | None = None, sync: bool = False
) -> Callable[[_Function], _Function]:
    """Return a decorator that makes every call of a function a phase.

    Coroutines count from their first step to their last; generators only while they
    run, not while their consumer does.

    Args:
        name: the name in the report; by default the function's own.
        after: called with that name after each call.
        sync: wait for the GPU before and after each call, and each step of a generator.

    Raises:
        UsageError: later, if the decorated object is not callable, or is a class.
    """
    if name is not None:
        name = named(name, of="measured")
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

    calls = _MeasuredCalls(name or _own_name(function), after, sync)
    if inspect.isasyncgenfunction(function):
        return _async_generator(function, calls)
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, calls)
    if inspect.isgeneratorfunction(function):
        return _generator(function, calls)
    return _measured_function(function, calls)


def _own_name(function: Any) -> str:
    """Return a function's own name, without ``<locals>``."""
    # a partial or another callable object has no name of its own
    found = getattr(function, "__qualname__", None) or type(function).__name__
    return named(str(found).replace("<locals>.", ""), of="measured")


def _measured_function(function: Any, calls: _MeasuredCalls) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        region = calls.enter()
        try:
            return function(*args, **kwargs)
        finally:
            calls.leave(region)

    return call


def _coroutine(function: Any, calls: _MeasuredCalls) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        region = calls.enter()
        try:
            return await function(*args, **kwargs)
        finally:
            calls.leave(region)

    return call


class _GeneratorRegion:
    """A generator's region, which is open only while the generator itself runs.

    A generator that is advanced within another region does not affect that region, and
    keeps its own open regions separate.
    """

    def __init__(self, calls: _MeasuredCalls) -> None:
        self._calls = calls
        around = here()
        self._account = current().enter(calls.name)
        # entering made it the innermost region: until its first step, the caller's is
        self._inside = step_in(around)
        self._around: OpenPhase | None = None
        self._wall = self._cpu = 0.0
        self._since = (0.0, 0.0)  # wall and CPU time when it last ran on

    def __enter__(self) -> None:
        if self._calls.sync:
            wait_quietly()
        self._around = step_in(self._inside)
        self._since = (clock(), cpu_time())

    def __exit__(self, *_: object) -> None:
        if self._calls.sync:
            wait_quietly()
        self._wall += clock() - self._since[0]
        self._cpu += cpu_time() - self._since[1]
        self._inside, self._around = step_in(self._around), None

    def end(self) -> None:
        """End the region."""
        if self._account is not None:
            _leave_region(self._account, self._wall, self._cpu)
        self._calls.leave(None)


def _generator(function: Any, calls: _MeasuredCalls) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        slices = _GeneratorRegion(calls)
        generator = function(*args, **kwargs)
        try:
            with slices:
                item = next(generator)
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    # its clean-up counts too
                    with slices:
                        generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - passed on
                    with slices:
                        item = generator.throw(error)
                else:
                    with slices:
                        item = generator.send(sent)
        except StopIteration as stop:
            # a value returned by the generator goes to `yield from`
            return stop.value
        finally:
            slices.end()

    return call


def _async_generator(function: Any, calls: _MeasuredCalls) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        slices = _GeneratorRegion(calls)
        generator = function(*args, **kwargs)
        try:
            with slices:
                item = await anext(generator)
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    with slices:
                        await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - passed on
                    with slices:
                        item = await generator.athrow(error)
                else:
                    with slices:
                        item = await generator.asend(sent)
        except StopAsyncIteration:
            return
        finally:
            slices.end()

    return call


def _enter_region(name: str, *, sync: bool) -> OpenPhase | None:
    if sync:
        wait_quietly()
    region = current().enter(name)
    if region is not None:
        region.sync = sync
    return region


def _leave_region(
    region: OpenPhase, wall: Seconds | None = None, cpu: Seconds | None = None
) -> None:
    """Leave a region, unless this is a fork of the process that entered it."""
    if region.sync:
        wait_quietly()
    if is_current(region.owner):
        current().leave(region, wall, cpu)
    else:
        step_out(region)


def named(name: object, *, of: str) -> str:
    """Return *name* as one short printable line; warn once if it had to be changed.

    Raises:
        UsageError: it is not text, or empty.
    """
    if not isinstance(name, str):
        raise UsageError(f"{of}: a name is text, not {type(name).__name__}")
    if not name.strip():
        raise UsageError(f"{of}: the name is empty")
    if name.isprintable() and len(name) <= _LONGEST:
        return name
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
    # an escape is longer than its character, so the text is cut once more
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in short
    )[:_LONGEST]
    line = f"a name does not print, or is too long: written as {text:.20}"
    current().warn(line, matters=False)
    return text
