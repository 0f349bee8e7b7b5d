"""Forecasts on recordings of real tools, against when they truly ended."""

import pytest
from recorded import DIRECTORY, NAMES, forecast_at

ENDLESS = {"lightning_tqdm", "tqdm_endless"}  # they print no total
SLOW_FIRST = {"tqdm_warm", "tqdm_level"}  # not steady in the first tenth
UNFORESEEN = {"keras_fit", "lightning_rich", "tqdm_nested", "tqdm_phases", "trainer"}
HELD_BACK = {"lines_pipe"}  # Python holds its lines back: too few bursts by then
ENDING = [name for name in NAMES if name not in ENDLESS]
STEADY = [name for name in ENDING if name not in SLOW_FIRST | UNFORESEEN | HELD_BACK]

SOURCES = {
    "cmake": "percentages",
    "epochs": "epoch lines",
    "keras_fit": "epoch lines",
    "keras_lines": "epoch lines",
    "lightning_rich": "epoch lines",
    "lightning_tqdm": "epoch lines",
    "lines": "step lines",
    "lines_pipe": "epoch lines",
    "rich_bar": "rich",
    "rich_nested": "rich",
    "tqdm_phases": "epoch lines",
}


def test_it_is_known_who_counts() -> None:
    known = {name: forecast_at(name, 0.5)[0].source for name in NAMES}
    assert known == {name: SOURCES.get(name, "tqdm") for name in NAMES}


@pytest.mark.parametrize("name", ENDING)
def test_after_a_fifth_the_end_is_known_within_5_per_cent(name: str) -> None:
    forecast, true = forecast_at(name, 0.2)
    assert forecast.remaining == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("name", STEADY)
def test_after_a_tenth_the_end_is_known_within_10_per_cent(name: str) -> None:
    forecast, true = forecast_at(name, 0.1)
    assert forecast.remaining == pytest.approx(true, rel=0.10)


@pytest.mark.parametrize("name", sorted(UNFORESEEN - {"trainer"}))
def test_what_comes_after_an_epoch_is_within_the_interval_before_it(name: str) -> None:
    forecast, true = forecast_at(name, 0.09)
    assert forecast.low is not None
    assert forecast.high is not None
    assert forecast.low <= true <= forecast.high


@pytest.mark.parametrize("name", ENDING)
def test_the_interval_holds_the_end(name: str) -> None:
    for share in (0.2, 0.5, 0.8):
        forecast, true = forecast_at(name, share)
        assert forecast.low is not None
        assert forecast.high is not None
        assert forecast.low <= true <= forecast.high, share


@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_no_end_is_made_up(name: str) -> None:
    forecast, _ = forecast_at(name, 0.5)
    assert forecast.remaining is None
    assert forecast.step_time is not None


# they print no figure of the whole, or only of parts one after the other; those of the
# folder tools are in test_progress_figures.py
NOT_UNDERSTOOD = {
    "kept_back": "fastqc gs imagemagick wkhtmltopdf",
    "recent": "ab pip_install rmlint xdist",
}


@pytest.mark.parametrize("folder", NOT_UNDERSTOOD)
def test_half_way_through_other_tools_no_fewer_ends_are_known(folder: str) -> None:
    paths = (DIRECTORY / folder).glob("*.jsonl.gz")
    names = {path.name.split(".")[0] for path in paths}
    for name in names - set(NOT_UNDERSTOOD[folder].split()):
        assert forecast_at(f"{folder}/{name}", 0.5)[0].remaining is not None, name
