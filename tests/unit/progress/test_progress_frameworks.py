"""Counters inside counters, as frameworks print them: at no time a false end."""

from collections import deque
from functools import cache
from typing import NamedTuple

import pytest
from frameworks import FRAMEWORKS

from weigh.model.record import ReportedProgress
from weigh.progress.figures import parse_time_left
from weigh.progress.reader import RunProgressReader

NAMES = sorted(FRAMEWORKS)
NO_END = {
    "chain_of_unknown_number": "of chains no number is printed",
    "diamond": "of query blocks no number is printed",
    "fairseq": "of epochs no number is printed",
    "fairseq_bar": "of epochs no number is printed",
    "flair": "of epochs no number is printed",
    "fold_of_unknown_number": "of folds no number is printed",
    "imagenet_example": "of epochs no number is printed",
    "lightgbm": "of rounds no number is printed",
    "lightning": "of epochs no number is printed",
    "mnist_example": "of epochs no number is printed",
    "monai_unknown": "of epochs no number is printed",
    "nextflow": "more tasks while it runs",
    "nnunet": "of epochs no number is printed",
    "segmentation": "of epochs no number is printed",
    "seed_of_unknown_number": "of seeds no number is printed",
    "spacy": "of steps no number is printed",
    "star": "of reads no number is printed",
    "timm": "of epochs no number is printed",
    "torchvision": "the time left is that of the epoch",
    "xgboost": "of rounds no number is printed",
}
DAY_LONG = {"clock_of_hours", "long_days"}  # they state a day more than they take
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)


class Look(NamedTuple):
    share: float
    forecast: ReportedProgress | None
    true: float


@cache
def looks(name: str) -> list[Look]:
    """Return the forecasts at each share of the run."""
    rows = sorted(FRAMEWORKS[name](), key=lambda row: row[0])
    end, found = rows[-1][0], []
    reader, waiting = RunProgressReader(), deque(rows)
    for share in SHARES:
        moment = share * end
        while waiting[0][0] <= moment:
            at, text = waiting.popleft()
            reader.feed(text.encode(), at)
        true = end - moment + (86400 if name in DAY_LONG else 0)
        found.append(Look(share, reader.forecast(moment), true))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_an_epoch_is_not_taken_for_that_of_the_run(name: str) -> None:
    for share, forecast, true in looks(name):
        if forecast is None or forecast.remaining is None or name == "tqdm_inner":
            continue
        assert forecast.low is not None
        assert forecast.high is not None
        assert forecast.low <= true <= forecast.high, share
        assert forecast.remaining == pytest.approx(true, rel=0.3), share


@pytest.mark.parametrize("name", sorted(NO_END))
def test_no_end_is_predicted_where_the_outer_counter_is_open(name: str) -> None:
    for _, forecast, _ in looks(name):
        assert forecast is None or forecast.remaining is None


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(NO_END) - {"tqdm_inner"}))
def test_the_end_is_known_by_the_middle_of_the_run(name: str) -> None:
    forecast = looks(name)[SHARES.index(0.5)].forecast
    assert forecast
    assert forecast.remaining is not None


def test_a_bar_that_begins_again_without_an_outer_one_has_no_end() -> None:
    forecast = looks("tqdm_inner")[SHARES.index(0.3)].forecast
    assert forecast
    assert forecast.remaining is None


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [
        ("0.125000 hours", "s", 450),
        ("7.500000 minutes", "s", 450),
        ("1234017 seconds", "s", 1234017),
        ("1 day, 0:07:30", "s", 86850),
        ("2 days, 1:00:00", "s", 176400),
        ("1-00:07:30", "s", 86850),
        ("1-02:30", "s", 95400),
        ("26:09:17", "s", 94157),
        ("12:30", "s", 750),
        ("7,5 min", "s", 450),
        ("1.234,56 s", "s", 1234.56),
        ("1,234 s", "s", 1234),
        ("7.5 (min)", "s", 450),
        ("7.5", "min", 450),
        ("1h 2m 3s", "s", 3723),
        ("3d2h", "s", 266400),
    ],
)
def test_a_time_left_is_read_in_any_form(text: str, unit: str, seconds: float) -> None:
    assert parse_time_left(text, unit) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "line",
    [
        "Wall: 12.5, 0.002/step, {hours:.6f} hours remaining, 1024.000 MB in use.",
        "it 500, {minutes:.6f} minutes remaining",
        "it 500, {seconds:.6f} seconds remaining",
        "it 500 ETA: {seconds:.6f} s",
        "model 3, ETA={clock}",
        "model 3, ETC={clock}",
        "model 3 eta: {days}",
        "model 3, remaining time {dashed}",
        "remaining time (in min): {minutes:.3f}",
        "ETA (minutes) = {minutes:.3f}",
        "{minutes:.3f} min left",
        "time left: {comma} min",
    ],
)
def test_no_number_of_a_time_left_is_cut(line: str) -> None:
    reader, left = RunProgressReader(), 0.0
    for step in range(1, 31):
        left = 100000.0 - 10 * step
        days, rest = divmod(int(left), 86400)
        clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
        text = line.format(
            hours=left / 3600,
            minutes=left / 60,
            seconds=left,
            clock=f"{int(left) // 3600}:{rest // 60 % 60:02}:{rest % 60:02}",
            days=f"{days} day, {clock}" if days else clock,
            dashed=f"{days}-{clock:0>8}",
            comma=f"{left / 60:.2f}".replace(".", ","),
        )
        reader.feed(text.encode() + b"\n", 10.0 * step)
    forecast = reader.forecast(300.0)
    assert forecast
    assert forecast.remaining == pytest.approx(left, rel=0.01)


@pytest.mark.parametrize("line", ["Fortschritt: {n},5 %", "{n},25 % [=====>     ]"])
def test_a_percentage_may_have_a_comma(line: str) -> None:
    reader = RunProgressReader()
    for n in range(1, 31):
        reader.feed(f"{line.format(n=n)}\n".encode(), float(n))
    forecast = reader.forecast(30.0)
    assert forecast
    assert forecast.remaining == pytest.approx(70, rel=0.1)
    assert forecast.done % 1
