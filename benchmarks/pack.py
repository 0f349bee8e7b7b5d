"""How well and how quickly items are packed: ``python benchmarks/pack.py``.

Each row is 10,000 random items. The bound is the volume of the scarcest resource, which
no packing can beat.
"""

import platform
import random
import time
from collections.abc import Callable

from weigh.model.plan import RESOURCES, BinCapacity, TaskNeed
from weigh.planning.bin_packing import pack_items
from weigh.units import GIB

_MANY = 10_000
_SEEDS = range(3)
_CARD = BinCapacity(gpu_memory=32 * GIB, memory=128 * GIB, cpus=32)


def main() -> None:
    """Pack, and print a Markdown table."""
    print(f"Python {platform.python_version()}, CPU time of the slowest of 3 seeds\n")
    print("| 10,000 items | bins | over the volume | CPU time |\n|---|---|---|---|")
    for name, draw in _KINDS.items():
        print(_row(name, [_measured(draw, seed) for seed in _SEEDS]))


def _row(name: str, runs: list[tuple[int, float, float]]) -> str:
    bins, over, seconds = (max(column) for column in zip(*runs, strict=True))
    return f"| {name} | {bins} | {over - 1:+.1%} | {seconds:.2f} s |"


def _measured(
    draw: Callable[[random.Random], TaskNeed], seed: int
) -> tuple[int, float, float]:
    rng = random.Random(seed)
    items = [draw(rng) for _ in range(_MANY)]
    began = time.process_time()
    bins = len(pack_items(items, _CARD).bins)
    took = time.process_time() - began
    volume = max(
        sum(getattr(item, resource) for item in items) / getattr(_CARD, resource)
        for resource in RESOURCES
    )
    return bins, bins / volume, took


def _share(rng: random.Random, least: float, most: float) -> TaskNeed:
    a, b, c = (rng.uniform(least, most) for _ in range(3))
    return TaskNeed(round(a * 32 * GIB), round(b * 128 * GIB), max(1, round(c * 32)))


_KINDS: dict[str, Callable[[random.Random], TaskNeed]] = {
    "0.5-6 GiB of GPU, 1-8 GiB, 1-4 CPUs": lambda rng: TaskNeed(
        round(rng.uniform(0.5, 6) * GIB),
        round(rng.uniform(1, 8) * GIB),
        rng.randint(1, 4),
    ),
    "up to half a card, little else": lambda rng: TaskNeed(
        round(rng.uniform(0.6, 16) * GIB),
        round(rng.uniform(1, 12) * GIB),
        rng.randint(1, 2),
    ),
    "up to a whole card, little else": lambda rng: TaskNeed(
        round(rng.uniform(0.6, 32) * GIB),
        round(rng.uniform(1, 12) * GIB),
        rng.randint(1, 2),
    ),
    "three algorithms": lambda rng: rng.choice(
        [
            TaskNeed(round(2.8 * GIB), 2 * GIB, 1),
            TaskNeed(9 * GIB, 4 * GIB, 2),
            TaskNeed(GIB, 20 * GIB, 4),
        ]
    ),
    "all resources alike, up to a tenth": lambda rng: _share(rng, 0.01, 0.1),
    "all resources alike, up to a quarter": lambda rng: _share(rng, 0.01, 0.25),
    "all resources alike, up to a half": lambda rng: _share(rng, 0.01, 0.5),
}


if __name__ == "__main__":
    main()
