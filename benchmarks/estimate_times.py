"""How well bounds of times hold on workflow traces: the table of docs/accuracy.md.

    python benchmarks/estimate_times.py TRACE.csv ...

Each trace is Nextflow's (trace.txt in raw form, by commas or tabs) with the columns
process, status, realtime (ms), %cpu and rchar; or Lotaru's, with Task, Realtime, %cpu
and TaskInputSize. Of each process, tasks of a minute or more that read something: five
at a time are known (drawn, the same every time), and the others are predicted from the
bytes that they read, up to four times the most known.
"""

import csv
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from weigh.estimate.curve import gather_size_points
from weigh.estimate.fit import TRUSTED_RATIO, fit_curve

KNOWN, DRAWS = 5, 20
SHORTEST = 60.0
LEVEL = 0.95

FARTHEST = 20  # times the truth: more slack than that is counted as that

Pairs = list[tuple[float, float]]


class Kind(NamedTuple):
    """How the bound did on one kind of task: the share held, and the mean slack."""

    held: float
    slack: float


def main(paths: Sequence[str]) -> None:
    """Print how often the bound held, and its slack: the mean over kinds of tasks."""
    print("| trace | wall, in range | wall, to 4 x | CPU, in range | CPU, to 4 x |")
    print("|---|---|---|---|---|")
    every: list[list[Kind]] = [[], [], [], []]
    for path in paths:
        found: list[list[Kind]] = []
        for quantity in ("wall", "cpu"):
            inside, beyond = kinds(read(path, quantity))
            found += [inside, beyond]
        for whole, cell in zip(every, found, strict=True):
            whole.extend(cell)
        print(f"| {os.path.basename(path)} | {' | '.join(map(written, found))} |")
    print(f"| in all | {' | '.join(map(written, every))} |")


def kinds(tasks: dict[str, Pairs]) -> tuple[list[Kind], list[Kind]]:
    """Return the share held and the slack of each kind, in range and beyond."""
    found: tuple[list[Kind], list[Kind]] = ([], [])
    for pairs in tasks.values():
        shares: tuple[list[float], list[float]] = ([], [])
        for is_beyond, share in predicted(pairs):
            shares[is_beyond].append(share)
        for cell, seen in zip(found, shares, strict=True):
            if seen:
                held = fmean(share >= 1 for share in seen)
                slack = fmean(min(share, FARTHEST) for share in seen) - 1
                cell.append(Kind(held, slack))
    return found


def written(found: Sequence[Kind]) -> str:
    """Write the share held, the slack, and of how many kinds."""
    if not found:
        return "-"
    held, slack = (fmean(column) for column in zip(*found, strict=True))
    return f"{held:.1%}, slack {slack:.0%} (of {len(found)})"


def read(path: str, quantity: str) -> dict[str, Pairs]:
    """Read bytes and seconds of the tasks of each process."""
    found: dict[str, Pairs] = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        tabs = "\t" in file.readline()
        file.seek(0)
        for row in csv.DictReader(file, delimiter="\t" if tabs else ","):
            wall_time = row.get("realtime") or row["Realtime"]
            read_bytes = row.get("TaskInputSize") or row["rchar"]
            try:
                wall, size = float(wall_time) / 1000, float(read_bytes)
                share = float(row["%cpu"]) / 100
            except ValueError:
                continue
            seconds = wall if quantity == "wall" else wall * share
            completed = row.get("status", "COMPLETED") == "COMPLETED"
            if completed and wall >= SHORTEST and size > 0:
                found[row.get("process") or row["Task"]].append((size, seconds))
    return found


def predicted(pairs: Pairs) -> Iterator[tuple[bool, float]]:
    """Yield the bound over the truth, and whether it is beyond what was known."""
    if len(pairs) <= KNOWN:
        return
    dice = random.Random(1)
    for _ in range(DRAWS):
        places = set(dice.sample(range(len(pairs)), KNOWN))
        points = gather_size_points([pairs[place] for place in places], keep="middle")
        made = fit_curve(points, "time")
        for place, (x, seconds) in enumerate(pairs):
            is_in_reach = points[0].x <= x <= TRUSTED_RATIO * made.largest_size
            if place not in places and is_in_reach and seconds > 0:
                yield x > made.largest_size, made.upper(x, LEVEL) / seconds


if __name__ == "__main__":
    main(sys.argv[1:])
