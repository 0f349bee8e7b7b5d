"""The recordings of real tools, and what a reader says on the way."""

import gzip
import json
from functools import cache
from pathlib import Path

from weigh.model.progress import EndForecast
from weigh.progress.reader import RunProgressReader

DIRECTORY = Path(__file__).parents[2] / "support" / "data" / "progress"
NAMES = sorted(path.name.split(".")[0] for path in DIRECTORY.glob("*.jsonl.gz"))

Rows = list[tuple[float, bytes]]


@cache
def rows(name: str) -> Rows:
    """Read a recording: its name, after a folder's name and a slash if it is in one."""
    with gzip.open(DIRECTORY / f"{name}.jsonl.gz", "rt") as file:
        return [(at, text.encode("latin-1")) for at, text in map(json.loads, file)]


@cache
def first_count(name: str) -> float:
    reader = RunProgressReader()
    for at, chunk in rows(name):
        reader.feed(chunk, at)
        if reader.forecast(at):
            return at
    raise AssertionError("nothing counts in it")


def forecast_at(name: str, share: float) -> tuple[EndForecast, float]:
    """Give the forecast after *share* of the run, and what truly remained."""
    recorded = rows(name)
    begin, end = first_count(name), recorded[-1][0]
    moment = begin + share * (end - begin)
    reader = RunProgressReader()
    for at, chunk in recorded:
        if at <= moment:
            reader.feed(chunk, at)
    forecast = reader.forecast(moment)
    assert forecast is not None
    return forecast, end - moment
