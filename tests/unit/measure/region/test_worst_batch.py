"""The longest batches of a loop in place of all of them, and the time of all."""

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from region_programs import run

from weigh.flow.run.regions import batches
from weigh.measure.region import worst_batch
from weigh.measure.region.batch_shapes import sample_length
from weigh.measure.region.channel import RegionLine, regions_of_lines
from weigh.measure.region.tracker import RegionTracker
from weigh.measure.region.worst_batch import LongestBatchesFirst
from weigh.model.record import BatchTimes, WholeLoopForecast

texts = st.lists(st.text("ab", max_size=60), min_size=1, max_size=4)


class Rows(list[Any]):
    """A padded batch of rows."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__([width] * rows)
        self.shape = (rows, width)


def padded(batch: Sequence[str]) -> int:
    return len(batch) * max(map(len, batch))


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        ("text", 4),
        (["some", "token"], 2),
        (("a text", 1), 6),
        (([1, 2, 3], [0]), 3),
        ({"label": 1, "ids": [1, 2]}, 2),
        (Rows(1, 5), 5),
        (7, 1),
        ({}, 0),
    ],
)
def test_a_sample_is_as_long_as_its_longest_column(sample: Any, length: int) -> None:
    assert sample_length(sample) == length


@given(st.lists(texts, min_size=1, max_size=400), st.sampled_from((iter, list)))
def test_the_largest_batches_of_a_list_or_a_stream_run_and_the_longest_ends_it(
    loader: list[list[str]], passed_as: Callable[[Any], Any]
) -> None:
    ran = [*LongestBatchesFirst(passed_as(loader), None)]
    # of few batches each runs once, the longest first
    assert len(loader) <= 8 or padded(ran[-1]) == max(map(padded, loader))
    assert padded(ran[0]) == max(map(padded, loader))
    for size in (padded, lambda batch: sum(map(len, batch))):
        assert max(map(size, ran)) == max(map(size, loader))
    assert all(batch in loader for batch in ran)
    # ranks that wait for each other in each batch run as many
    assert len(ran) == min(len(loader), 8)


def test_of_many_batches_one_of_a_hundred_runs_with_all_lengths_among_them() -> None:
    loader = [["x" * (number * 7 % 1500)] for number in range(1500)]
    lengths = [len(batch[0]) for batch in LongestBatchesFirst(loader, None)]
    assert len(lengths) == 15
    assert lengths[0] == lengths[-1] == 1499
    assert sorted(lengths)[:10] == pytest.approx([*range(75, 1500, 150)], abs=2)


class Clock:
    """Seconds that pass while batches are worked on, or wait for a CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.waited = 0.0
        monkeypatch.setattr(worst_batch, "clock", lambda: self.now)
        monkeypatch.setattr(worst_batch, "waited_for_cpu", lambda: self.waited)


@pytest.mark.parametrize(
    ("seconds_of", "within"),
    [
        (lambda length: 0.2 + length, 1.001),
        (lambda length: length, 1.001),
        (lambda _length: 3.0, 1.001),
        (lambda length: length * length, 1.6),
    ],
)
def test_the_time_of_all_follows_from_a_few_and_the_lengths_of_all(
    monkeypatch: pytest.MonkeyPatch, seconds_of: Any, within: float
) -> None:
    clock = Clock(monkeypatch)
    loader = [["x" * (10 + number * 37 % 200)] for number in range(300)]
    few = LongestBatchesFirst(loader, None)
    spent = 5.0  # the start of the program, which only the first batch pays for
    clock_at_start = clock.now = -spent
    for place, batch in enumerate(few):
        clock.now += seconds_of(len(batch[0])) + spent + place
        clock.waited += place  # others had the CPUs: their time does not count
        spent = 0.0
    forecast = few.forecast(None)
    assert forecast is not None
    whole = sum(seconds_of(len(batch[0])) for batch in loader)
    assert whole / within <= forecast.time <= whole * within
    assert forecast.left_out == pytest.approx(
        max(0.0, forecast.time - (clock.now - clock_at_start - clock.waited))
    )
    assert (forecast.batches, forecast.longest) == (300, 209)


def test_times_of_nearly_one_length_do_not_lead_below_0_or_above_what_was_seen() -> (
    None
):
    pairs = [(1000, 1.0), (1001, 0.5), (2000, 2.0)]
    assert 0 <= worst_batch._time_of_length(pairs, 0) <= 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's account on Linux")
def test_a_thread_that_shares_a_cpu_waits_for_it() -> None:
    code = (
        "import os, time\n"
        "from weigh.measure.region.worst_batch import waited_for_cpu\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "parent = os.getpid()\n"
        "if not os.fork():\n"
        "  while os.getppid() == parent: pass\n"
        "  os._exit(0)\n"
        "end = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\n"
        "print(waited_for_cpu() > 0.05)\n"
    )
    assert run(code).stdout == "True\n"


def test_a_loop_that_was_left_has_no_forecast() -> None:
    few = LongestBatchesFirst([["a"], ["ab"], ["abc"]], None)
    next(iter(few))
    assert few.forecast(None) is None


