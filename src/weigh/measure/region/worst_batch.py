"""The longest batches of a loop and some of other lengths, in place of all of them.

The longest text decides the memory of a whole set, and the time of all batches follows
from the time of a few and the lengths of all. ``weigh run --worst-batch`` asks for it.
"""

# ruff: noqa: ANN401 - any loader

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from statistics import fmean
from typing import Any
from weakref import WeakKeyDictionary

from weigh.measure.cpu_wait import parse_schedstat
from weigh.measure.region.batch_shapes import (
    BatchShape,
    rows_of_batch,
    sample_length,
    shape_of_rows,
)
from weigh.measure.region.channel import clock
from weigh.model.record import WholeLoopForecast
from weigh.regular_file import file_head
from weigh.units import Seconds

_LOOK = 60.0  # seconds in which lengths are read: a stream may have no end
_PART = 100  # of so many batches one is run: 1 % (docs/python.md)
_LEAST_SPREAD = 3  # batches of other lengths that are run: two more than a line needs
_KEPT = 64  # batches of a stream, before the choice among them drops the others
# what memory may follow: padded samples, each with each (attention), all text
_MEASURES: tuple[Callable[[BatchShape], int], ...] = (
    lambda shape: shape.padded,
    lambda shape: shape.padded * shape.longest,
    lambda shape: shape.total,
)
# the largest by each measure, others, and the two longest again
_FEWEST = len(_MEASURES) + _LEAST_SPREAD + 2
# lengths by index: a data set is read once, however many epochs go over it
_lengths_of_data_sets: WeakKeyDictionary[Any, dict[Any, int]] = WeakKeyDictionary()


