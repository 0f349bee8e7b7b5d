"""Call functions that may hang, such as a driver's or a file server's."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from weigh.units import Seconds

_T = TypeVar("_T")


def in_time(
    functions: Sequence[Callable[[], _T]], *, patience: Seconds
) -> list[_T | None]:
    """Call *functions* in parallel; the result is None for one that is too slow.

    A call that hangs (an unreachable file server) keeps its thread; we do not wait.
    """
    results: dict[int, _T] = {}
    errors: list[Exception] = []

    def call(place: int, function: Callable[[], _T]) -> None:
        try:
            results[place] = function()
        except Exception as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    threads = [
        threading.Thread(target=call, args=(place, function), daemon=True)
        for place, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    _join_all(threads, patience)
    if errors:
        raise errors[0]
    return [results.get(place) for place in range(len(functions))]


def _join_all(threads: Sequence[threading.Thread], patience: Seconds) -> None:
    # one deadline for all: they run in parallel
    end = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
