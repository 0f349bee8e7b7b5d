"""Which counter spans the run, and how far it is: simulated displays and logs."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from recorded import time_left

from weigh.measure.output import WatchedOutput
from weigh.measure.progress_follower import ProgressReader
from weigh.model.record import ReportedProgress
from weigh.progress.counters import MOST_COUNTERS
from weigh.progress.reader import RunProgressReader

BAR = "━" * 10
Printed = Sequence[tuple[float, str]]


def tqdm(done: int, total: int, label: str = "", *, below: int = 0) -> str:
    down, up = "\n" * below, "\x1b[A" * below
    name = f"{label}: " if label else ""
    bar = f"{100 * done // total:3d}%|##  | {done}/{total}"
    return f"{down}\r{name}{bar} [00:01<00:09, 9.9it/s]{up}"


def lightning(done: int, total: int, epoch: int) -> str:
    return f"\rEpoch {epoch}/7 {BAR} {done}/{total} 0:00:01 • 0:00:09 9it/s"


def seen(printed: Printed, *, until: float) -> ReportedProgress:
    reader = RunProgressReader()
    for time, text in printed:
        if time <= until:
            reader.feed(text.encode(), time)
    forecast = reader.forecast(until)
    assert forecast is not None
    return forecast


def rounds(
    turns: int,
    seconds: float,
    heading: Callable[[int], str],
    line: Callable[[int, int], str],
    steps: range = range(11),
) -> Printed:
    """Print a heading at the begin of each round, and a line each second."""
    return [
        printed
        for turn in range(turns)
        for printed in (
            (turn * seconds, heading(turn)),
            *((turn * seconds + step, line(turn, step)) for step in steps),
        )
    ]


def each_second(texts: Iterator[str], begin: float = 0.0) -> Printed:
    return [
        (begin + second, text) for second, text in zip(count(), texts, strict=False)
    ]


def held_back_epochs(turn: int) -> str:
    """Return the lines of four epochs, in every fourth of them."""
    epochs = range(max(1, turn - 2), turn + 2) if turn % 4 == 0 else []
    return "".join(f"\nEpoch {epoch}/20\n" for epoch in epochs)


LETTERS = str.maketrans("0123456789", "abcdefghij")  # a name for each number
TO_TEN, TO_TWENTY = range(1, 11), range(1, 21)
FOLDS = [45, 44, 69, 32, 83, 63, 58, 44, 45]  # rounds of other lengths
EVALUATED = (
    text
    for step in range(301)
    for text in (
        tqdm(step, 300),
        *(tqdm(batch, 10, below=1) for batch in range(11) if step % 50 == 0),
    )
)
NAMED_LATE = (
    f"\rEpoch [{n // 50 + 1}/4]: [{n % 50 + 1}/50] {2 * (n % 50 + 1):3d}%|# [00:00<?]"
    for n in range(200)
)


ROWS = Path(__file__).with_name("displays.txt").read_text().splitlines()
DISPLAYS = [row.split("\t") for row in ROWS if not row.startswith("#")]


@pytest.mark.parametrize(
    ("numbers", "printed"),
    [row[1:] for row in DISPLAYS],
    ids=[name for name, *_ in DISPLAYS],
)
def test_it_is_known_how_far_a_run_is(numbers: str, printed: str) -> None:
    until, done, total, left = numbers.split()
    forecast = seen(eval(printed, globals()), until=float(until))
    assert forecast.done == pytest.approx(float(done), rel=0.02)
    assert (f"{forecast.total:g}" if forecast.total else "-") == total
    if total == "-":
        assert forecast.remaining is None
    if left != "-":
        tolerance = 0.2 if total == "9" else 0.05
        assert forecast.remaining == pytest.approx(float(left), rel=tolerance)


def bars_in_turn(draw: random.Random) -> Printed:
    """Print epochs of one or two bars, each round of them once or more often."""
    bars = [(draw.randint(5, 30), draw.uniform(0.2, 2)) for _ in range(1, 3)]
    bars = bars[: draw.randint(1, 2)] * draw.choice([1, 2, 4])
    epochs, pause, clock = draw.randint(3, 8), draw.choice([0, 3]), 0.0
    printed = []
    for epoch in range(1, epochs + 1):
        printed.append((clock, f"\nEpoch {epoch}/{epochs}\n"))
        for steps, every in bars:
            for step in range(1, steps + 1):
                clock += every * draw.lognormvariate(0, 0.1)
                printed.append((clock, tqdm(step, steps)))
            printed.append((clock, "\n"))
        clock += pause
    return [*printed, (clock, "end\n")]


@pytest.mark.parametrize("seed", range(12))
def test_of_bars_in_turn_the_end_is_known_from_the_second_epoch_on(seed: int) -> None:
    printed = bars_in_turn(random.Random(seed))
    begin = next(time for time, text in printed if "Epoch 2" in text)
    end = printed[-1][0]
    for share in (0.1, 0.3, 0.6, 0.9):
        forecast = seen(printed, until=begin + share * (end - begin))
        low, _, high = time_left(forecast)
        assert low <= (1 - share) * (end - begin) <= high


def test_how_many_rounds_a_fold_has_is_unknown_before_the_next_one() -> None:
    printed = rounds(
        *(20, 10, lambda n: f"\nfold {n // 4 + 1}/5\n" if n % 4 == 0 else ""),
        lambda _, n: tqdm(n, 10),
        TO_TEN,
    )
    first, second = seen(printed, until=25), seen(printed, until=65)
    assert (first.total, first.remaining) == (5, None)
    assert second.remaining == pytest.approx(135, rel=0.1)


@pytest.mark.parametrize(("until", "remaining"), [(23, 97), (55, 65), (90, 30)])
def test_headings_on_stdout_span_the_bars_on_stderr(
    tmp_path: Path, until: int, remaining: float
) -> None:
    """As where a job script has a file for each: the bars alone end with a fold."""
    paths = tmp_path / "out", tmp_path / "err"
    with paths[0].open("wb", buffering=0) as out, paths[1].open("wb", 0) as err:
        reader = ProgressReader([WatchedOutput(str(path)) for path in paths])
        for time in range(until + 1):
            fold, epoch = divmod(time, 40)
            out.write(b"" if epoch else b"fold %d/3\n" % (fold + 1))
            err.write(tqdm(epoch, 39, "epoch").encode())
            reader.look(time)
    forecast = reader.forecast(until)
    reader.close()
    assert forecast is not None
    assert forecast.source == "fold lines"
    assert forecast.done == pytest.approx(until / 40, abs=0.05)
    assert forecast.remaining == pytest.approx(remaining, rel=0.1)


def test_a_run_that_is_taken_up_again_further_back_ends_later() -> None:
    steps = [*range(80), *range(60, 100)]
    forecast = seen(each_second(f"step {n} of 100\n" for n in steps), until=110)
    assert time_left(forecast)[2] > 30


def test_the_user_s_pattern_overrules_what_else_is_printed() -> None:
    reader = RunProgressReader([r"round (?P<done>\d+) out of (?P<total>\d+)"])
    for step in range(50):
        reader.feed(f"{tqdm(step, 5000)}\nround {step} out of 60\n".encode(), step)
    forecast = reader.forecast(50)
    assert forecast
    assert (forecast.source, forecast.total) == ("your pattern", 60)


def test_more_bars_than_are_kept_do_no_harm() -> None:
    letters = "abcdefghijklmnopqrstuvwx"[: MOST_COUNTERS + 4]
    bars = [(n, tqdm(n, 100 + ord(one), one)) for n in range(30) for one in letters]
    assert seen(bars, until=29).source == "tqdm"


def test_after_a_bar_has_ended_as_much_may_follow_the_next() -> None:
    first = [(float(n), tqdm(n, 50, "download")) for n in range(51)]
    second = [(51.0 + n, tqdm(n, 100, "tokenize")) for n in range(40)]
    alone, after = seen(second, until=90), seen([*first, *second], until=90)
    assert after.remaining == pytest.approx(alone.remaining)
    assert time_left(after)[2] > time_left(alone)[2] + 50
