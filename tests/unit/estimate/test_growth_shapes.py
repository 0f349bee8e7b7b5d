"""Simulated runs: how often growth is found, claimed for nothing, and foretold."""

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.estimate.growth import (
    FEWEST,
    START_UP,
    extrapolate,
    growth_of,
    is_memory_growing,
)
from weigh.measure import watcher
from weigh.model.progress import MemoryGrowth
from weigh.robust import rise_score, slope_interval
from weigh.units import GIB, MIB

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from growth import SECONDS, Shape, noise, simulated

ON_H100 = Path(__file__).parents[2] / "support/data/memory/training_on_h100.csv"


def known_growth(times: Sequence[float], memory: Sequence[int]) -> MemoryGrowth:
    growth = growth_of(times, memory)
    assert growth is not None
    return growth


def steps(*rises: float) -> Shape:
    return lambda x: 1 + 0.2 * sum(x >= rise for rise in rises)


@pytest.mark.parametrize("seconds", [0.5, SECONDS])
@pytest.mark.parametrize("shape", [lambda x: 1 + x, lambda _: 1.0])
def test_when_sampling_began_changes_nothing(shape: Shape, seconds: float) -> None:
    times, memory = simulated(shape)
    times = [time * seconds / SECONDS for time in times]
    late = [1000 + time for time in times]
    assert is_memory_growing(late, memory) is is_memory_growing(times, memory)
    assert (is_memory_growing(times, memory) is None) == (seconds < 1)


def h100_run() -> tuple[list[float], list[int]]:
    """Return a recorded training: imports, the context of CUDA, one epoch."""
    with ON_H100.open() as file:
        rows = list(csv.DictReader(file))
    times = [float(row["seconds"]) for row in rows]
    return times, [int(row["mib"]) * MIB for row in rows]


def test_the_start_up_of_a_training_is_no_growth_wherever_it_ends() -> None:
    times, memory = h100_run()
    for count in range(1, len(times) + 1):
        assert is_memory_growing(times[:count], memory[:count]) is not True


def test_a_start_up_that_came_in_steps_is_not_extrapolated() -> None:
    growth = known_growth(*h100_run())
    assert extrapolate(growth, 3600.0).high == growth.peak


@pytest.mark.parametrize("peak_at", [2.0, 0.4])
def test_a_rise_within_half_a_minute_is_no_growth_but_is_extrapolated(
    peak_at: float,
) -> None:
    """Also where a peak of its own hides it."""
    times, memory = simulated(lambda x: 3 if peak_at < x < peak_at + 0.02 else 1 + x)
    short = [time * 0.9 * START_UP / SECONDS for time in times]
    growth = known_growth(short, memory)
    assert growth.growing is None
    ahead = extrapolate(growth, 10 * growth.end)
    assert ahead.low <= 11 * GIB <= ahead.high


def found_growing(
    shape: Shape, samples: int, correlation: float, size: float, *, runs: int
) -> int:
    """Return how many of so many noisy *runs* are found to grow."""
    noises = (noise(seed, samples, correlation, size) for seed in range(runs))
    found = [is_memory_growing(*simulated(shape, samples, off)) for off in noises]
    return found.count(True)


@pytest.mark.parametrize("correlation", [0, 0.5, 0.9])
@pytest.mark.parametrize("samples", [30, 200])
@pytest.mark.parametrize("size", [0.002, 0.1])
def test_flat_memory_with_noise_is_growing_in_five_of_a_hundred_at_most(
    samples: int, correlation: float, size: float
) -> None:
    assert found_growing(lambda _: 1, samples, correlation, size, runs=100) <= 5


@pytest.mark.parametrize("correlation", [0, 0.5])
@pytest.mark.parametrize(("rise", "size"), [(0.1, 0.005), (0.3, 0.02), (1.0, 0.06)])
def test_a_rise_of_many_times_the_noise_is_found(
    rise: float, size: float, correlation: float
) -> None:
    found = found_growing(lambda x: 1 + rise * x, 200, correlation, size, runs=50)
    assert found >= 48


@pytest.mark.parametrize("factor", [1.5, 4])
@pytest.mark.parametrize(("correlation", "size"), [(0, 0.02), (0.5, 0.02), (0, 0.002)])
def test_an_extrapolation_holds_the_true_peak_at_its_level(
    factor: float, correlation: float, size: float
) -> None:
    held = 0
    for seed in range(100):
        off = noise(seed, int(200 * factor), correlation, size)
        times, memory = simulated(lambda x: 1 + 0.5 * x, 200, off)
        growth = known_growth(times[:200], memory[:200])
        ahead = extrapolate(growth, times[-1])
        held += ahead.low <= max(memory) <= ahead.high
    assert held >= 92  # of a true 95, with what chance does to a hundred


