import msgspec
import pytest

from weigh.model.progress import EndForecast
from weigh.progress.notices import limit_to_ask, outlook

FORECAST = EndForecast(
    done=40,
    total=100,
    time=4000,
    source="tqdm",
    step_time=100,
    remaining=6000,
    low=5000,
    high=8000,
)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (12_000, "fits"),
        (11_999, "doubtful"),
        (9_000, "doubtful"),
        (8_999, "too late"),
        (3_000, "too late"),
    ],
)
def test_the_interval_decides_whether_a_limit_is_met(limit: float, said: str) -> None:
    assert outlook(FORECAST, current_time=4000, limit=limit) == said


def test_a_forecast_counts_from_the_time_it_was_made() -> None:
    assert outlook(FORECAST, current_time=4500, limit=12_000) == "fits"


def test_a_forecast_whose_time_is_up_states_now() -> None:
    assert outlook(FORECAST, current_time=13_000, limit=13_000) == "fits"


def test_nothing_is_reported_while_nothing_is_known() -> None:
    bare = EndForecast(done=4, total=None, time=4000, source="tqdm")
    assert outlook(None, current_time=1, limit=2) is None
    assert outlook(bare, current_time=1, limit=2) is None
    assert limit_to_ask(None) is None
    assert limit_to_ask(bare) is None


def test_the_first_steps_of_a_young_run_print_nothing() -> None:
    early = msgspec.structs.replace(FORECAST, done=1, time=30)
    assert outlook(early, current_time=30, limit=60) is None
    assert outlook(early, current_time=700, limit=60) == "too late"


def test_what_to_request_holds_the_whole_run_and_a_margin() -> None:
    asked = limit_to_ask(FORECAST)
    assert asked == 13_800
    assert outlook(FORECAST, current_time=4000, limit=asked) == "fits"