def test_a_stream_without_end_is_looked_at_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)

    def endless() -> Iterator[list[str]]:
        while True:
            clock.now += 1.0
            yield ["x" * int(clock.now)]

    few = LongestBatchesFirst(endless(), None)
    assert few.note == f"only the first {len(few.shapes)} batches were looked at"
    assert max(len(batch[0]) for batch in few) == len(few.shapes)
    forecast = few.forecast(1000)
    assert forecast is not None
    assert forecast.batches == 1000


def test_batches_of_one_length_take_as_long_as_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, few = Clock(monkeypatch), LongestBatchesFirst([["ab"]] * 100, None)
    for _ in few:
        clock.now += 2.0
    forecast = few.forecast(None)
    assert forecast is not None
    assert forecast.time == 200.0


def test_of_a_stream_few_batches_are_kept() -> None:
    class Batch(list[str]):
        """A batch that can be counted while it is alive."""

    alive, most = list[weakref.ref[Batch]](), 0

    def stream() -> Iterator[Batch]:
        nonlocal most
        for number in range(1000):
            batch = Batch(["x" * number])
            alive.append(weakref.ref(batch))
            most = max(most, sum(one() is not None for one in alive))
            yield batch

    few = LongestBatchesFirst(stream(), None)
    assert len(next(iter(few))[0]) == 999
    assert most <= 66


class Loader:
    """As much as is asked of torch's DataLoader: samples, and batches of indices."""

    def __init__(self) -> None:
        self.dataset = [("x" * (number * 7 % 300), number % 2) for number in range(600)]
        self.batch_sampler = [[first, first + 1] for first in range(0, 600, 2)]

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[tuple[str, int]]]:
        for drawn in self.batch_sampler:
            yield [self.dataset[index] for index in drawn]


def test_a_loader_is_asked_by_its_samples_and_keeps_its_batches() -> None:
    loader = Loader()
    ran = [
        max(len(text) for text, _ in batch) for batch in LongestBatchesFirst(loader, 2)
    ]
    assert (len(ran), ran[0], ran[-1]) == (8, 299, 299)
    assert len(loader.batch_sampler) == 300


class Unreadable(Loader):
    """A loader whose samples cannot be read one by one."""

    @property
    def dataset(self) -> Any:
        raise OSError("disk")

    @dataset.setter
    def dataset(self, samples: Any) -> None:
        """Take none."""

    def __iter__(self) -> Iterator[Any]:
        yield from (["a"], ["b"])


@pytest.mark.parametrize(
    ("loader", "why", "count"),
    [
        ([1, 2, 3], "its batches have no lengths", 3),
        (iter([1, 2, 3]), "its batches have no lengths", 3),
        (iter([Rows(2, 3), Rows(2, 5)]), "it is a stream of tensors", 2),
        ({1: "a"}, "its batches have no lengths", 1),
        ([], "it has no batches", 0),
        (iter([]), "it has no batches", 0),
        (Unreadable(), "OSError: disk", 2),
    ],
)
def test_a_loop_whose_lengths_cannot_be_known_runs_whole(
    loader: Any, why: str, count: int
) -> None:
    few = LongestBatchesFirst(loader, None)
    assert few.note == f"all batches run: {why}"
    assert (len([*few]), few.forecast(None)) == (count, None)


def test_an_error_of_a_stream_is_the_programs_to_meet() -> None:
    def breaks() -> Iterator[list[str]]:
        yield ["a"]
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        LongestBatchesFirst(breaks(), None)


def test_passes_over_one_loop_add_up(
    tracker: RegionTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_WORST_BATCH", "1")
    for _ in range(3):
        list(batches([["a" * length] for length in range(200)]))
    (loop,) = tracker.regions().batches
    assert loop.forecast is not None
    assert loop.forecast.batches == 600
    assert loop.count == loop.total == 24


def test_what_is_left_out_adds_up_in_a_process_but_not_over_processes() -> None:
    def line(process: str, loop: str, left_out: float) -> RegionLine:
        forecast = WholeLoopForecast(300, 9, time=50.0, left_out=left_out)
        times = BatchTimes(None, 8, 8, forecast=forecast)
        return RegionLine(process, loops={loop: times})

    lines = [line("a", "train", 40.0), line("a", "test", 5.0), line("b", "train", 41.0)]
    loops = regions_of_lines(lines, started=0.0, ended=9.0).batches
    assert [loop.forecast and loop.forecast.left_out for loop in loops] == [45.0] * 3


TORCH = """
import torch
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    reads = 0
    def __len__(self): return 800
    def __getitem__(self, index):
        Texts.reads += 1
        return torch.ones(1 + index % 400), index % 2

def padded(samples):
    return torch.nn.utils.rnn.pad_sequence([one for one, _ in samples], True), None

loader = DataLoader(
    Texts(), batch_size=4, shuffle=True, collate_fn=padded, num_workers=WORKERS
)
for epoch in range(2):
    for batch, _ in weigh.batches(loader, size=4):
        print(batch.shape[1])
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_torch_is_asked_by_its_samples(workers: int) -> None:
    pytest.importorskip("torch")
    done = run(TORCH.replace("WORKERS", str(workers)), WEIGH_WORST_BATCH="1")
    assert done.returncode == 0, done.stderr
    widths = [int(line) for line in done.stdout.split()]
    assert 8 <= len(widths) <= 16
    assert widths[0] == max(widths) == 400
    assert "of 400, of 4 each" in done.stderr
