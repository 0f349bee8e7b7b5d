import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import time_left

from weigh.model.record import ReportedProgress
from weigh.progress.counters import MOST_COUNTERS
from weigh.progress.pace import MOST_POINTS
from weigh.progress.reader import LONGEST, RunProgressReader


def read(steps: range, total: int) -> RunProgressReader:
    """Read a line a second."""
    reader = RunProgressReader()
    for step in steps:
        reader.feed(b"step %d of %d\n" % (step, total), step)
    return reader


def known(reader: RunProgressReader, now: float) -> ReportedProgress:
    forecast = reader.forecast(now)
    assert forecast is not None
    return forecast


def test_a_run_that_counts_nothing_has_no_forecast() -> None:
    reader = RunProgressReader()
    assert reader.forecast(5) is None
    reader.feed(b"loss 0.5\nloading\n", 6)
    assert reader.forecast(7) is None


def test_an_even_run_ends_when_its_steps_are_through() -> None:
    forecast = known(read(range(51), 200), 50)
    assert forecast.remaining == pytest.approx(150)
    assert forecast.step_time == pytest.approx(1)
    assert (forecast.done, forecast.total, forecast.time) == (50, 200, 50)
    assert forecast.source == "step lines"


def test_one_count_is_progress_but_no_forecast_of_the_end() -> None:
    forecast = known(read(range(1), 200), 1)
    assert (forecast.done, forecast.total) == (0, 200)
    assert (forecast.remaining, forecast.step_time) == (None, None)


def test_time_that_passes_between_two_counts_is_taken_off() -> None:
    reader = read(range(0, 50, 10), 100)
    assert known(reader, 45).remaining == pytest.approx(55)


def test_a_run_that_stalls_ends_later_by_as_much_at_the_high_end() -> None:
    reader = read(range(51), 100)
    (_, left, high), late = time_left(reader.forecast(50)), known(reader, 151)
    # the second until the next count was to pass
    assert (late.remaining, late.high) == pytest.approx((left - 1, high - 1 + 100))


def test_the_bar_that_is_drawn_counts_before_the_next_takes_its_place() -> None:
    reader = RunProgressReader()
    for step in range(10):
        reader.feed(f"\r {step}%|  | {step}/100 [00:01<00:09]".encode(), step)
    assert known(reader, 9).done == 9


def test_a_number_that_is_still_being_printed_is_not_read() -> None:
    reader = RunProgressReader()
    reader.feed(b"step 120 of 40", 1)
    assert reader.forecast(1) is None
    reader.feed(b"00\n", 2)
    assert known(reader, 2).total == 4000


def test_asking_changes_nothing() -> None:
    asked, unasked = RunProgressReader(), RunProgressReader()
    for step in range(60):
        for reader in (asked, unasked):
            reader.feed(b"\rstep %d of 100 |" % step, step)
        asked.forecast(step + 0.5)
    assert asked.forecast(60) == unasked.forecast(60)


@pytest.mark.parametrize("leap", [-1000, 7200])
def test_a_clock_that_leaps_is_forgiven(leap: float) -> None:
    reader = read(range(20), 100)
    for step in range(20, 80):
        reader.feed(b"step %d of 100\n" % step, step + leap)
    forecast = known(reader, 79 + leap)
    assert forecast.time == 79 + leap
    assert forecast.remaining == pytest.approx(21, rel=0.1)


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_none_is_passed_over(now: float) -> None:
    reader = read(range(50), 100)
    reader.feed(b"step 50 of 100\n", now)
    assert known(reader, now).done == 50


@pytest.mark.parametrize(
    ("total", "left"),
    [(200, 150), *((wrong, None) for wrong in (None, math.nan, math.inf, 0.0, -5.0))],
)
def test_what_the_run_reports_itself_counts(
    total: float | None, left: float | None
) -> None:
    reader = RunProgressReader()
    for step in range(51):
        reader.report(step, total, step, "weigh.batches")
    # counts that make no sense are left out
    for wrong in (-1.0, math.nan, math.inf):
        reader.report(wrong, total, 50, "weigh.batches")
    forecast = known(reader, 50)
    assert (forecast.source, forecast.done) == ("weigh.batches", 50)
    assert forecast.total == (total if left else None)
    assert forecast.remaining == (left and pytest.approx(left))
    assert forecast.step_time == pytest.approx(1)


def test_batches_reported_are_parts_of_epochs_printed() -> None:
    reader = RunProgressReader()
    for epoch in range(1, 4):
        reader.feed(b"Epoch %d/10\n" % epoch, epoch * 10.0)
        for step in range(10):
            reader.report(step, 10, epoch * 10.0 + step, "weigh.batches")
    assert known(reader, 39).done == pytest.approx(2.9)


