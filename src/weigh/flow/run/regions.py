"""``import weigh`` in a program: phases, batches, events, and their report."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from weigh.lazy_modules import lazy_module
from weigh.measure.ranks import rank_in_environment
from weigh.measure.region.loops import batches
from weigh.measure.region.region import measured_function, phase, region_name
from weigh.measure.region.timing import timeit
from weigh.measure.region.tracker import (
    RegionTracker,
    current,
    print_error,
    process,
    report_now,
)
from weigh.model.record import ProgramRegions

if TYPE_CHECKING:
    from weigh.render import region_lines
else:  # each is imported when it is first used
    region_lines = lazy_module("weigh.render.region_lines")

__all__ = ["batches", "event", "measured", "phase", "report", "timeit"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LONGEST_VALUE = 200  # characters
_LARGEST_WHOLE = 1 << 63  # what JSON readers take


@overload
def measured(function: _Function, /) -> _Function: ...
@overload
def measured(
    *, name: str | None = None, show_gpus: bool = False, sync: bool = False
) -> Callable[[_Function], _Function]: ...
def measured(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    show_gpus: bool = False,
    sync: bool = False,
) -> Any:
    """Measure every call of a function, as a phase with its name.

    For functions and coroutines.

    Args:
        function: the function, if the decorator has no parentheses.
        name: the name in the report; by default the function's own.
        show_gpus: print one line per visible GPU on stderr after each call.
        sync: wait for the GPU before and after each call, so that its work counts here.

    Raises:
        UsageError: the decorated object is not a function, or a generator.
    """
    decorate = partial(
        measured_function,
        name=None if name is None else region_name(name, of="measured"),
        after=_show_gpus if show_gpus else None,
        sync=sync,
    )
    return decorate if function is None else decorate(function)


def event(name: str, value: object = None) -> None:
    """Record an event, with a number or a word: ``event("epoch", 3)``.

    Raises:
        UsageError: the name is not text, or empty.
    """
    current().add_event(region_name(name, of="event"), _plain_event_value(value))


def report() -> ProgramRegions:
    """Print the regions measured so far, and return them.

    A notebook shows what is returned, so nothing is printed there.
    """
    return report_now(_print_regions).regions()


def _print_regions(text: str) -> None:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None and sys.stdout is not None:
        sys.stdout.write(text)


def _plain_event_value(value: object) -> float | str | None:
    """Return *value* as a number or text; a tensor with one number is that number."""
    if hasattr(value, "item"):
        with suppress(Exception):  # a tensor of several numbers, or a foreign item()
            value = value.item()
    # True is an int to Python, and would be "true" in JSON
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and abs(value) >= _LARGEST_WHOLE:
        with suppress(OverflowError):
            return float(value)
    elif value is None or isinstance(value, int | float):
        return value
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - any error of a foreign __str__
        text = f"a {type(value).__name__}"
    # lone surrogates cannot be written to the event file
    return text[:_LONGEST_VALUE].encode("utf-8", "replace").decode()


def _render(tracker: RegionTracker) -> str:
    script = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    own = rank_in_environment(os.environ)
    rank = "" if own is None else f", rank {own.rank}"
    return region_lines.render_regions(tracker.regions(), f"{script or 'python'}{rank}")


def _show_gpus(name: str) -> None:
    gpus = current().gpus()
    if not gpus:
        current().warn(f"after {name}: no GPU is visible")
        return
    lines = [
        region_lines.render_gpu(
            gpu.device.index,
            gpu.device.name,
            None if gpu.last is None else gpu.last.memory_used,
            gpu.device.memory_total,
        )
        for gpu in gpus
    ]
    print_error("".join(f"{line}\n" for line in (f"weigh  after {name}", *lines)))


process.report = _render
