"""The progress of tools that weigh has no pattern for: a figure that only rises."""

from collections.abc import Iterable, Sequence

import pytest
from recorded import time_left

from weigh.model.record import ReportedProgress
from weigh.progress.counters import MOST_COUNTERS
from weigh.progress.reader import RunProgressReader


def found_in(pieces: Sequence[str], every: float = 0.5) -> ReportedProgress | None:
    """Read *pieces*, one *every* so many seconds; one without an end grows."""
    reader = RunProgressReader()
    for number, piece in enumerate(pieces, 1):
        reader.feed(piece.encode(), number * every)
    return reader.forecast(len(pieces) * every)


def read(pieces: Sequence[str], every: float = 0.5) -> ReportedProgress:
    found = found_in(pieces, every)
    assert found is not None
    return found


def lines(form: str, steps: Iterable[float] = range(1, 21)) -> list[str]:
    return [form.format(n=n, left=40 - n, more=70 + n / 2) + "\n" for n in steps]


RULER = "|----|----|----|----|----|----|----|----|----|----|"
TICKS = ["0", *(x for n in range(1, 11) for x in (*"...", f"{n}0"))]
EVEN = range(2, 42, 2)


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        (lines("copied {n}.dat, {n}% of all", EVEN), 15),  # the name before changes
        (lines(" {n}% 17 + folder/{n}_x.fa", EVEN), 15),  # and that after it
        (lines("reads_{n}: {n}.5/100.0 MB", EVEN), 15),
        (lines("moved {n}.125,5/100.000,0 MB", EVEN), 15),
        (lines("[=====>    ] {n}.25 %", EVEN), 15),
        (lines("phase two: {n} of 100 pixels", EVEN), 15),
        (lines("block {n}: {n}% written"), 40),  # a number that rises is of no part
        (lines("Encoding: task 1 of 1, {n}.07 %"), 40),  # which is no counter
        # of which one does not move
        (lines("Saving: {n}% ({n}000/100000k, 1/402 files)"), 40),
        # the length of a film is the total of its time
        (
            [
                "  Duration: 00:01:00.00, start: 0.0\n",
                *lines("frame={n}25 time=00:00:{n:02}.00 speed=2x"),
            ],
            20,
        ),
        # a bar as long as a line, whose signs also divide a ruler
        (lines(" |" + "+" * 99 + "| {n}% ~{left}s", EVEN), 15),
        # lines that grow
        (["a.tif: ", *TICKS[:-22]], 10),
        ([f"0%   10   20   30   40   50 ... 100%\n{RULER}\n", *"*" * 25], 13),
        ([f"[{RULER[1:-1]}]\n", *"+" * 26], 12.5),
    ],
)
def test_a_figure_that_rises_from_zero_to_its_total_shows_the_end(
    pieces: list[str], left: float
) -> None:
    forecast = read(pieces)
    assert forecast.source == "figures"
    assert forecast.remaining == pytest.approx(left, rel=0.1)


@pytest.mark.parametrize(
    "pieces",
    [
        lines("accuracy: {n}%"),
        lines("gpu {n}%  mem {n}%"),
        lines("scored 0.{n:02} of 1 point"),
        lines("kept 6{n:02}/9{n:02} reads"),  # the total changes
        lines("2026/11/23 04:{n:02}:11 loaded a shard"),
        lines("GET /page/{n}/100 200"),
        lines("Compressed: 17 KiB => {n}.38%"),
        lines("pass {n} got {more}% right"),  # far from zero at the start
        [
            *lines("block {n}: {n}% full"),
            "block 21: 10% full\n",
            "block 22: 40% full\n",
        ],
        [*lines("file: {n}% written", range(10, 101, 10)), "file: 10% written\n"],
        # numbered parts, of which nobody knows how many
        lines("Iter  2  {n}.50%  Refine"),
        lines("chunk 3: {n} of 100"),
        lines("Pass 1 {n}%"),
        lines("bucket #4 {n}%"),
        # of a task of a workflow: its name may be long
        lines("[3a/1b2c3d] process > " + "QUALITY_CONTROL:" * 9 + "FASTQC [{n}%]"),
        ["waiting", *"." * 30],
        [f"{RULER}\n", *["name | value\n"] * 20],
        ["0.", "5", "\n0.", "6", "\n0.", "7", "\n0.", "8", "\n"],
        # no time left
        lines("eta: {left}", range(-760, 40, 20)),  # it falls faster than time passes
        ["still 6 s left\n", "and 6 s left\n"] * 20,  # it never falls
        *(lines("eta {n} s", [9 - n % 10 for n in range(k)]) for k in range(12, 60, 5)),
    ],
)
def test_no_end_is_made_up_from_other_figures(pieces: list[str]) -> None:
    assert found_in(pieces, every=1.0) is None


