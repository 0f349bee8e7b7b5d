"""Loops over batches."""

import copy
import gc
import random
import statistics
import weakref
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from region_programs import TrackWith, run

from weigh.errors import UsageError
from weigh.flow.run.regions import batches
from weigh.measure.region import loops
from weigh.measure.region.tracker import (
    MOST_KEPT,
    LoopTotal,
    RegionTracker,
    RunningLoop,
)
from weigh.model.record import BatchTimes, LengthPeak
from weigh.probe.own_memory import OwnMemory
from weigh.render.region_lines import memory_by_length


def only(tracker: RegionTracker) -> BatchTimes:
    (loop,) = tracker.regions().batches
    return loop


def test_the_items_are_the_batches_and_pass_unchanged(tracker: RegionTracker) -> None:
    items = [[1, 2, 3], [4, 5, 6], [7]]
    seen = list(batches(items, size=3))
    assert all(mine is theirs for mine, theirs in zip(seen, items, strict=True))
    loop = only(tracker)
    assert (loop.size, loop.count, loop.samples, loop.total) == (3, 3, 7, 3)
    assert loop.forecast is None


def test_how_many_batches_come_is_known_or_given_and_adds_up_over_epochs(
    tracker: RegionTracker,
) -> None:
    list(batches(iter([[1], [2]])))
    list(batches(iter([[1], [2]]), total=10))
    loop = batches([[1], [2], [3]])
    for _ in range(3):
        list(loop)
    found = [(one.count, one.total) for one in tracker.regions().batches]
    assert sorted(found, key=str) == [(2, 10), (2, None), (9, 9)]
    # it has the length of what it goes over, and all that this has
    assert (len(loop), bool(batches([])), loop.index([2])) == (3, True, 1)
    with pytest.raises(AttributeError, match="no attribute 'dataset'"):
        _ = copy.copy(loop).dataset


class Tensor(list[Any]):
    """Something with a shape, as arrays and tensors have."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self),)


class Frame(Tensor):
    """A table as pandas has it: its values are no method."""

    keys, values = list[str], ()


class Unsized:
    def __len__(self) -> int:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("items", "size", "samples"),
    [
        ([["a sentence", "another"]], None, 2),
        (["one sentence"], None, 1),
        ([Tensor("abcd")], None, 4),
        ([[Tensor("abcd"), Tensor("wxyz")]], None, 4),
        ([(Tensor("abcd"), Tensor("wxyz"))], 4, 4),
        ([[Tensor("ab"), Tensor("wxyz")]], None, 2),
        ([[Tensor("ab"), Tensor("cd")]], 2, 2),
        ([{"ids": Tensor("abcd"), "mask": Tensor("wxyz")}], None, 4),
        ([({"ids": Tensor("abcd")}, Tensor("wxyz"))], None, 4),
        ([[{"ids": Tensor("abc")}, {"ids": Tensor("abc")}]], None, 2),
        ([Frame("abcd")], None, 4),
        # a batch of no length leaves all unknown
        ([[1, 2], 7, [4]], None, None),
        ([[1, 2], Unsized(), [4]], None, None),
        ([[1, 2], {}, [4]], None, None),
    ],
)
def test_samples_are_counted_whatever_a_batch_is_made_of(
    tracker: RegionTracker, items: list[Any], size: int | None, samples: int | None
) -> None:
    list(batches(items, size=size))
    assert (only(tracker).count, only(tracker).samples) == (len(items), samples)


class Padded(list[Any]):
    """A padded batch: 4 samples of so many numbers each."""

    def __init__(self, width: int) -> None:
        super().__init__("abcd")
        self.shape = (4, width)


@pytest.mark.parametrize(
    ("items", "shortest", "lengths"),
    [
        ([["a", "abc"], ["ab", "a"], ["abcdef"]], 2, [3, 6]),
        ([[[1, 2], [3]], [[4]], [[5, 6, 7]]], 1, [2, 3]),
        (["one sentence", "another one, longer"], 12, [12, 19]),
        ([Padded(7), Padded(5), Padded(9)], 5, [7, 9]),
        ([{"ids": Padded(7)}, {"ids": Padded(8)}], 7, [7, 8]),
        ([(Padded(100), Padded(1)), (Padded(104), Padded(1))], 100, [100]),
        ([[1, 2], [3, 4, 5]], None, []),
        ([iter("ab"), iter("abc")], None, []),
        ([["a"], [2], ["abc"]], 1, [1]),
    ],
)
def test_the_longest_samples_of_a_loop_are_kept(
    tracker: RegionTracker, items: list[Any], shortest: int | None, lengths: list[int]
) -> None:
    seen = [list(batch) for batch in batches(items)]
    assert all(seen)  # nothing was used up by looking at it
    loop = only(tracker)
    assert loop.shortest == shortest
    assert [one.length for one in loop.lengths] == lengths


LENGTHS = """
import weigh
for batch in weigh.batches([["x" * n] for n in [20, 100, 50, 400, 60, 30]], size=1):
    held = bytearray(b"1") * (len(batch[0]) << 17)