PRINTED = [
    *(b"\r", b"\n", b"\x1b[A", b"\x1b[2K", b"x" * 5000),
    b" 50%|#####     | 50/100 [00:05<00:05,  9.9it/s]",
    *(b"epoch 3/10 ", b"epoch 4/10 step 7/9", b"Epoch 2: ", b"fold 1/2 "),
    *(b"Num Epochs = 5", b"{'loss': 1, 'epoch': 1.5}", b"[ 42%] x"),
    b"17it [00:05, 9.9it/s]",
    "3/40 ━━━━━━━━━━ 1s 2ms/step".encode(),
    *(b"9" * 400 + b"/" + b"9" * 500, b"step 1 of 1e9"),
]
printed = st.lists(st.binary(max_size=40) | st.sampled_from(PRINTED), max_size=30)
clocks = st.lists(
    st.floats(-10, 1e5) | st.sampled_from([math.nan, math.inf]),
    min_size=60,
    max_size=60,
)


@given(printed, clocks)
def test_nothing_that_is_printed_can_break_it(
    pieces: list[bytes], times: list[float]
) -> None:
    reader = RunProgressReader([r"(?P<done>\d+)\D+(?P<total>\d+)"])
    for piece, time in zip(pieces, times, strict=False):
        reader.feed(piece, time)
        forecast = reader.forecast(time)
        if forecast and forecast.remaining is not None:
            low, remaining, high = time_left(forecast)
            assert 0 <= low <= remaining <= high < math.inf


@given(printed, st.lists(st.integers(0, 12_000), max_size=9))
def test_where_the_output_is_cut_makes_no_difference(
    pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(pieces)
    whole, parted = RunProgressReader(), RunProgressReader()
    at = [0, *sorted(cuts), len(data)]
    for turn in range(3):
        whole.feed(data, turn)
        for start, stop in pairwise(at):
            parted.feed(data[start:stop], turn)
    assert whole.forecast(3) == parted.forecast(3)


def test_it_does_not_grow_with_what_is_printed() -> None:
    draw, reader = random.Random(3), RunProgressReader()
    for turn in range(2 * MOST_POINTS):
        noise = draw.randbytes(draw.choice([9, 90, 4000]) if turn % 9 == 0 else 1)
        end = b"\n" if turn % 9 else b" "
        reader.feed(noise + b"step %d of 9999" % turn + end, turn * 0.25)
    splitter = reader._splitters[0]
    assert len(splitter.unended().text) <= LONGEST
    assert len(splitter._late.text) <= LONGEST
    counters = reader._nest.counters
    assert len(counters) <= MOST_COUNTERS
    most = max(len(one.history.points) for one in counters)
    assert MOST_POINTS / 3 < most <= MOST_POINTS
    assert all(len(one._links) < MOST_COUNTERS for one in counters)


@pytest.mark.parametrize(
    ("lines", "under_way", "through"),
    [
        (("epoch 1/3", "epoch 2/3", "epoch 3/3"), 2, 3),
        (("epoch 1/3", "epoch 2/3"), 1, 2),
        (("epoch 0/2", "epoch 1/2", "epoch 2/2"), 2, 2),
        (("epoch 1/3 loss 0.3", "epoch 2/3 loss 0.2"), 2, 2),
        (("step 1 of 3", "step 2 of 3"), 2, 2),
    ],
)
def test_the_epoch_that_a_run_ended_well_in_is_done(
    lines: tuple[str, ...], under_way: float, through: float
) -> None:
    reader = RunProgressReader()
    for second, line in enumerate(lines):
        reader.feed(f"{line}\n".encode(), float(second))
    found = [reader.forecast(9.0), reader.forecast(9.0, is_through=True)]
    assert [one and one.done for one in found] == [under_way, through]


def test_a_silence_longer_than_all_of_the_rest_leaves_no_end() -> None:
    reader = read(range(21), 40)
    _, _, left = time_left(reader.forecast(20))
    assert known(reader, 20 + left).remaining is not None
    hung = known(reader, 20 + 2 * left + 1)
    assert (hung.done, hung.remaining, hung.high) == (20, None, None)
    reader.feed(b"step 21 of 40\n", 20 + 2 * left + 2)
    assert known(reader, 20 + 2 * left + 2).remaining is not None


def test_what_is_no_text_counts_nothing() -> None:
    reader = read(range(30), 60)
    for time in range(30, 60):
        reader.feed(b"\xff\x8d\x00" * 20 + b" step 7 of 9\n", time)
    forecast = known(reader, 30)
    assert (forecast.done, forecast.total) == (29, 60)
