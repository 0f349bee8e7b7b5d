"""How right the end is foretold, and what reading along costs: prints tables.

``python benchmarks/progress.py [RUNS]``: the recordings of real tools in
tests/support/data/progress and its folders, then simulated runs, RUNS of each kind
(200), the same every time. ``python benchmarks/progress.py FOLDER``: only the
recordings in a folder of your own (made by record.py there).
"""

import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from weigh.model.record import ReportedProgress
from weigh.progress.reader import RunProgressReader

RUNS = 200
RECORDINGS = Path(__file__).parent.parent / "tests" / "support" / "data" / "progress"
SHARES = (0.1, 0.2, 0.5, 0.8)
STEPS = 1000

Rows = list[tuple[float, bytes]]
Kind = Callable[[random.Random], Rows]


def main() -> None:
    """Measure, and print Markdown tables."""
    argument = sys.argv[1] if len(sys.argv) > 1 else str(RUNS)
    if not argument.isdecimal():
        recordings(Path(argument))
        return
    for folder in (RECORDINGS, *sorted(RECORDINGS.iterdir())):
        if folder.is_dir():
            recordings(folder)
    simulations(int(argument))
    cost()


def recordings(folder: Path) -> None:
    """Print how far off the remaining time is, in per cent of the true one."""
    cells = " | ".join(f"at {100 * s:.0f} %" for s in SHARES)
    print(f"\n| {folder.name} | {cells} |")
    print("|---|" + "---|" * len(SHARES))
    found = Found()
    for path in sorted(folder.glob("*.jsonl.gz")):
        seen = list(forecasts(recorded_rows(path)))
        found.add(seen)
        cells = " | ".join(cell(*one) for one in seen)
        print(f"| {path.name.removesuffix('.jsonl.gz')} | {cells} |")
    print(found)


def recorded_rows(path: Path) -> Rows:
    """Read what a tool printed, and when."""
    with gzip.open(path, "rt") as file:
        return [(at, text.encode("latin-1")) for at, text in map(json.loads, file)]


class Found:
    """What was found in the recordings of one folder."""

    def __init__(self) -> None:
        self.recordings = self.understood = 0
        self.held: list[bool] = []
        self.off: list[float] = []

    def add(self, seen: "list[tuple[ReportedProgress | None, float]]") -> None:
        """Count a recording: understood, if half-way an end is known."""
        self.recordings += 1
        half = seen[SHARES.index(0.5)][0]
        self.understood += half is not None and half.remaining is not None
        for share, (forecast, true) in zip(SHARES, seen, strict=True):
            if forecast and forecast.remaining is not None:
                off, is_held, _ = figures(forecast, true)
                self.held.append(is_held)
                if share == 0.2:
                    self.off.append(off)

    def __str__(self) -> str:
        """Write it in a line."""
        return (
            f"{self.understood} of {self.recordings} understood half-way; "
            f"interval held {100 * statistics.mean(self.held):.0f} % of "
            f"{len(self.held)}; median error at 20 % "
            f"{100 * statistics.median(self.off):.1f} % of {len(self.off)}"
        )


def forecasts(
    rows: Rows, shares: Sequence[float] = SHARES
) -> Iterator[tuple[ReportedProgress | None, float]]:
    """Yield the forecast at each share of the way from the first count to the end."""
    begin, end = next(beginnings(rows), rows[0][0]), rows[-1][0]
    moments = [begin + share * (end - begin) for share in shares]
    for moment, forecast in zip(moments, forecasts_at(rows, moments), strict=True):
        yield forecast, end - moment


def forecasts_at(
    rows: Rows, moments: Sequence[float]
) -> Iterator[ReportedProgress | None]:
    """Yield the forecast at each moment, from the *rows* printed by then."""
    reader, waiting = RunProgressReader(), iter(rows)
    row = next(waiting, None)
    for moment in moments:
        while row and row[0] <= moment:
            reader.feed(row[1], row[0])
            row = next(waiting, None)
        yield reader.forecast(moment)


def beginnings(rows: Rows) -> Iterator[float]:
    """Yield the times from the first count on."""
    reader = RunProgressReader()
    for at, chunk in rows:
        reader.feed(chunk, at)
        if reader.forecast(at):
            yield at


