"""The progress of tools that weigh has no pattern for: a figure that only rises."""

import gzip
import json
import statistics
from collections.abc import Sequence
from functools import cache

import pytest
from recorded import DIRECTORY

from weigh.model.progress import EndForecast
from weigh.progress.reader import RunProgressReader

TOOLS = sorted(path.name.split(".")[0] for path in DIRECTORY.glob("tools/*.gz"))
NEVER = {
    "gensim",  # a percentage of an epoch, and not of how many
    "gmsh",  # percentages of the first second
    "muscle",  # numbered parts
    "rstanarm",  # numbered chains
    "zpaq",  # all of it at once
    "zstd",  # how well it compresses
}
NO_END = {  # by the middle of the run
    "badblocks": "at the end of the first of eight parts",
    "bowtie2_build": "at the end of a part",
    "fasttree": "in its second counter of rounds",
    "iqtree": "prints an end that recedes",
    "lrzip": "stands at 99 % and then starts over",
    "mafft": "starts over",
    "plink": "counts markers, and does not print of how many",
    "umap": "at the beginning of its second part",
}
SHARES = (0.1, 0.2, 0.5, 0.8)


@cache
def forecasts(name: str) -> list[tuple[EndForecast | None, float]]:
    """Return the forecasts from the first one on, and what truly remained."""
    with gzip.open(DIRECTORY / "tools" / f"{name}.jsonl.gz", "rt") as file:
        rows = [(at, text.encode("latin-1")) for at, text in map(json.loads, file)]
    reader, first = RunProgressReader(), None
    for at, chunk in rows:
        reader.feed(chunk, at)
        forecast = reader.forecast(at)
        if forecast and forecast.remaining is not None:
            first = at
            break
    if first is None:
        return []
    end = rows[-1][0]
    reader, found, waiting = (
        RunProgressReader(),
        [],
        [first + s * (end - first) for s in SHARES],
    )
    for at, chunk in rows:
        while waiting and at > waiting[0]:
            moment = waiting.pop(0)
            found.append((reader.forecast(moment), end - moment))
        reader.feed(chunk, at)
    return found


def read(lines: Sequence[str], every: float = 0.5) -> EndForecast | None:
    """Read *lines*, one *every* so many seconds."""
    reader = RunProgressReader()
    for number, line in enumerate(lines, 1):
        reader.feed(line.encode() + b"\n", number * every)
    return reader.forecast(len(lines) * every)


@pytest.mark.parametrize("name", sorted(set(TOOLS) - NEVER - set(NO_END)))
def test_the_progress_of_a_tool_is_found_by_the_middle_of_its_run(name: str) -> None:
    by_middle = forecasts(name)[:3]
    assert by_middle
    assert by_middle[-1][0]
    assert by_middle[-1][0].remaining is not None


@pytest.mark.parametrize("name", sorted(NO_END))
def test_no_end_is_made_up_for_a_tool_whose_counters_do_not_show_it(name: str) -> None:
    forecast, _ = forecasts(name)[SHARES.index(0.5)]
    assert forecast is None or forecast.remaining is None


def test_the_interval_holds_the_end_of_nine_in_ten() -> None:
    held = [
        forecast.low <= true <= forecast.high
        for name in TOOLS
        for forecast, true in forecasts(name)
        if forecast and forecast.low is not None and forecast.high is not None
    ]
    assert len(held) > 200
    assert statistics.mean(held) >= 0.88


def test_after_a_fifth_half_of_the_ends_are_known_within_an_eighth() -> None:
    off = [
        abs(found[1][0].remaining / found[1][1] - 1)
        for found in map(forecasts, TOOLS)
        if len(found) > 1 and found[1][0] and found[1][0].remaining is not None
    ]
    assert statistics.median(off) <= 1 / 8


@pytest.mark.parametrize(
    "line",
    [
        "copied {n}.dat, {n}% of all",  # the name changes before the figure
        " {n}% 17 + folder/{n}_x.fa",  # and after it
        "reads_{n}: {n}.5/100.0 MB",
        "[=====>    ] {n}.25 %",
        "phase two: {n} of 100 pixels",
    ],
)
def test_a_figure_is_known_again_by_either_side_of_it(line: str) -> None:
    forecast = read([line.format(n=2 * n) for n in range(1, 21)])
    assert forecast
    assert forecast.source == "figures"
    assert forecast.remaining == pytest.approx(15, rel=0.1)


