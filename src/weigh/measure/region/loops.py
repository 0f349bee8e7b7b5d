"""Loops over batches: each batch is timed, memory is measured for the whole loop."""

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weigh.errors import UsageError
from weigh.lazy_modules import lazy_module
from weigh.measure.region.batch_shapes import longest_row, rows_of_batch
from weigh.measure.region.channel import clock
from weigh.measure.region.region import checked_whole_number
from weigh.measure.region.spans import OpenLoop
from weigh.measure.region.tracker import RegionTracker, current, is_current
from weigh.probe.gpu_libraries import wait_quietly
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.measure.region import worst_batch
    from weigh.measure.region.worst_batch import LongestBatchesFirst
else:  # imported when it is first used
    worst_batch = lazy_module("weigh.measure.region.worst_batch")

_WORST_BATCH = "WEIGH_WORST_BATCH"  # set by weigh run --worst-batch
_Batch = TypeVar("_Batch")
# so that a batch costs 0.7 us (docs/python.md)
_LOOK_INTERVAL = 1.0  # seconds between two flushes
_MOST_KEPT = 4096  # batch times kept before they are added up
_LONGER = 21 / 20  # what makes a batch so much longer that the memory is read


class TimedLoop(Generic[_Batch]):
    """An iterable that times the processing of each of its items.

    A batch's time runs from its request to the request of the next, so loading counts.
    A batch in which the loop is left does not count.
    """

    def __init__(
        self,
        iterable: Iterable[_Batch],
        size: int | None,
        total: int | None,
        *,
        sync: bool = False,
    ) -> None:
        self._sync = sync
        self._iterable = iterable
        self._size = size
        self._total = total

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type] # raises what that raises

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[_Batch]:
        """Yield the batches and time each, without keeping a reference to it."""
        tracker = current()
        region = tracker.begin_loop(self._size, self._total)
        if region is None:
            yield from self._iterable
            return
        running = RunningLoop(tracker, region, self._size)
        iterable, sync = self._iterable, self._sync
        longest_first: LongestBatchesFirst | None = None
        if os.environ.get(_WORST_BATCH) == "1":
            iterable, longest_first = self._longest_first(tracker)
            sync = True  # the few times count for all
        times = running.times
        # a name would keep the batch alive while the program works on the next one
        box: list[_Batch] = []
        look_at = clock() + _LOOK_INTERVAL
        started = clock()
        try:
            for batch in iterable:
                try:
                    plain = type(batch) is running.plain
                    # len is a fast way for the type that was counted that way before
                    count = len(batch) if plain else running.count(batch)  # type: ignore[arg-type]
                except Exception:  # noqa: BLE001 - of unknown length, but still a batch
                    running.known, count = False, 0
                length = running.length(batch) if running.has_lengths else 0
                box.append(batch)
                del batch
                yield box.pop()
                if sync:
                    wait_quietly()
                now = clock()
                times.append(now - started)
                running.done += count
                if length > running.longest:
                    running.note(length)
                    # reading the memory does not count for the next batch
                    now = clock()
                # nothing is due: go on as fast as possible
                if now < look_at and len(times) < _MOST_KEPT:
                    started = now
                    continue
                running.flush(ends=False)
                started = clock()
                look_at = started + _LOOK_INTERVAL
            if longest_first is not None:
                running.predict_all(longest_first, self._total)
        finally:
            running.end()

    def _longest_first(
        self, tracker: RegionTracker
    ) -> "tuple[Iterable[_Batch], LongestBatchesFirst | None]":
        """Return the batches that run in place of all, where they can be known."""
        asked = worst_batch.longest_batches_first(self._iterable, self._size)
        if isinstance(asked, worst_batch.UnaskedBatches):
            tracker.warn(f"--worst-batch: all batches run: {asked.why}")
            return asked.batches, None
        if asked.is_cut:
            count = len(asked.shapes)
            tracker.warn(
                f"--worst-batch: only the first {count} batches were looked at"
            )
        return asked, asked


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
    return TimedLoop(iterable, size, total, sync=sync)


class RunningLoop:
    """Times and samples of batches that are not yet passed to the tracker.

    ``done`` counts the samples of completed, not yet flushed batches; ``known`` is
    False once a batch could not be counted. Batches of the type ``plain`` are counted
    with len.
    """

    def __init__(
        self, tracker: RegionTracker, loop: OpenLoop, size: int | None
    ) -> None:
        self._tracker = tracker
        self._loop = loop
        self._size = size
        self.times = array("d")
        self.done = 0
        self.known = True
        self.plain: type | None = None
        self.has_lengths = True
        self.longest = 0.0
        self._shortest: int | None = None
        tracker.endings.add(self.end)

    def add(self, time: Seconds, samples: int | None) -> None:
        """Add a batch; None: its samples are not known."""
        self.times.append(time)
        self.done += samples or 0
        self.known = self.known and samples is not None

    def note(self, length: int) -> None:
        """Read the memory after a batch that is longer than all so far."""
        self.longest = length * _LONGER
        if is_current(self._tracker):
            self._tracker.add_length(self._loop, length)

    def predict_all(self, some: "LongestBatchesFirst", expected: int | None) -> None:
        """Pass on what all batches of a loop take, of which *some* ran."""
        forecast = some.forecast(expected)
        if forecast is not None and is_current(self._tracker):
            self._tracker.add_forecast(self._loop, forecast)

    def flush(self, *, ends: bool) -> None:
        """Pass them to the tracker, unless this is a fork of the looping process."""
        if is_current(self._tracker):
            samples = self.done if self.known else None
            self._tracker.add_batches(
                self._loop, self.times, samples, self._shortest, ends=ends
            )
        self.done = 0
        del self.times[:]

    def end(self) -> None:
        """Pass the rest; later batches do not count."""
        self._tracker.endings.discard(self.end)
        self.flush(ends=True)

    def count(self, batch: Any) -> int:  # noqa: ANN401 - any loader's batch
        """Return the number of samples: 1 for text, the rows for columns."""
        if isinstance(batch, str | bytes):
            return 1
        rows = rows_of_batch(batch, self._size)
        count = len(rows)
        # rows that are the batch itself: the next one of this type needs only len
        if rows is batch:
            self.plain = type(batch)
        return count

    def length(self, batch: Any) -> int:  # noqa: ANN401 - as above
        """Return the length of the longest sample: its text, list or padded row.

        From the first batch without such samples on, it is not looked for.
        """
        found = None
        with suppress(Exception):  # as for the count of such a batch
            is_rows = type(batch) is self.plain
            found = longest_row(batch if is_rows else rows_of_batch(batch, self._size))
        self.has_lengths = found is not None
        if found is None:
            return 0
        if self._shortest is None or found < self._shortest:
            self._shortest = found
        return found