def cell(forecast: ReportedProgress | None, true: float) -> str:
    """Write the error and half the interval, both in per cent of the true time."""
    if forecast is None:
        return "nothing yet"
    remaining, low, high = forecast.remaining, forecast.low, forecast.high
    if remaining is None or low is None or high is None:
        return "not yet" if forecast.total else "no total"
    off, half = 100 * (remaining / true - 1), 50 * (high - low) / true
    held = "" if low <= true <= high else " (outside)"
    return f"{off:+.1f} ± {half:.0f}{held}"


def simulations(runs: int) -> None:
    """Print how often the true time lay in the interval, of 90 %, and its width."""
    print(f"\n{runs} runs a figure: median error, share held, half the interval")
    table("simulated", KINDS, runs)
    table("what is to come is not like what was", UNFORESEEN, runs)


def table(title: str, kinds: dict[str, Kind], runs: int) -> None:
    """Print a row for each kind of run, and what was held of all."""
    print(f"\n| {title} | " + " | ".join(f"at {100 * s:.0f} %" for s in SHARES) + " |")
    print("|---|" + "---|" * len(SHARES))
    every: list[bool] = []
    for name, kind in kinds.items():
        seen = [simulated(kind(random.Random(seed))) for seed in range(runs)]
        cells = []
        for at in zip(*seen, strict=True):
            got = [figures(*one) for one in at]
            every += [held for _, held, _ in got]
            cells.append(
                f"{100 * statistics.median(off for off, _, _ in got):.1f} %, "
                f"{100 * statistics.mean(held for _, held, _ in got):.0f} %, "
                f"± {100 * statistics.median(half for _, _, half in got):.0f} %"
            )
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nheld, all of them: {100 * statistics.mean(every):.1f} %")


def figures(
    forecast: ReportedProgress | None, true: float
) -> tuple[float, bool, float]:
    """Give the relative error, if the interval held it, and half its width."""
    assert forecast
    remaining, low, high = forecast.remaining, forecast.low, forecast.high
    assert remaining is not None
    assert low is not None
    assert high is not None
    return abs(remaining / true - 1), low <= true <= high, (high - low) / 2 / true


def simulated(rows: Rows) -> list[tuple[ReportedProgress | None, float]]:
    """Let a reader follow, and ask it on the way."""
    end = rows[-1][0]
    moments = [share * end for share in SHARES]
    found = forecasts_at(rows, moments)
    return [
        (forecast, end - moment)
        for forecast, moment in zip(found, moments, strict=True)
    ]


def summed(draws: Iterator[float]) -> Rows:
    """Print a line at the end of each step."""
    times = list(accumulate(draws))
    return [(at, b"step %d of %d\n" % (n, len(times))) for n, at in enumerate(times, 1)]


def nested(pause: float, spread: float) -> Kind:
    """Ten epochs of 100 steps with a bar each, and a pause after each of them."""

    def run(dice: random.Random) -> Rows:
        at, rows = 0.0, []
        for epoch in range(1, 11):
            rows.append((at, b"\nEpoch %d/10\n" % epoch))
            for step in range(1, 101):
                at += dice.lognormvariate(0, spread)
                rows.append((at, f"\r{step}/100 {'━' * 20} 5s 4ms/step".encode()))
            at += pause * dice.lognormvariate(0, 0.1)
        return [*rows, (at, b"\n")]

    return run


def jittered(spread: float, steps: int = STEPS) -> Kind:
    """Steps of a second, each drawn by itself."""
    return lambda dice: summed(dice.lognormvariate(0, spread) for _ in range(steps))


def alike(spread: float, likeness: float) -> Kind:
    """Each step takes after the last one."""

    def draws(dice: random.Random) -> Iterator[float]:
        level = dice.gauss(0, spread)
        fresh = spread * (1 - likeness**2) ** 0.5
        for _ in range(STEPS):
            level = likeness * level + dice.gauss(0, fresh)
            yield max(0.05, 1 + level)

    return lambda dice: summed(draws(dice))