@pytest.mark.parametrize(
    "line",
    [
        "accuracy: {n}%",
        "gpu {n}%  mem {n}%",
        "kept 6{n:02}/9{n:02} reads",  # the total changes
        "2026/11/23 04:{n:02}:11 loaded a shard",
        "GET /page/{n}/100 200",
        "Compressed: 17 KiB => {n}.38%",
    ],
)
def test_no_end_is_made_up_from_other_rising_figures(line: str) -> None:
    assert read([line.format(n=n) for n in range(1, 31)]) is None


@pytest.mark.parametrize("name", sorted(NEVER))
def test_no_end_is_made_up_for_a_tool_that_does_not_print_it(name: str) -> None:
    assert not forecasts(name)


def test_a_figure_far_from_zero_at_the_start_is_no_progress() -> None:
    assert read([f"pass {n} got {70 + n / 2}% right" for n in range(1, 31)]) is None


def test_a_figure_that_falls_is_dropped() -> None:
    rising = [f"block {n}: {3 * n}% full" for n in range(1, 11)]
    assert read(rising)
    assert read([*rising, "block 11: 20% full", "block 12: 40% full"]) is None


def test_a_figure_that_starts_over_gives_no_end() -> None:
    once = [f"file: {10 * n}% written" for n in range(1, 11)]
    assert read([*once, *once[:5]]) is None


def test_known_counters_are_preferred() -> None:
    forecast = read([f"step {n} of 50, {n}% of memory held" for n in range(1, 21)])
    assert forecast
    assert forecast.source == "step lines"


def test_the_length_of_a_film_is_the_total_of_its_time() -> None:
    lines = [f"frame={25 * n} time=00:00:{n:02}.00 speed=2x" for n in range(1, 21)]
    forecast = read(["  Duration: 00:01:00.00, start: 0.0", *lines])
    assert forecast
    assert forecast.remaining == pytest.approx(20, rel=0.15)


def test_a_figure_that_changes_faster_than_it_is_read_is_found() -> None:
    reader = RunProgressReader()
    for n in range(600):
        reader.feed(f"\rWorking: {n / 20:.2f}%".encode(), n / 100)
        reader.forecast(n / 100)
    forecast = reader.forecast(6.0)
    assert forecast
    assert forecast.remaining == pytest.approx(14, rel=0.1)


def width(forecast: EndForecast | None) -> float:
    assert forecast
    assert forecast.low is not None
    assert forecast.high is not None
    return forecast.high - forecast.low


def test_after_other_counters_have_ended_as_much_may_follow() -> None:
    alone = [f"sorting: {4 * n}%" for n in range(15)]
    before = [f"reading: {5 * n}%" for n in range(21)]
    first, second = read(alone), read([*before, *alone])
    assert second
    assert second.high is not None
    assert second.remaining == pytest.approx(first and first.remaining, rel=0.01)
    assert width(second) > 2 * width(first)
    assert second.high > 10  # the seconds that reading took


def test_the_more_parts_of_the_input_differ_the_wider_is_the_interval() -> None:
    even = [n / 2 for n in range(1, 100)]
    turns = [n / 2 if n < 40 else 20 + (n - 40) / 6 for n in range(1, 100)]
    steady, changing = [
        width(read([f"packing {x:.2f}%" for x in each])) for each in (even, turns)
    ]
    assert changing > 4 * steady


def test_a_figure_that_stands_at_its_end_gives_no_end() -> None:
    reader = RunProgressReader()
    for n in range(101):
        reader.feed(f"scanned {n}%\n".encode(), n / 10)
    at_once, later = reader.forecast(10.1), reader.forecast(15.0)
    assert at_once
    assert at_once.remaining == 0
    assert later
    assert later.remaining is None


@pytest.mark.parametrize(
    "line",
    [
        "frame {n} [ETA  0:00:{left:02}]",
        "Iteration {n} / Time: 0h:0m:{n}s (0h:0m:{left}s left)",
        "{n}:\tlearn: 0.53\ttotal: {n}s\tremaining: {left}s",
        "step {n}, remaining wall clock time:    {left} s          ",
        "wave {n}, about {left} seconds to go",
        "pass {n}: {n}.5 s, remaining time: 0 min {left} s",
    ],
)
def test_the_time_left_that_a_program_prints_is_read(line: str) -> None:
    forecast = read([line.format(n=n, left=40 - n) for n in range(1, 21)], every=1.0)
    assert forecast
    assert forecast.source == "its own estimate"
    assert forecast.remaining == pytest.approx(20)
    assert forecast.done == pytest.approx(50)
    assert forecast.low is not None
    assert forecast.high is not None
    assert forecast.low < 20 < forecast.high