def test_known_counters_are_preferred() -> None:
    forecast = read(lines("step {n} of 50, {n}% of memory held"))
    assert forecast.source == "step lines"


def test_a_figure_that_changes_faster_than_it_is_read_is_found() -> None:
    reader = RunProgressReader()
    for n in range(600):
        reader.feed(f"\rWorking: {n / 20:.2f}%".encode(), n / 100)
        reader.forecast(n / 100)
    assert time_left(reader.forecast(6.0))[1] == pytest.approx(14, rel=0.1)


def width(forecast: ReportedProgress) -> float:
    low, _, high = time_left(forecast)
    return high - low


def test_after_other_counters_have_ended_as_much_may_follow() -> None:
    alone = lines("sorting: {n}%", range(0, 60, 4))
    first = read(alone)
    second = read([*lines("reading: {n}%", range(0, 105, 5)), *alone])
    _, remaining, high = time_left(second)
    assert remaining == pytest.approx(first.remaining, rel=0.01)
    assert width(second) > 2 * width(first)
    assert high > 10  # the seconds that reading took


def test_a_figure_that_is_met_at_its_end_is_no_part_of_the_run() -> None:
    alone = lines("sorting: {n}%", range(0, 60, 4))
    after = read(["checked 100% of inputs\n", *alone])
    assert width(after) == pytest.approx(width(read(alone)), rel=0.1)


def test_the_more_parts_of_the_input_differ_the_wider_is_the_interval() -> None:
    even = [n / 2 for n in range(1, 100)]
    turns = [n / 2 if n < 40 else 20 + (n - 40) / 6 for n in range(1, 100)]
    steady, changing = [
        width(read(lines("packing {n:.2f}%", x))) for x in (even, turns)
    ]
    assert changing > 4 * steady


def test_a_figure_that_stands_at_its_end_gives_no_end() -> None:
    reader = RunProgressReader()
    for n in range(101):
        reader.feed(f"scanned {n}%\n".encode(), n / 10)
    # at once, and a counter that was met at its end: of its steps nothing is known
    met = found_in(["step 3 of 3\n"])
    for ended, step_time in (reader.forecast(10.0), 0.1), (met, 0):
        assert time_left(ended) == (0, 0, 0)
        assert ended
        assert ended.step_time == pytest.approx(step_time)
    later = reader.forecast(15.0)
    assert later
    assert later.remaining is None


@pytest.mark.parametrize(
    "form",
    [
        "frame {n} [ETA  0:00:{left:02}]",
        "Iteration {n} / Time: 0h:0m:{n}s (0h:0m:{left}s left)",
        "{n}:\tlearn: 0.53\ttotal: {n}s\tremaining: {left}s",
        "step {n}, remaining wall clock time:    {left} s          ",
        "wave {n}, about {left} seconds to go",
        "pass {n}: {n}.5 s, remaining time: 0 min {left} s",
        "  {n}   0.{n}16   {left}.00s",  # under the heading of its column
    ],
)
def test_the_time_left_that_a_program_prints_is_read(form: str) -> None:
    heading = ["  Iter   Train Loss   Remaining Time \n"] if form[:2] == "  " else []
    forecast = read([*heading, *lines(form)], every=1.0)
    assert forecast.source == "its own estimate"
    assert forecast.done == pytest.approx(50, rel=0.03)
    low, remaining, high = time_left(forecast)
    # off by a factor, and by the second between two of them
    assert (low, remaining, high) == pytest.approx((20 / 1.8 - 1, 20, 20 * 1.8 + 1))


def test_an_end_that_receded_in_a_long_silence_is_not_believed() -> None:
    reader = RunProgressReader()
    for time, left in ((1, 9), (2, 8), (3, 7), (20, 9)):
        reader.feed(f"step: {left} s left\n".encode(), time)
    assert reader.forecast(20) is None


def test_as_many_ends_are_followed_as_are_kept() -> None:
    for count in MOST_COUNTERS, MOST_COUNTERS + 1:
        names = "abcdefghijklmnopqrstuvwxyz"[:count]
        turns = [f"{name}: {30 - n} s left\n" for n in range(9) for name in names]
        assert (found_in(turns, 1 / count) is None) == (count > MOST_COUNTERS)


def test_a_line_of_ticks_is_read_to_its_end() -> None:
    assert read([*TICKS, " - done.\n"]).done == 100
