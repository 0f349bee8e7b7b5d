"""Loops over batches: each batch is only timed, the loop has one account of memory."""

from array import array
from collections.abc import Generator, Iterable, Iterator
from operator import index
from typing import Any, Generic, Self, TypeVar
from weakref import WeakSet

from weigh.errors import UsageError
from weigh.measure.channel import clock
from weigh.measure.durations import Durations
from weigh.measure.this_process import before_the_end, current, is_current

_Batch = TypeVar("_Batch")
_LOOK_INTERVAL = 1.0
_MOST_KEPT = 4096  # times taken before they are counted


class Loop(Generic[_Batch]):
    """An iterable that times what happens to each of its items.

    A time runs from asking for a batch until asking for the next, so that loading
    counts. A batch that the loop is left in does not count. As a context manager it
    ends with its block, at the latest.
    """

    def __init__(
        self, iterable: Iterable[_Batch], size: int | None, total: int | None
    ) -> None:
        self._iterable = iterable
        self._size = size
        self._total = total
        self._mine: WeakSet[Generator[_Batch]] = WeakSet()

    def __iter__(self) -> Iterator[_Batch]:
        running = _run(self._iterable, self._size, self._total)
        self._mine.add(running)
        _running.add(running)
        return running

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type] # raises what that raises

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs; the batches that were done count."""
        _close(self._mine)


def batches(
    iterable: Iterable[_Batch], size: int | None = None, total: int | None = None
) -> Loop[_Batch]:
    """Time each batch of a loop: ``for batch in weigh.batches(loader, size=50):``.

    Args:
        iterable: the batches themselves; nothing is cut into batches here.
        size: samples in a full batch, for the report; samples are counted by len.
        total: how many batches are expected; by default what len(iterable) says.

    Raises:
        UsageError: a size below 1, a total below 0, or nothing to iterate over.
    """
    if not (hasattr(iterable, "__iter__") or hasattr(iterable, "__getitem__")):
        raise UsageError(
            f"batches wants an iterable of batches, not {type(iterable).__name__}"
        )
    if size is not None:
        size = _whole(size, "size", least=1)
    if total is not None:
        return Loop(iterable, size, _whole(total, "total", least=0))
    return Loop(iterable, size, _length(iterable))


def _run(
    iterable: Iterable[_Batch], size: int | None, total: int | None
) -> Generator[_Batch]:
    """Hand out batches, timing each; keeps no reference to one that is handed out."""
    tracker = current()
    loop = tracker.begin_loop(size, total)
    if loop is None:
        yield from iterable
        return
    samples = _Samples(size)
    times = array("d")
    box: list[_Batch] = []
    done = 0
    look_at = clock() + _LOOK_INTERVAL
    started = clock()
    try:
        for batch in iterable:
            try:
                plain = type(batch) is samples.plain
                count = len(batch) if plain else samples.count(batch)  # type: ignore[arg-type]
            except Exception:  # noqa: BLE001 - a batch of unknown length is still a batch
                samples.known, count = False, 0
            box.append(batch)
            del batch
            yield box.pop()
            now = clock()
            times.append(now - started)
            done += count
            if now < look_at and len(times) < _MOST_KEPT:
                started = now
                continue
            if is_current(tracker):
                counted = done if samples.known else None
                tracker.add_batches(loop, _counted(times), counted, ends=False)
            del times[:]
            done = 0
            started = clock()
            look_at = started + _LOOK_INTERVAL
    finally:
        if is_current(tracker):
            counted = done if samples.known else None
            tracker.add_batches(loop, _counted(times), counted, ends=True)


def _counted(times: "array[float]") -> Durations:
    durations = Durations()
    durations.extend(times)
    return durations


class _Samples:
    """Counts the samples of a batch; those of the type ``plain`` by len alone."""

    __slots__ = ("_size", "known", "plain")

    def __init__(self, size: int | None) -> None:
        self._size = size
        self.known = True
        self.plain: type | None = None

    def count(self, batch: Any) -> int:  # noqa: ANN401 - whatever a loader gives
        """Count samples: of text one, of columns the rows; raises what len raises."""
        if isinstance(batch, str | bytes):
            return 1
        if hasattr(batch, "keys") and hasattr(batch, "values"):
            return len(next(iter(batch.values())))
        if isinstance(batch, list | tuple) and self._is_columns(batch):
            return len(batch[0])
        count = len(batch)
        self.plain = type(batch)
        return count

    def _is_columns(self, batch: "list[Any] | tuple[Any, ...]") -> bool:
        """Tell (inputs, labels), as a data loader gives them, from rows."""
        if len(batch) == self._size:
            return False
        shapes = [getattr(column, "shape", None) for column in batch]
        rows = {shape[0] for shape in shapes if shape}
        return bool(shapes and shapes[0]) and len(rows) == 1


def _whole(number: object, what: str, *, least: int) -> int:
    try:
        whole = index(number)  # type: ignore[arg-type] # that is asked here
    except TypeError:
        whole = None
    if whole is None or isinstance(number, bool) or whole < least:
        raise UsageError(
            f"batches: {what} is a whole number of at least {least}, not {number!r:.40}"
        )
    return whole


def _length(iterable: object) -> int | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a loader may raise anything here
        return None


def _close(running: "WeakSet[Generator[Any]]") -> None:
    for one in tuple(running):
        try:
            one.close()
        except ValueError:  # another thread is inside it
            continue


_running: "WeakSet[Generator[Any]]" = WeakSet()
before_the_end(lambda: _close(_running))