@pytest.mark.parametrize(
    "line",
    ["try {n}: 5 attempts left", "beta 0:{n:02}", "left {n} nodes", "2 seconds, ok"],
)
def test_no_time_left_is_made_up(line: str) -> None:
    assert read([line.format(n=n) for n in range(1, 21)]) is None


@pytest.mark.parametrize("seen", range(12, 60, 5))
def test_a_time_left_of_one_part_after_the_other_is_not_believed(seen: int) -> None:
    assert read([f"eta {9 - n % 10} s" for n in range(seen)], every=1.0) is None


def test_a_time_left_that_never_falls_is_not_believed() -> None:
    assert read(["still 6 s left", "and 6 s left"] * 10, every=1.0) is None


def typed(pieces: Sequence[str], every: float = 0.5) -> EndForecast | None:
    """Read *pieces*, one *every* so many seconds: a line without an end grows."""
    reader = RunProgressReader()
    for number, piece in enumerate(pieces, 1):
        reader.feed(piece.encode(), number * every)
    return reader.forecast(len(pieces) * every)


RULER = "|----|----|----|----|----|----|----|----|----|----|"


@pytest.mark.parametrize(
    "pieces",
    [
        ["a.tif: 0", *"...", *(x for n in "12345" for x in (f"{n}0", *"..."))][:-2],
        [f"0%   10   20   30   40   50 ... 100%\n{RULER}\n", *"*" * 25],
        [f"[{RULER[1:-1]}]\n", *"+" * 26],
    ],
)
def test_a_line_that_grows_is_read_before_it_ends(pieces: list[str]) -> None:
    forecast = typed(pieces)
    assert forecast
    assert forecast.total
    assert forecast.done / forecast.total == pytest.approx(0.5, abs=0.03)
    assert forecast.remaining == pytest.approx((len(pieces) - 1) / 2, rel=0.15)


def test_dots_and_rules_are_no_progress_by_themselves() -> None:
    assert typed(["waiting", *"." * 30]) is None
    assert typed([f"{RULER}\n", *["name | value\n"] * 20]) is None
    assert typed(["0.", "5", "\n0.", "6", "\n0.", "7", "\n0.", "8", "\n"]) is None


@pytest.mark.parametrize(
    "line",
    [
        "Iter  2  {n}.50%  Refine",
        "chunk 3: {n} of 100",
        "Pass 1 {n}%",
        "bucket #4 {n}%",
    ],
)
def test_a_numbered_part_has_no_end_of_the_run(line: str) -> None:
    assert read([line.format(n=n) for n in range(1, 21)]) is None


def test_a_number_that_rises_with_the_figure_numbers_no_part() -> None:
    forecast = read([f"block {n}: {n}% written" for n in range(1, 21)])
    assert forecast
    assert forecast.remaining == pytest.approx(40, rel=0.1)


def test_a_line_of_ticks_is_read_to_its_end() -> None:
    ticks = ["0", *(x for n in range(1, 11) for x in (*"...", f"{n}0"))]
    forecast = typed([*ticks, " - done.\n"])
    assert forecast
    assert forecast.done == 100


def test_a_count_of_one_does_not_hide_a_figure() -> None:
    forecast = read([f"Encoding: task 1 of 1, {n}.07 %" for n in range(1, 21)])
    assert forecast
    assert forecast.source == "figures"
    assert forecast.remaining


def test_a_figure_that_moves_is_preferred_to_a_counter_that_does_not() -> None:
    lines = [f"Saving: {n}% ({1000 * n}/100000k, 1/402 files)" for n in range(1, 21)]
    forecast = read(lines)
    assert forecast
    assert forecast.source == "figures"
    assert forecast.remaining == pytest.approx(40, rel=0.1)


def test_the_time_left_in_the_last_column_of_a_table_is_read() -> None:
    rows = [f"  {n}   0.{n}16   {40 - n}.00s" for n in range(1, 21)]
    forecast = read(["  Iter   Train Loss   Remaining Time ", *rows], every=1.0)
    assert forecast
    assert forecast.remaining == pytest.approx(20)
