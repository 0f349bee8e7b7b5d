"""Forecasts on recordings of real tools, against when they truly ended."""

import statistics

import pytest
from recorded import looks, names

pytestmark = pytest.mark.together("recordings")  # each is read once
NAMES = names()
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
    found = {name: looks(name)[0.5].forecast for name in NAMES}
    known = {name: forecast and forecast.source for name, forecast in found.items()}
    assert known == {name: SOURCES.get(name, "tqdm") for name in NAMES}


@pytest.mark.parametrize("name", ENDING)
def test_the_end_is_known_and_lies_in_the_interval(name: str) -> None:
    found = looks(name)
    assert found[0.2].error == pytest.approx(0, abs=0.05)
    if name in STEADY:
        assert found[0.1].error == pytest.approx(0, abs=0.10)
    # what comes after an epoch is within the interval before it, too
    early = [0.09] if name in UNFORESEEN - {"trainer"} else []
    assert all(found[share].holds for share in [*early, 0.2, 0.5, 0.8])


@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_no_end_is_made_up(name: str) -> None:
    forecast = looks(name)[0.5].forecast
    assert forecast
    assert forecast.remaining is None
    assert forecast.step_time is not None


# they print no figure of the whole, or only of parts one after the other
NOT_UNDERSTOOD = {
    "kept_back": "fastqc gs imagemagick wkhtmltopdf",
    "recent": "ab pip_install rmlint xdist",
    "tools": "bowtie2_build fasttree gensim gmsh iqtree lrzip mafft muscle "
    "numpyro plink rstanarm umap zpaq zstd",
}
# at the end of a part, or in the next one
AT_TIMES = {"fastqc", "pip_install", "bowtie2_build", "fasttree", "iqtree", "umap"}


@pytest.mark.parametrize("folder", NOT_UNDERSTOOD)
def test_half_way_it_is_known_which_other_tools_show_their_end(folder: str) -> None:
    unknown = {name for name in names(folder) if looks(name)[0.5].error is None}
    assert unknown == {f"{folder}/{name}" for name in NOT_UNDERSTOOD[folder].split()}


@pytest.mark.parametrize("folder", NOT_UNDERSTOOD)
def test_at_no_time_an_end_is_made_up_from_other_figures(folder: str) -> None:
    never = set(NOT_UNDERSTOOD[folder].split()) - AT_TIMES
    for name in never:
        assert {look.error for look in looks(f"{folder}/{name}").values()} == {None}


def test_the_interval_holds_the_end_of_nine_in_ten_tools() -> None:
    every = [
        looks(name)[share] for name in names("tools") for share in (0.1, 0.2, 0.5, 0.8)
    ]
    known = [look for look in every if look.error is not None]
    assert len(known) > 200
    assert statistics.mean(look.holds for look in known) >= 0.88


def test_bars_of_training_and_validation_count_for_their_time() -> None:
    found = looks("recent/tqdm_train_valid")
    assert [found[share].error for share in (0.2, 0.5, 0.8)] == pytest.approx(
        [0, 0, 0], abs=0.04
    )


def test_after_a_fifth_half_of_the_ends_are_known_within_an_eighth() -> None:
    errors = [looks(name)[0.2].error for name in names("tools")]
    assert statistics.median(one for one in errors if one is not None) <= 1 / 8