"""


def test_memory_that_rises_with_the_length_of_batches_is_named() -> None:
    report = run(LENGTHS).stderr
    assert "length 20 to 400: memory " in report
    assert "with the longest batch" in report


@pytest.mark.parametrize(
    ("sizes", "peak"),
    [
        ({400: 200}, 200),  # no rise was seen
        ({20: 64, 100: 64, 400: 64}, 64),
        ({20: 16, 100: 32, 400: 64}, 128),  # it rose on, as with a leak
        ({400: 64, 410: 66, 420: 68}, 68),  # of one length, nearly
    ],
)
def test_memory_that_batches_do_not_explain_is_not_named(
    sizes: dict[int, int], peak: int
) -> None:
    lengths = tuple(LengthPeak(length, size) for length, size in sizes.items())
    loop = BatchTimes(
        *(1, 9, 9, 1.0, 1.0, 1.0, 1.0, 1.0),
        peak_memory=peak,
        shortest=min(sizes),
        lengths=lengths,
    )
    assert memory_by_length(loop) == ""


@pytest.mark.parametrize(
    ("items", "given", "words"),
    [
        *(([], {"size": n}, "size is a whole number of at least 1") for n in (0, True)),
        *(([], {"size": n}, "size is a whole number") for n in (1.5, "5")),
        *(
            ([], {"total": n}, "total is a whole number of at least 0")
            for n in (-1, "x")
        ),
        (50, {}, "not int"),
    ],
)
def test_what_is_no_loop_is_refused_before_it_begins(
    tracker: RegionTracker, items: Any, given: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        batches(items, **given)
    assert tracker.regions().batches == ()


def test_a_loop_that_is_left_or_breaks_counts_the_batches_that_were_done(
    tracker: RegionTracker,
) -> None:
    def load() -> Iterator[list[int]]:
        yield [1]
        raise OSError("disk")

    for batch in batches([[1], [2], [3]], size=1):
        if batch == [3]:
            break
    with pytest.raises(OSError, match="disk"):
        list(batches(load(), size=2))
    with pytest.raises(KeyError):
        list(map({1: 1}.__getitem__, (one[0] for one in batches([[1], [0]], size=3))))
    found = {loop.size: loop.count for loop in tracker.regions().batches}
    assert found == {1: 2, 2: 1, 3: 1}


def test_a_loop_nobody_ended_is_in_the_report_at_the_end(
    tracker: RegionTracker,
) -> None:
    loop = iter(batches([[1]] * 5))
    assert [next(loop) for _ in range(3)] == [[1]] * 3
    tracker.finish()
    assert only(tracker).count == 2


def test_a_thread_that_loops_on_at_the_end_is_not_disturbed() -> None:
    done = run(
        "import threading\n"
        "rounds = threading.Semaphore(0)\n"
        "def work():\n"
        "  while True:\n"
        "    for _ in weigh.batches([[1]] * 3): pass\n"
        "    rounds.release()\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "for _ in range(500): rounds.acquire()\n"
    )
    assert "Traceback" not in done.stderr
    assert "batches" in done.stderr


def test_loops_of_other_sizes_stay_apart_the_longest_first_in_bounded_room(
    tracker: RegionTracker,
) -> None:
    for number in range(300):
        list(batches([[1]] * number, size=4))
    found = tracker.regions().batches
    assert len(found) == 101
    assert sum(loop.count for loop in found) == sum(range(300))
    times = [loop.count * (loop.time_mean or 0) for loop in found]
    assert times == pytest.approx(sorted(times, reverse=True))


def test_a_batch_that_the_program_drops_is_not_kept_alive(
    tracker: RegionTracker,
) -> None:
    class Batch(list[int]):
        pass

    def load() -> Iterator[Batch]:
        yield Batch([1])
        yield Batch([2])

    for batch in batches(load()):
        seen = weakref.ref(batch)
        del batch
        assert seen() is None
    assert only(tracker).count == 2


def test_200_000_batches_look_at_memory_some_fifty_times(
    track_with: TrackWith,
) -> None:
    class Counted(OwnMemory):
        looks = 0

        def read(self) -> tuple[int, int]:
            self.looks += 1
            return 100, 100

    memory = Counted()
    track_with(RegionTracker({}, memory=memory))
    for _ in loops.batches([[1]] * 200_000):
        pass
    assert memory.looks <= 2 + 200_000 / 4096 + 20


times = st.lists(st.floats(min_value=1e-7, max_value=1e4))


def loop_of(*parts: list[float]) -> BatchTimes:
    total = LoopTotal("", BatchTimes(None, 0, 0))
    for part in parts:
        total.add(RunningLoop(total=total, times=array("d", part)), 0.0)
    assert len(total.kept) <= MOST_KEPT
    return total.figures()


@given(times, times)
def test_durations_agree_with_the_statistics_of_all_times(
    first: list[float], second: list[float]
) -> None:
    loop, every = loop_of(first, second), first + second
    found = (loop.time_min, loop.time_max, loop.time_mean, loop.time_median)
    assert loop.count == len(every)
    if not every:
        assert found == (None,) * 4
        return
    assert found[:2] == (min(every), max(every))
    means = statistics.fmean(every), statistics.median(every)
    assert found[2:] == pytest.approx(means)


@pytest.mark.parametrize("parts", [1, 3])
def test_the_median_of_very_many_is_that_of_a_fair_selection(parts: int) -> None:
    chance = random.Random(parts)
    every = [chance.lognormvariate(-5, 1) for _ in range(90_001)]
    loop = loop_of(*(every[part::parts] for part in range(parts)))
    # of 10,000 of them or more: four times the error of such a median
    assert loop.time_median == pytest.approx(statistics.median(every), rel=0.05)
    assert (loop.time_min, loop.time_max) == (min(every), max(every))


@pytest.mark.usefixtures("tracker")
def test_loops_leave_nothing_for_the_garbage_collector() -> None:
    gc.collect()
    for _ in batches([[1], [2]]):
        pass
    for _ in batches([[1], [2]]):
        break
    assert gc.collect() == 0