class LongestBatchesFirst:
    """Iterates over a few batches of a loop: the longest, others, the longest again.

    The first batch of a program pays for its start, and an optimizer takes its memory
    only after a step: so the longest comes again. The second longest is before it, as
    results of a batch are often held until the next one has its own.

    Where lengths cannot be known before the loop runs, all batches run. ``note`` is
    why, or what else a user has to know.
    """

    def __init__(self, loader: Iterable[Any], size: int | None) -> None:
        self.shapes: list[BatchShape] = []  # of the batches that were looked at
        self.is_cut = False  # not all were looked at
        self.order: list[int] = []  # numbers of the batches that run; none: all run
        self.note: str | None = None
        self._batches: Iterable[Any] = loader
        self._times: dict[int, Seconds] = {}
        self._spent: Seconds = 0.0
        try:
            is_indexed = self._choose_by_index(loader)
        except Exception as error:  # noqa: BLE001 - a loader may raise anything here
            self._run_all(f"{type(error).__name__}: {error}", loader)
            return
        if not is_indexed:
            self._choose(loader, size)
        if self.is_cut:
            self.note = f"only the first {len(self.shapes)} batches were looked at"
        elif not self.shapes and self.note is None:
            self._run_all("it has no batches", self._batches)

    def __iter__(self) -> Iterator[Any]:
        if not self.order:
            yield from self._batches
            return
        batches = iter(self._batches)
        for number in self.order:
            started = clock() - waited_for_cpu()
            # a name would keep the batch alive while the program works on the next one
            box = [*islice(batches, 1)]
            if not box:
                return
            yield box.pop()
            # of one that comes twice, the second time counts
            self._times[number] = clock() - waited_for_cpu() - started
            self._spent += self._times[number]

    def forecast(self, expected: int | None) -> WholeLoopForecast | None:
        """Return what all batches take; None if all run, or the loop was left.

        *expected* is the number of all batches, where not all were looked at.
        """
        if not self.order or not self._times.keys() >= set(self.order):
            return None
        by_size: dict[int, list[Seconds]] = {}
        for number, time in self._times.items():
            by_size.setdefault(self.shapes[number].padded, []).append(time)
        pairs = sorted((size, fmean(times)) for size, times in by_size.items())
        whole = sum(_time_of_length(pairs, shape.padded) for shape in self.shapes)
        count = len(self.shapes)
        if self.is_cut and expected is not None:
            count, whole = max(count, expected), whole * max(1.0, expected / count)
        return WholeLoopForecast(
            batches=count,
            longest=max(shape.longest for shape in self.shapes),
            time=whole,
            left_out=max(0.0, whole - self._spent),
        )

    def _choose_by_index(self, loader: Any) -> bool:
        """Choose of a DataLoader by its data set; return False if *loader* is none."""
        # a sampler that draws no indices is that of a stream
        sampler = getattr(loader, "batch_sampler", None)
        if sampler is None or not hasattr(loader.dataset, "__len__"):
            return False
        try:
            known = _lengths_of_data_sets.setdefault(loader.dataset, {})
        except TypeError:  # a list or another type without weak references
            known = {}
        drawn: list[list[Any]] = []
        for indices in self._in_time(sampler):
            drawn.append([*indices])
            for index in drawn[-1]:
                if index not in known:
                    known[index] = sample_length(loader.dataset[index])
            self.shapes.append(BatchShape.of([known[index] for index in drawn[-1]]))
        self.order = _batches_to_run(self.shapes, len(loader))
        # with the loader's own workers and collation; attributes refuse to be set
        self._batches = copy.copy(loader)
        chosen = [drawn[number] for number in self.order]
        self._batches.__dict__["batch_sampler"] = chosen
        return True

    def _choose(self, loader: Iterable[Any], size: int | None) -> None:
        """Go over a list or a stream once without the program's work, and choose.

        Of a stream, the batches to be run are kept. Not tensors: that would take memory
        which the whole run does not take.
        """
        kept: dict[int, Any] = {}
        is_list, stream = isinstance(loader, list | tuple), iter(loader)
        for number, batch in enumerate(self._in_time(stream)):
            shape, is_tensor = None, False
            with suppress(Exception):  # any error of a foreign batch
                rows = rows_of_batch(batch, size)
                shape, is_tensor = shape_of_rows(rows), hasattr(rows, "shape")
            if number == 0 and (shape is None or (is_tensor and not is_list)):
                why = "its batches have no lengths"
                why = why if shape is None else "it is a stream of tensors"
                return self._run_all(why, chain([batch], stream))
            self.shapes.append(shape or BatchShape(1, 0, 0))
            kept[number] = batch
            if len(kept) > _KEPT and not is_list:
                # of those kept so far: the longest of them are the longest of all
                kept = {n: kept[n] for n in _batches_to_run(self.shapes, 0, kept)}
        count = len(kept) if is_list else 0
        self.order = _batches_to_run(self.shapes, count, kept)
        self._batches = map(kept.__getitem__, self.order)
        return None

    def _run_all(self, why: str, batches: Iterable[Any]) -> None:
        self._batches, self.order = batches, []
        self.note = f"all batches run: {why}"

    def _in_time(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield from *batches* until there was time enough."""
        until = clock() + _LOOK
        for batch in batches:
            yield batch
            if clock() > until:
                self.is_cut = True
                return


def _batches_to_run(
    shapes: Sequence[BatchShape], count: int, among: Iterable[int] = ()
) -> list[int]:
    """Return the numbers of the batches to run: the longest, and evenly spread ones.

    They are *among* those, if there are any, else all.

    How many depends on the *count* of all only: ranks that wait for each other in each
    batch have different longest ones.
    """
    numbers = among or range(len(shapes))
    falling = sorted(numbers, key=lambda number: -shapes[number].padded)
    # each of few batches runs, once
    if len(shapes) <= _FEWEST:
        return falling
    worst = [
        max(falling, key=lambda number: measure(shapes[number]))
        for measure in _MEASURES
    ]
    spread = max(_LEAST_SPREAD, count // _PART - len(worst) - 2)
    step = len(falling) / spread
    # falling: malloc keeps the room of a batch for shorter ones, as in the whole loop
    others = [falling[int((place + 0.5) * step)] for place in range(spread)]
    # where one batch is the largest in several ways, others come in its place
    different = dict.fromkeys((*worst, *others, *falling))
    return [*islice(different, len(worst) + spread), falling[1], falling[0]]


def waited_for_cpu() -> Seconds:
    """Return how long this thread was ready to run while others had the CPUs.

    A few batches meet another load than all of them: 37 s were predicted for 55.
    """
    times = parse_schedstat(file_head("/proc/thread-self/schedstat"))
    return 0.0 if times is None else times[1] * 1e-9


def _time_of_length(pairs: Sequence[tuple[int, Seconds]], size: int) -> Seconds:
    """Return the time at *size*, by the line through the (size, time) next to it."""
    if len(pairs) == 1:  # in proportion
        pairs = [(0, 0.0), *pairs]
    at = min(max(bisect_left(pairs, (size, 0.0)), 1), len(pairs) - 1)
    (low, low_time), (high, high_time) = pairs[at - 1 : at + 1]
    time = low_time + (high_time - low_time) * (size - low) / max(1, high - low)
    # beyond both, the line may lead anywhere
    return min(max(0.0, time), max(low_time, high_time))
