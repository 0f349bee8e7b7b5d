"""How right the end of a list of tasks is foretold, while it runs: prints a table.

``python benchmarks/progress_lists.py [LISTS]``: LISTS of each kind (60), the same every
time, of 30, 100 and 400 tasks that say nothing, asked when a tenth, 30, 60 and 90 % of
the tasks are done.
"""

import heapq
import random
import statistics
import sys
from collections.abc import Callable, Iterator

from weigh.progress.eta import TaskDurations, until_done

LISTS = 60
SHARES = (0.1, 0.3, 0.6, 0.9)
LANES = (1, 4, 12)
SIZES = (30, 100, 400)
KINDS: dict[str, Callable[[random.Random], float]] = {
    "log-normal, 10 %": lambda dice: dice.lognormvariate(4, 0.1),
    "log-normal, 40 %": lambda dice: dice.lognormvariate(4, 0.4),
    "log-normal, 80 %": lambda dice: dice.lognormvariate(4, 0.8),
    "exponential": lambda dice: dice.expovariate(1 / 50),
    "30 or 120 s": lambda dice: dice.choice([30, 120]) * dice.lognormvariate(0, 0.05),
}


def main() -> None:
    """Measure, and print a Markdown table."""
    lists = int(sys.argv[1]) if len(sys.argv) > 1 else LISTS
    print("| held of 90 %, median error | " + lanes_row())
    print("|---|" + "---|" * len(LANES))
    every: dict[int, list[bool]] = {lanes: [] for lanes in LANES}
    for name, kind in KINDS.items():
        cells = []
        for lanes in LANES:
            seen = list(looks(kind, lanes, lists))
            every[lanes] += [held for held, _ in seen]
            off = statistics.median(abs(error) for _, error in seen)
            held = statistics.mean(held for held, _ in seen)
            cells.append(f"{100 * held:.0f} %, {100 * off:.0f} %")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    cells = [f"{100 * statistics.mean(every[lanes]):.1f} %" for lanes in LANES]
    print(f"| all | {' | '.join(cells)} |")


def lanes_row() -> str:
    """Name the columns."""
    return " | ".join(f"{n} at a time" for n in LANES) + " |"


def looks(
    kind: Callable[[random.Random], float], lanes: int, lists: int
) -> Iterator[tuple[bool, float]]:
    """Yield whether the interval held the end, and how far off the value was."""
    for size in SIZES:
        for number in range(lists):
            dice = random.Random(number * 7 + lanes)
            tasks = played([kind(dice) for _ in range(size)], lanes)
            for share in SHARES:
                yield look(tasks, lanes, max(1, int(share * size)))


def played(times: list[float], lanes: int) -> list[tuple[float, float]]:
    """Give when each task begins and ends, taken by the lane that is free first."""
    free = [0.0] * lanes
    tasks = []
    for time in times:
        begin = heapq.heapreplace(free, free[0] + time)
        tasks.append((begin, begin + time))
    return tasks


def look(tasks: list[tuple[float, float]], lanes: int, done: int) -> tuple[bool, float]:
    """Ask midway between the end of the task that is *done* last and the next one."""
    ends = sorted(end for _, end in tasks)
    now = (ends[done - 1] + ends[done]) / 2
    took = tuple(end - begin for begin, end in tasks if end <= now)
    begun = tuple(now - begin for begin, end in tasks if begin <= now < end)
    waiting = sum(begin > now for begin, _ in tasks)
    found = until_done(
        begun, waiting, TaskDurations(took, len(took), begun), lanes=lanes
    )
    assert found
    left = ends[-1] - now
    return found.low <= left <= found.high, found.value / left - 1


if __name__ == "__main__":
    main()
