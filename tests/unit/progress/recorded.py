"""The recordings of real tools, and what a reader forecasts on the way."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from weigh.model.record import ReportedProgress

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from progress import RECORDINGS, forecasts, forecasts_at, recorded_rows

SHARES = (0.09, 0.1, 0.2, 0.5, 0.8)


class Look(NamedTuple):
    """The forecast at one time of a run, and the seconds that truly remained."""

    forecast: ReportedProgress | None
    true: float

    @property
    def holds(self) -> bool:
        """Return whether the true end lies in the interval."""
        low, _, high = time_left(self.forecast)
        return low <= self.true <= high

    @property
    def error(self) -> float | None:
        """Return how far off the end is, as a share; None if none is known."""
        if self.forecast is None or self.forecast.remaining is None:
            return None
        return abs(self.forecast.remaining / self.true - 1)


def time_left(forecast: ReportedProgress | None) -> tuple[float, float, float]:
    """Return the early end, the expected one and the late one of a forecast."""
    assert forecast is not None
    low, remaining, high = forecast.low, forecast.remaining, forecast.high
    assert low is not None
    assert remaining is not None
    assert high is not None
    return low, remaining, high


def names(folder: str = ".") -> list[str]:
    """Return the recordings of *folder*, with its name before a slash."""
    paths = sorted((RECORDINGS / folder).glob("*.jsonl.gz"))
    return [f"{folder}/{path.name.split('.')[0]}".removeprefix("./") for path in paths]


@cache
def looks(name: str) -> dict[float, Look]:
    """Return the forecast at each share of the way from the first count to the end."""
    found = forecasts(recorded_rows(RECORDINGS / f"{name}.jsonl.gz"), SHARES)
    return {
        share: Look(*at_share) for share, at_share in zip(SHARES, found, strict=True)
    }


def looks_at(
    printed: Sequence[tuple[float, str]], shares: Sequence[float], more: float = 0.0
) -> list[Look]:
    """Return the forecast at each share of what a run *printed*.

    It runs for *more* seconds after that.
    """
    end, rows = printed[-1][0], [(at, text.encode()) for at, text in printed]
    moments = [share * end for share in shares]
    lefts = [end - moment + more for moment in moments]
    return list(map(Look, forecasts_at(rows, moments), lefts))
