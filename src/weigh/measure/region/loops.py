"""Loops over batches: each batch is timed, memory is measured for the whole loop."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import nan
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from weigh.errors import UsageError
from weigh.lazy_modules import lazy_module
from weigh.measure.region.channel import clock
from weigh.measure.region.region import checked_whole_number
from weigh.measure.region.tracker import MOST_KEPT, current
from weigh.probe.gpu_libraries import wait_quietly

if TYPE_CHECKING:
    from weigh.measure.region import worst_batch
    from weigh.measure.region.worst_batch import LongestBatchesFirst
else:  # imported when it is first used
    worst_batch = lazy_module("weigh.measure.region.worst_batch")

_WORST_BATCH = "WEIGH_WORST_BATCH"  # set by weigh run --worst-batch
_Batch = TypeVar("_Batch")
# seconds between two readings of memory, so that a batch costs 0.7 us (docs/python.md)
LOOK_INTERVAL = 1.0


class TimedLoop(msgspec.Struct, Generic[_Batch], eq=False):
    """An iterable that times the processing of each of its items.

    A batch's time runs from its request to the request of the next, so loading counts.
    A batch in which the loop is left does not count.
    """

    iterable: Iterable[_Batch]
    size: int | None
    total: int | None
    sync: bool

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type] # raises what that raises

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a loader has
        """Return what the loader has, such as its data set."""
        if name in TimedLoop.__struct_fields__:  # while a copy is made
            raise AttributeError(name)
        return getattr(self.iterable, name)

    def __iter__(self) -> Iterator[_Batch]:
        """Yield the batches and time each, without keeping a reference to it."""
        tracker = current()
        running = tracker.begin_loop(self.size, self.total)
        if running is None:
            yield from self.iterable
            return
        iterable, sync = self.iterable, self.sync
        longest_first: LongestBatchesFirst | None = None
        if os.environ.get(_WORST_BATCH) == "1":
            longest_first = worst_batch.LongestBatchesFirst(iterable, self.size)
            iterable = longest_first
            sync = sync or bool(longest_first.order)  # the few times count for all
            if longest_first.note is not None:
                tracker.warn(f"--worst-batch: {longest_first.note}")
        times, total = running.times, running.total
        # a name would keep the batch alive while the program works on the next one
        box: list[_Batch] = []
        count: float
        look_at = clock() + LOOK_INTERVAL
        started = clock()
        try:
            for batch in iterable:
                try:
                    # len is a fast way for the type that was counted that way before
                    is_plain = type(batch) is running.plain and not running.has_lengths
                    count = len(batch) if is_plain else running.count(batch)  # type: ignore[arg-type]
                except Exception:  # noqa: BLE001 - of unknown length, but still a batch
                    count = nan
                box.append(batch)
                del batch
                yield box.pop()
                if sync:
                    wait_quietly()
                now = clock()
                times.append(now - started)
                running.samples += count
                if running.length > total.longest:
                    tracker.add_length(running)
                    # reading the memory does not count for the next batch
                    now = clock()
                # nothing is due: go on as fast as possible
                if now < look_at and len(times) < MOST_KEPT:
                    started = now
                    continue
                running.flush()
                started = clock()
                look_at = started + LOOK_INTERVAL
            if longest_first is not None:
                running.forecast = longest_first.forecast(self.total)
        finally:
            running.end()


def batches(
    iterable: Iterable[_Batch],
    size: int | None = None,
    total: int | None = None,
    *,
    sync: bool = False,
) -> TimedLoop[_Batch]:
    """Time each batch of a loop: ``for batch in weigh.batches(loader, size=50):``.

    Args:
        iterable: the batches; they are not formed here.
        size: samples in a full batch, for the report; samples are counted by len.
        total: the expected number of batches; by default len(iterable).
        sync: wait for the GPU at the end of each batch, so that its work counts.

    Raises:
        UsageError: a size below 1, a total below 0, or not an iterable.
    """
    if not (hasattr(iterable, "__iter__") or hasattr(iterable, "__getitem__")):
        raise UsageError(
            f"batches needs an iterable of batches, not {type(iterable).__name__}"
        )
    if size is not None:
        size = checked_whole_number(size, "batches: size", least=1)
    if total is not None:
        total = checked_whole_number(total, "batches: total", least=0)
    else:
        with suppress(Exception):  # a loader may raise anything here
            total = len(iterable)  # type: ignore[arg-type]
    return TimedLoop(iterable, size, total, sync)