def changing(share: float, factor: float, spread: float = 0.2) -> Kind:
    """The level changes once, by *factor*, after *share* of the steps."""

    def draws(dice: random.Random) -> Iterator[float]:
        for step in range(STEPS):
            yield dice.lognormvariate(0, spread) * (
                factor if step < share * STEPS else 1
            )

    return lambda dice: summed(draws(dice))


def trending(factor: float, spread: float = 0.2) -> Kind:
    """The last steps take *factor* times as long as the first."""

    def draws(dice: random.Random) -> Iterator[float]:
        for step in range(STEPS):
            level = 1 + (factor - 1) * step / STEPS
            yield dice.lognormvariate(0, spread) * level

    return lambda dice: summed(draws(dice))


def pausing(every: int, pause: float) -> Kind:
    """A pause after each *every* steps: evaluation, a checkpoint."""

    def draws(dice: random.Random) -> Iterator[float]:
        for step in range(1, STEPS + 1):
            yield dice.lognormvariate(0, 0.2) + (0 if step % every else pause)

    return lambda dice: summed(draws(dice))


def suspended(dice: random.Random) -> Rows:
    """Stop once for as long as a quarter of the run."""
    draws = [dice.lognormvariate(0, 0.2) for _ in range(STEPS)]
    draws[60] += STEPS / 4
    return summed(iter(draws))


KINDS: dict[str, Kind] = {
    "steady, spread 5 %": jittered(0.05),
    "steady, spread 20 %": jittered(0.2),
    "steady, spread 50 %": jittered(0.5),
    "steady, 50 steps of spread 20 %": jittered(0.2, 50),
    "heavy tail (log-normal, 100 %)": jittered(1.0),
    "alike 0.9, spread 20 %": alike(0.2, 0.9),
    "warm-up: first 2 % four times as slow": changing(0.02, 4),
    "faster by half after 4 %": changing(0.04, 2),
    "slower by half after 7 %": changing(0.07, 1 / 1.5),
    "a pause of 5 steps every 20": pausing(20, 5),
    "ten epochs, spread 20 %": nested(0, 0.2),
    "ten epochs, a pause of 5 steps after each": nested(5, 0.2),
}
UNFORESEEN: dict[str, Kind] = {
    "drift: alike 0.98, spread 20 %": alike(0.2, 0.98),
    "slower by half after 40 %": changing(0.4, 1 / 1.5),
    "a pause of 30 steps every 100": pausing(100, 30),
    "ten epochs, a pause of 30 steps after each": nested(30, 0.2),
    "suspended from 5 to 25 %": suspended,
    "slower and slower, threefold in the end": trending(3),
    "slower and slower, by half in the end": trending(1.5),
    "faster and faster, threefold in the end": trending(1 / 3),
}


def cost() -> None:
    """Print the share of a core that reading 10 MB/s takes."""
    print("\n| 10 MB/s of | reads of | of a core |\n|---|---|---|")
    bar = "".join(
        f"\r{n / 10:3.0f}%|{'█' * 40}| {n}/1000 [00:10<01:10, 9.9it/s, loss=0.{n}]"
        for n in range(1000)
    ).encode()
    log = "".join(
        f"2026-11-21 10:00:00 INFO step {n} of 999 loss 0.5\n" for n in range(999)
    )
    noise = random.Random(1).randbytes(100_000)
    for name, text in (("tqdm", bar), ("log lines", log.encode()), ("noise", noise)):
        for size in (4096, 65536):
            print(f"| {name} | {size} | {100 * share_of_a_core(text, size):.2f} % |")


def share_of_a_core(text: bytes, size: int) -> float:
    """Feed 100 MB in 10 s of the reader's clock, with a forecast each second."""
    stream = (text * (2 * size // len(text) + 2))[: len(text) + size]
    reader, spent, fed = RunProgressReader(), 0.0, 0
    while fed < 100_000_000:
        start = fed % len(text)
        chunk, now = stream[start : start + size], fed / 1e7
        began = time.process_time()
        reader.feed(chunk, now)
        if int(now) != int((fed - size) / 1e7):
            reader.forecast(now)
        spent += time.process_time() - began
        fed += size
    return spent / 10


if __name__ == "__main__":
    main()
