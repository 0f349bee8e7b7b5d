from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.estimate.growth import is_memory_growing
from weigh.measure.series import (
    peak_in_samples,
    thin_samples,
    thin_series,
)
from weigh.model.record import PeakMemory, TreeSample
from weigh.units import GIB


def at(time: float, memory: int, cpu_time: float | None = None) -> TreeSample:
    return TreeSample(time, memory, cpu_time, 1)


@st.composite
def runs(
    draw: st.DrawFn, largest: int = 400, shortest_gap: float = 1e-3
) -> list[TreeSample]:
    gaps = st.floats(min_value=shortest_gap, max_value=1e3)
    memory = st.integers(0, 1 << 50)
    time, samples = 0.0, []
    pairs = st.lists(st.tuples(gaps, memory), max_size=largest)
    for gap, size in draw(pairs):
        time += gap
        samples.append(at(time, size, cpu_time=time / 2))
    return samples


limits = st.integers(3, 60)


@given(runs().filter(bool), limits)
def test_a_thinned_series_is_short_and_keeps_the_peak_the_first_and_the_last(
    samples: list[TreeSample], limit: int
) -> None:
    series, kept = thin_series(samples, limit), thin_samples(samples, limit)
    assert len(series.t) == len(series.memory) == len(series.cpu) <= limit
    assert all(before < after for before, after in pairwise(series.t))
    assert max(s.memory for s in kept) == max(s.memory for s in samples)
    assert (kept[0], kept[-1]) == (samples[0], samples[-1])
    assert thin_samples(kept, limit) == kept


@given(runs().filter(bool), st.integers(0, 1 << 50))
def test_the_largest_sample_is_the_peak(samples: list[TreeSample], value: int) -> None:
    peak = PeakMemory(value, value, value, None, None, None, "pages", samples[-1].time)
    kept = peak_in_samples(samples, peak)
    assert max(sample.memory for sample in kept) == value
    assert [sample.time for sample in kept] == [sample.time for sample in samples]


def test_a_peak_of_an_unknown_time_is_put_at_no_sample() -> None:
    peak = PeakMemory(5, 5, 5, None, None, None, "pages", None)
    assert peak_in_samples([at(0, 1), at(1, 9)], peak) == [at(0, 1), at(1, 5)]


def test_samples_of_one_moment_are_thinned_as_others() -> None:
    kept = thin_samples([at(1, size) for size in (1, 9, 3, 2)], 3)
    assert [sample.memory for sample in kept] == [1, 9, 2]


def test_each_local_peak_survives_thinning() -> None:
    samples = [at(i, 9 if i % 100 == 50 else 1) for i in range(10_000)]
    assert thin_series(samples, 500).memory.count(9) == 100


@given(runs(shortest_gap=0.03).filter(lambda samples: len(samples) > 1), limits)
def test_cpus_busy_is_the_steady_rate_however_thinned(
    samples: list[TreeSample], limit: int
) -> None:
    assert thin_series(samples, limit).cpu[1:] == pytest.approx(
        [0.5] * (min(len(samples), len(thin_samples(samples, limit))) - 1)
    )


@pytest.mark.parametrize(
    ("readings", "cpus"),
    [
        # unknown at first, and when a process took its time away
        ({0: 0.0, 1: 2.0, 2: 0.5, 3: 1.5}, (None, 2.0, None, 1.0)),
        # over samples that did not read it
        ({0: None, 1: 0.0, 2: None, 3: None, 4: 1.5}, (None, None, 0.5, 0.5, 0.5)),
        ({0: 0.0, 1: 0.5, 2: None}, (None, 0.5, None)),
        # of two readings in a row it is not their difference
        ({0: 0.0, 0.001: 0.004, 0.1: 0.1}, (None, 1.0, 1.0)),
    ],
)
def test_cpus_busy_are_the_cpu_time_between_readings(
    readings: dict[float, float | None], cpus: tuple[float | None, ...]
) -> None:
    samples = [at(time, 1, cpu_time) for time, cpu_time in readings.items()]
    assert thin_series(samples).cpu == cpus


def run_of(
    shape: Callable[[float], float], samples: int = 200, seconds: float = 60.0
) -> list[TreeSample]:
    return [
        at(seconds * i / (samples - 1), round(GIB * shape(i / (samples - 1))))
        for i in range(samples)
    ]


def is_growing(samples: list[TreeSample]) -> bool | None:
    series = thin_series(samples)
    return is_memory_growing(series.t, series.memory)


def saw_tooth(teeth: int, rise: float) -> Callable[[float], float]:
    return lambda x: 0.2 + 0.4 * (x * teeth % 1) + rise * int(x * teeth) / teeth


GROWING: dict[str, Callable[[float], float]] = {
    "ramp": lambda x: 0.1 + 0.9 * x,
    "slow ramp": lambda x: 0.6 + 0.4 * x,
    "square root": lambda x: x**0.5,
    "ramp, released at exit": lambda x: x if x < 0.97 else 0.05,
    "loads, then leaks": lambda x: 2 if x < 0.1 else 0.5 + x,
    "batches that leak": saw_tooth(10, rise=0.5),
}
FLAT: dict[str, Callable[[float], float]] = {
    "flat": lambda _: 1,
    "zero": lambda _: 0,
    "850 MiB, and a few more at the end": lambda x: min(10 * x, 0.83 + 0.03 * x),
    "falling": lambda x: 1 - 0.5 * x,
    "plateau after a third": lambda x: min(3 * x, 1),
    "plateau after four fifths": lambda x: min(1.25 * x, 1),
    "levels off": lambda x: 1 - 2.7 ** (-6 * x),
    "immaterial ramp": lambda x: 1 + 0.015 * x,
    "flat, released at exit": lambda x: 1 if x < 0.97 else 0.05,
    "loads, then flat": lambda x: 2 if x < 0.1 else 0.5,
}


@pytest.mark.parametrize("shape", [*GROWING, *FLAT])
@pytest.mark.parametrize("samples", [20, 57, 1000])
def test_memory_is_growing_if_it_rises_to_the_end(shape: str, samples: int) -> None:
    run = run_of({**GROWING, **FLAT}[shape], samples)
    assert is_growing(run) is (shape in GROWING)


@given(st.floats(0.02, 0.98), st.integers(20, 300))
def test_one_step_up_is_not_growth_whenever_it_comes(step: float, samples: int) -> None:
    assert is_growing(run_of(lambda x: 0.3 if x < step else 1, samples)) is False


@given(st.integers(2, 40), st.floats(0, 1))
def test_batches_of_equal_size_are_not_growth(teeth: int, phase: float) -> None:
    shape = saw_tooth(teeth, rise=0)
    assert is_growing(run_of(lambda x: shape(x + phase / teeth), 1000)) is False


def test_the_beginning_may_be_sampled_more_often_than_the_end() -> None:
    times = [60 * (i / 99) ** 3 for i in range(100)]
    assert is_growing([at(t, round(t * GIB)) for t in times]) is True


@pytest.mark.parametrize(
    ("samples", "seconds"), [(19, 60.0), (200, 0.9), (200, 29.0), (0, 0.0)]
)
def test_a_run_too_short_to_measure_is_reported(samples: int, seconds: float) -> None:
    run = [at(seconds * i / samples, i * GIB) for i in range(samples)]
    assert is_growing(run) is None
