"""How often growth is found, claimed for nothing, and foretold: prints tables.

``python benchmarks/growth.py [RUNS]``: simulated runs of a minute, RUNS of each kind
(200), the same every time. Noise is normal; of "alike" 0.9 each sample is nine tenths
the last one.
"""

import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from weigh.estimate.growth import extrapolate, growth_of, is_memory_growing
from weigh.units import GIB

RUNS = 200
SECONDS = 60.0
SAMPLES = (30, 200, 500)
ALIKE = (0.0, 0.5, 0.9)

Shape = Callable[[float], float]
Run = tuple[list[float], list[int]]


def main() -> None:
    """Measure, and print Markdown tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    print(f"{runs} runs a figure\n")
    false_alarms(runs)
    hits(runs)
    coverage(runs)
    times, memory = simulated(lambda x: 1 + x, 500, noise(0, 500, 0, 0.02))
    began = time.perf_counter()
    growth_of(times, memory)
    print(f"\none look at 500 samples: {1e3 * (time.perf_counter() - began):.1f} ms")


def false_alarms(runs: int) -> None:
    """Print how many runs without growth are said to grow."""
    print("| no growth | 30 samples | 200 | 500 |\n|---|---|---|---|")
    for size in (0.002, 0.02, 0.1):
        for alike in ALIKE:
            name = f"flat, noise {100 * size:g} %, alike {alike:g}"
            row(name, flat(size, alike), runs)
    for teeth in (2, 3, 5, 10, 40):
        row(f"saw-tooth, {teeth} teeth", toothed(teeth, 0.0), runs)
    row("warm-up to a plateau at 60 %", shaped(lambda x: min(x / 0.6, 1)), runs)
    row("levels off", shaped(lambda x: 1 - math.exp(-6 * x)), runs)
    row("one step, somewhere", one_step, runs)


def hits(runs: int) -> None:
    """Print how many runs that grow are said to."""
    print("\n| growth in the run | 30 samples | 200 | 500 |\n|---|---|---|---|")
    for rise in (0.1, 0.3, 1.0):
        for alike in ALIKE:
            name = f"+{100 * rise:g} %, noise 2 %, alike {alike:g}"
            row(name, flat(0.02, alike, rise), runs)
    for teeth in (5, 10, 40):
        row(f"saw-tooth of {teeth} teeth that leaks", toothed(teeth, 0.5), runs)
    row("square root", shaped(math.sqrt), runs)
    row("four even steps", shaped(lambda x: 1 + 0.2 * int(5 * x)), runs)


def coverage(runs: int) -> None:
    """Print how many true peaks of longer runs lie between the bounds, of 95 %."""
    print("\n| +50 % in the run, noise 2 % | 1.5 x | 4 x | 20 x | width at 20 x |")
    print("|---|---|---|---|---|")
    for samples in SAMPLES:
        for alike in ALIKE:
            cells = [held(runs, samples, alike, factor) for factor in (1.5, 4, 20)]
            shares = " | ".join(f"{100 * share:.0f} %" for share, _ in cells)
            width = f"{100 * cells[-1][1]:.0f} %"
            print(f"| {samples} samples, alike {alike:g} | {shares} | {width} |")


def row(name: str, make: Callable[[int, int], Run], runs: int) -> None:
    """Print the share of runs said to grow, by the number of samples."""
    cells = []
    for samples in SAMPLES:
        said = sum(
            is_memory_growing(*make(seed, samples)) is True for seed in range(runs)
        )
        cells.append(f"{100 * said / runs:.1f} %")
    print(f"| {name} | {' | '.join(cells)} |")


def held(runs: int, samples: int, alike: float, factor: float) -> tuple[float, float]:
    """Give the share of true peaks between the bounds, and the bounds' median width."""
    inside, widths = 0, []
    for seed in range(runs):
        off = noise(seed, int(samples * factor), alike, 0.02)
        times, memory = simulated(lambda x: 1 + 0.5 * x, samples, off)
        growth = growth_of(times[:samples], memory[:samples])
        if growth is None or not growth.growing:
            continue
        ahead, truth = extrapolate(growth, times[-1]), max(memory)
        inside += ahead.low <= truth <= ahead.high
        widths.append((ahead.high - ahead.low) / truth)
    widths.sort()
    return inside / max(1, len(widths)), widths[len(widths) // 2]


def flat(size: float, alike: float, rise: float = 0.0) -> Callable[[int, int], Run]:
    """Make runs of noise, which may rise."""
    return lambda seed, samples: simulated(
        lambda x: 1 + rise * x, samples, noise(seed, samples, alike, size)
    )


def toothed(teeth: int, rise: float) -> Callable[[int, int], Run]:
    """Make saw-teeth that begin anywhere."""

    def make(seed: int, samples: int) -> Run:
        begin = random.Random(seed).random()
        return simulated(
            lambda x: 0.3 + 0.4 * ((x * teeth + begin) % 1) + rise * x, samples
        )

    return make


def one_step(seed: int, samples: int) -> Run:
    """Make a run that steps up once."""
    at = random.Random(seed).random()
    return simulated(
        lambda x: 0.5 + 0.5 * (x > at), samples, noise(seed, samples, 0, 0.01)
    )


def shaped(shape: Shape) -> Callable[[int, int], Run]:
    """Make runs of one shape with 1 % of noise."""
    return lambda seed, samples: simulated(
        shape, samples, noise(seed, samples, 0, 0.01)
    )


def simulated(shape: Shape, samples: int = 200, off: Sequence[float] = ()) -> Run:
    """Sample a shape and what strays from it, in GiB; as long as *off* is."""
    at = [turn / (samples - 1) for turn in range(len(off) or samples)]
    strays = off or [0.0] * samples
    memory = [
        max(0, round(GIB * (shape(x) + e))) for x, e in zip(at, strays, strict=True)
    ]
    return [SECONDS * x for x in at], memory


def noise(seed: int, samples: int, alike: float, size: float) -> list[float]:
    """Make normal noise in which neighbours are alike."""
    return list(_noise(random.Random(seed), samples, alike, size))


def _noise(
    draw: random.Random, samples: int, alike: float, size: float
) -> Iterator[float]:
    last = draw.gauss(0, size)
    for _ in range(samples):
        yield last
        last = alike * last + draw.gauss(0, size * math.sqrt(1 - alike**2))


if __name__ == "__main__":
    main()