def test_the_rate_that_goes_on_is_that_of_the_last_quarter() -> None:
    growth = known_growth(*simulated(lambda x: 1 + x - 0.3 * max(0.0, x - 0.7)))
    assert growth.trend is not None
    assert growth.trend.rate == pytest.approx(0.7 * GIB / SECONDS, rel=0.02)


def test_a_collectors_saw_tooth_that_leaks_is_carried_on() -> None:
    def shape(x: float) -> float:
        return 0.3 + 0.4 * (x * 20 % 1) + 0.5 * x

    times, memory = simulated(shape, 400, [0.0] * 2000)
    ahead = extrapolate(known_growth(times[:400], memory[:400]), times[-1])
    assert ahead.low <= max(memory) <= ahead.high


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.8])
def test_a_saw_tooth_that_leaks_is_found(phase: float) -> None:
    def leaking(x: float) -> float:
        return flat(x) + 0.3 * x

    def flat(x: float) -> float:
        return 1 + (x * 40 + phase) % 1

    assert is_memory_growing(*simulated(leaking, 400)) is True
    assert is_memory_growing(*simulated(flat, 400)) is False


def test_a_leak_beneath_a_peak_of_its_own_is_found() -> None:
    times, memory = simulated(lambda x: 3 if 0.4 < x < 0.42 else 1 + 0.5 * x)
    assert is_memory_growing(times, memory) is True


def test_a_slow_leak_is_found_though_the_run_released_its_memory_at_the_end() -> None:
    def leak(x: float) -> float:
        return 1 + 0.1 * x if x < 0.95 else 0.1

    assert found_growing(leak, 200, 0.3, 0.01, runs=20) >= 18


@pytest.mark.parametrize(
    ("rises", "is_growth"),
    [
        ((0.3, 0.5, 0.7, 0.9), True),
        ((0.4, 0.6, 0.8), True),
        # that stopped, or come ever later
        ((0.3, 0.35, 0.4), False),
        ((0.02, 0.1, 0.3), False),
        ((0.5, 0.6, 0.65), False),
    ],
)
def test_even_steps_that_go_on_are_growth(
    rises: tuple[float, ...], *, is_growth: bool
) -> None:
    assert is_memory_growing(*simulated(steps(*rises))) is is_growth


@given(st.floats(0.05, 0.7), st.floats(0.1, 1))
def test_memory_that_levels_out_states_when(full: float, rise: float) -> None:
    growth = known_growth(*simulated(lambda x: 0.2 + rise * min(x / full, 1)))
    assert growth.growing is False
    assert growth.since is not None
    assert growth.since <= full * SECONDS + SECONDS / 100


@given(st.floats(1, 100), st.integers(0, 1000))
def test_more_steps_never_need_less(factor: float, seed: int) -> None:
    off = noise(seed, 200, 0, 0.02)
    growth = known_growth(*simulated(lambda x: 1 + x, 200, off))
    near, far = (extrapolate(growth, SECONDS * f) for f in (factor, factor * 1.5))
    assert growth.peak <= near.low <= near.value <= near.high
    assert (near.value, near.high) <= (far.value, far.high)


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=60))
def test_any_series_has_an_answer(memory: list[int]) -> None:
    times = [0.1 * turn for turn in range(len(memory))]
    growth = known_growth(times, memory)
    assert growth.peak == max(memory)
    assert extrapolate(growth, 1e9).low >= growth.peak


def test_nothing_seen_is_nothing_known() -> None:
    assert growth_of([], []) is None


def test_the_run_is_estimated_from_as_many_samples_on_as_there_is_an_answer() -> None:
    assert watcher._GROWTH_SAMPLES <= FEWEST


# The line


@given(st.floats(-1e6, 1e6), st.floats(-1e9, 1e9), st.integers(4, 30))
def test_the_slope_of_a_line_is_its_own(slope: float, start: float, count: int) -> None:
    times = [float(turn) for turn in range(count)]
    found = slope_interval(times, [start + slope * time for time in times])
    assert found == pytest.approx((slope,) * 3, rel=1e-6, abs=1e-4)


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=16))
def test_falling_scores_as_rising_does_turned_round(values: list[float]) -> None:
    assert rise_score([-v for v in values]) == pytest.approx(-rise_score(values))


def test_twelve_figures_in_order_score_as_the_tables_state() -> None:
    # S = 66, its variance 212.67: Kendall's own formula
    assert rise_score(range(12)) == pytest.approx(65 / math.sqrt(212.6667), rel=1e-6)
