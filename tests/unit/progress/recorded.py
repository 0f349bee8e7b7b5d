"""The recordings of real tools, and what a reader forecasts on the way."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from weigh.model.record import ReportedProgress
from weigh.progress.reader import RunProgressReader

DIRECTORY = Path(__file__).parents[2] / "support" / "data" / "progress"
SHARES = (0.09, 0.1, 0.2, 0.5, 0.8)


class Look(NamedTuple):
    """The forecast at one time of a run, and the seconds that truly remained."""

    forecast: ReportedProgress | None
    true: float

    @property
    def holds(self) -> bool:
        """Return whether the true end lies in the interval."""
        forecast = self.forecast
        assert forecast
        assert forecast.low is not None
        assert forecast.high is not None
        return forecast.low <= self.true <= forecast.high

    @property
    def error(self) -> float | None:
        """Return how far off the end is, as a share; None if none is known."""
        if self.forecast is None or self.forecast.remaining is None:
            return None
        return abs(self.forecast.remaining / self.true - 1)


def names(folder: str = ".") -> list[str]:
    """Return the recordings of *folder*, with its name before a slash."""
    paths = sorted((DIRECTORY / folder).glob("*.jsonl.gz"))
    return [f"{folder}/{path.name.split('.')[0]}".removeprefix("./") for path in paths]


@cache
def looks(name: str) -> dict[float, Look]:
    """Return the forecast at each share of the way from the first count to the end."""
    with gzip.open(DIRECTORY / f"{name}.jsonl.gz", "rt") as file:
        rows = [(at, text.encode("latin-1")) for at, text in map(json.loads, file)]
    reader, end = RunProgressReader(), rows[-1][0]
    begin = end
    for at, chunk in rows:
        reader.feed(chunk, at)
        if reader.forecast(at):
            begin = at
            break
    reader, found, waiting = RunProgressReader(), {}, iter(rows)
    row = next(waiting, None)
    for share in SHARES:
        moment = begin + share * (end - begin)
        while row and row[0] <= moment:
            reader.feed(row[1], row[0])
            row = next(waiting, None)
        found[share] = Look(reader.forecast(moment), end - moment)
    return found
