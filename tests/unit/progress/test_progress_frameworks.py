"""Counters inside counters, as frameworks print them: at no time a false end."""

from functools import cache

import pytest
from frameworks import FRAMEWORKS
from recorded import Look, looks_at

NAMES = sorted(FRAMEWORKS)
# of epochs, or of what else is outside, no number is printed
NO_END = {
    *("fairseq", "fairseq_bar", "flair", "imagenet_example", "lightning", "timm"),
    *(
        "figures_of_an_epoch",
        "headings_of_folds",
        "mnist_example",
        "monai_unknown",
        "nnunet",
        "segmentation",
    ),
    *(
        "chain_of_unknown_number",
        "cmdstan",
        "fold_of_unknown_number",
        "seed_of_unknown_number",
    ),
    *("diamond", "lightgbm", "xgboost"),  # query blocks and rounds
    *("spacy", "star"),  # steps and reads
    "wenet",  # its batches, counted in epochs and steps
    *("nextflow", "spark"),  # more tasks while it runs
    "torchvision",  # the time left is that of the epoch
}
DAY_LONG = {"clock_of_hours", "long_days"}  # they state a day more than they take
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)


@cache
def seen(name: str) -> dict[float, Look]:
    """Return the forecasts at each share of the run."""
    rows = sorted(FRAMEWORKS[name](), key=lambda row: row[0])
    more = 86400 if name in DAY_LONG else 0
    return dict(zip(SHARES, looks_at(rows, SHARES, more), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_an_epoch_is_not_taken_for_that_of_the_run(name: str) -> None:
    for share, look in seen(name).items():
        if look.error is not None and name != "tqdm_inner":
            assert look.holds, share
            assert look.error <= 0.3, share


@pytest.mark.parametrize("name", sorted(NO_END))
def test_no_end_is_predicted_where_the_outer_counter_is_open(name: str) -> None:
    assert {look.error for look in seen(name).values()} == {None}


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(NO_END) - {"tqdm_inner"}))
def test_the_end_is_known_by_the_middle_of_the_run(name: str) -> None:
    assert seen(name)[0.5].error is not None


def test_a_bar_that_begins_again_without_an_outer_one_has_no_end() -> None:
    assert seen("tqdm_inner")[0.3].error is None
