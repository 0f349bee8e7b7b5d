"""The longest batches of a loop and some of other lengths, in place of all of them.

The longest text decides the memory of a whole set, and the time of all batches follows
from the time of a few and the lengths of all. ``weigh run --worst-batch`` asks for it.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from random import Random
from statistics import fmean
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from weigh.measure.cpu_wait import parse_schedstat
from weigh.measure.region.batch_shapes import (
    BatchShape,
    rows_of_batch,
    sample_length,
    shape_of_batch,
)
from weigh.measure.region.channel import clock
from weigh.model.record import WholeLoopForecast
from weigh.regular_file import file_head
from weigh.units import Seconds

_LOOK = 60.0  # seconds in which lengths are read: a stream may have no end
_PART = 100  # of so many batches one is run, besides the longest
_LEAST_SPREAD, _MOST_SPREAD = 3, 20  # batches of other lengths that are run
_FEW = 8  # of no more batches each is run, once
# batches of a stream that are kept, by chance; each 3rd of them is run
_KEPT = _FEW
# what memory may follow: padded samples, each with each (attention), all text
_MEASURES: tuple[Callable[[BatchShape], int], ...] = (
    lambda shape: shape.padded,
    lambda shape: shape.padded * shape.longest,
    lambda shape: shape.total,
)
_EMPTY = "it has no batches"
# lengths by index: a data set is read once, however many epochs go over it
_lengths_of_data_sets: WeakKeyDictionary[Any, dict[Any, int]] = WeakKeyDictionary()


class UnaskedBatches(NamedTuple):
    """A loop whose lengths cannot be known before it runs: *batches* are all of it."""

    why: str
    batches: Iterable[Any]


class LongestBatchesFirst:
    """Iterates over a few batches of a loop: the longest, others, the longest again.

    The first batch of a program pays for its start, and an optimizer takes its memory
    only after a step: so the longest comes again. The second longest is before it, as
    results of a batch are often held until the next one has its own.
    """

    def __init__(
        self, shapes: Sequence[BatchShape], order: Sequence[int], batches: Iterable[Any]
    ) -> None:
        self.shapes = shapes
        self.is_cut = False  # not all batches were looked at
        self._order = order
        self._batches = batches
        self._times: dict[int, Seconds] = {}
        self._spent: Seconds = 0.0

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._batches)
        for number in self._order:
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
        """Return what all batches take; None if the loop was left before its end.

        *expected* is the number of all batches, where not all were looked at.
        """
        if not self._order or not self._times.keys() >= set(self._order):
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


def waited_for_cpu() -> Seconds:
    """Return how long this thread was ready to run while others had the CPUs.

    A few batches meet another load than all of them: 37 s were predicted for 55.
    """
    times = parse_schedstat(file_head("/proc/thread-self/schedstat"))
    return 0.0 if times is None else times[1] * 1e-9


def _time_of_length(pairs: Sequence[tuple[int, Seconds]], size: int) -> Seconds:
    """Return the time at *size*, between the measured (size, time) next to it."""
    at = min(bisect_left(pairs, (size, 0.0)), len(pairs) - 1)
    last, time = pairs[at]
    if size >= last or not last:
        return time
    first, first_time = pairs[at - 1] if at else (0, 0.0)
    if at == 0 and len(pairs) > 1:
        # what a batch of no length takes, by the line through the shortest two
        slope = (pairs[1][1] - time) / (pairs[1][0] - last)
        first_time = min(time, max(0.0, time - slope * last))
    return first_time + (time - first_time) * (size - first) / (last - first)


def longest_batches_first(
    loader: Any,  # noqa: ANN401 - any loader
    size: int | None,
) -> LongestBatchesFirst | UnaskedBatches:
    """Return the batches of *loader* to run in place of all, or why that cannot be."""
    for ask in (_asked_torch_loader, _asked_sequence):
        try:
            asked = ask(loader, size)
        except Exception as error:  # noqa: BLE001 - a loader may raise anything here
            return UnaskedBatches(f"{type(error).__name__}: {error}", loader)
        if asked is not None:
            return asked
    return _asked_stream(loader, size)


def _asked_torch_loader(
    loader: Any,  # noqa: ANN401 - as above
    _size: int | None,
) -> LongestBatchesFirst | UnaskedBatches | None:
    """Return the batches of a DataLoader of torch over a data set with indices."""
    if not all(hasattr(loader, name) for name in ("dataset", "batch_sampler")):
        return None
    samples = loader.dataset
    # a stream: its sampler draws no indices
    if loader.batch_sampler is None or not hasattr(samples, "__len__"):
        return None
    try:
        lengths = _lengths_of_data_sets.setdefault(samples, {})
    except TypeError:  # a list or another type without weak references
        lengths = {}
    batches: list[list[Any]] = []
    shapes = _ShapesRead()
    for drawn in shapes.in_time(loader.batch_sampler):
        indices = [*drawn]
        for index in indices:
            if index not in lengths:
                lengths[index] = sample_length(samples[index])
        several = [lengths[index] for index in indices]
        batches.append(indices)
        shapes.append(BatchShape(len(several), max(several), sum(several)))
    if not shapes:
        return UnaskedBatches(_EMPTY, loader)
    order = _order_of_batches(shapes, len(loader))
    # with the loader's own workers and collation; its attributes refuse to be set
    short = copy.copy(loader)
    short.__dict__["batch_sampler"] = [batches[number] for number in order]
    return shapes.first(order, short)


def _asked_sequence(
    loader: Any,  # noqa: ANN401 - as above
    size: int | None,
) -> LongestBatchesFirst | UnaskedBatches | None:
    is_sequence = hasattr(loader, "__getitem__") and hasattr(loader, "__len__")
    if not is_sequence or hasattr(loader, "keys") or hasattr(loader, "shape"):
        return None
    if not len(loader):
        return UnaskedBatches(_EMPTY, loader)
    shapes = _ShapesRead()
    for number in shapes.in_time(range(len(loader))):
        shape = shape_of_batch(loader[number], size)
        if shape is None:
            return UnaskedBatches("its batches have no lengths", loader)
        shapes.append(shape)
    order = _order_of_batches(shapes, len(loader))
    return shapes.first(order, map(loader.__getitem__, order))


def _asked_stream(
    loader: Iterable[Any], size: int | None
) -> LongestBatchesFirst | UnaskedBatches:
    """Go over text once without the program's work, and keep the batches to be run.

    Tensors are not kept: that would take memory which the whole run does not take.
    """
    stream = iter(loader)
    first = [*islice(stream, 1)]
    whole = chain((first.pop() for _ in range(len(first))), stream)
    if not first:
        return UnaskedBatches(_EMPTY, ())
    if shape_of_batch(first[0], size) is None:
        return UnaskedBatches("its batches have no lengths", whole)
    if hasattr(rows_of_batch(first[0], size), "shape"):
        return UnaskedBatches("it is a stream of tensors", whole)
    shapes, kept, random = _ShapesRead(), dict[int, Any](), Random(0)  # noqa: S311 - batches
    worst, others, two = [0] * len(_MEASURES), list[int](), list[int]()
    for number, batch in enumerate(shapes.in_time(whole)):
        shapes.append(shape_of_batch(batch, size) or BatchShape(1, 0, 0))
        worst = [
            number if measure(shapes[-1]) > measure(shapes[best]) else best
            for measure, best in zip(_MEASURES, worst, strict=True)
        ]
        two = sorted((*two, number), key=lambda one: shapes[one].padded)[-2:]
        others.append(number)
        if len(others) > _KEPT:  # each of all has the same chance to stay
            place = random.randrange(number + 1)
            others[min(place, _KEPT)] = number
            others.pop()
        kept[number] = batch
        for gone in kept.keys() - {*worst, *two, *others}:
            del kept[gone]
    others.sort(key=lambda one: -shapes[one].padded)
    is_few = len(shapes) <= _FEW
    order = others if is_few else _there_and_back(worst, others[::3], others, two)
    return shapes.first(order, map(kept.__getitem__, order))


class _ShapesRead(list[BatchShape]):
    """The shapes of a loop's first batches, of all of them if time allows."""

    is_cut = False

    def in_time(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield from *batches* until there was time enough."""
        until = clock() + _LOOK
        for batch in batches:
            yield batch
            if clock() > until:
                self.is_cut = True
                return

    def first(
        self, order: Sequence[int], batches: Iterable[Any]
    ) -> LongestBatchesFirst:
        """Return the loop over *batches*, which have this *order*."""
        loop = LongestBatchesFirst(self, order, batches)
        loop.is_cut = self.is_cut
        return loop


def _order_of_batches(shapes: Sequence[BatchShape], count: int) -> list[int]:
    """Return the numbers of the batches to run: the longest, and evenly spread ones."""
    numbers = sorted(range(len(shapes)), key=lambda number: shapes[number].padded)
    worst = [
        max(reversed(numbers), key=lambda number: measure(shapes[number]))
        for measure in _MEASURES
    ]
    spread = count // _PART - len(worst) - 2
    spread = min(max(_LEAST_SPREAD, spread), _MOST_SPREAD)
    falling = numbers[::-1]
    if len(shapes) <= _FEW:
        return falling
    step = len(numbers) / spread
    # falling: malloc keeps the room of a batch for shorter ones, as in the whole loop
    others = [falling[int((place + 0.5) * step)] for place in range(spread)]
    return _there_and_back(worst, others, falling, numbers[-2:])


def _there_and_back(
    worst: Sequence[int],
    others: Sequence[int],
    rest: Sequence[int],
    two_longest: Sequence[int],
) -> list[int]:
    """Return the order of the batches; its length depends on their number only.

    Ranks that wait for each other in each batch have different longest ones.
    """
    different = dict.fromkeys((*worst, *others, *rest))
    return [*islice(different, len(worst) + len(others)), *two_longest]
