"""The report on regions."""

import pytest
from any_values import PLAIN, values_of
from hypothesis import given
from hypothesis import strategies as st
from terminal_columns import columns_of

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import BatchTimes, ProgramPhase, ProgramRegions
from weigh.render.region_lines import render_gpu, render_regions
from weigh.units import GIB

words = st.just("a") | st.text(min_size=1, max_size=90)
ANY = PLAIN | {int: st.integers(0, 10**9), float: st.floats(0, 1e7), str: words}
cards = values_of(GpuUsage, ANY, index=st.none() | st.integers(0, 255))


@given(values_of(ProgramRegions, ANY, gpus=st.tuples(cards)), words)
def test_no_report_is_wider_than_80_columns_or_steers_a_terminal(
    measured: ProgramRegions, title: str
) -> None:
    text = render_regions(measured, title)
    assert all(columns_of(line) <= 80 for line in text.splitlines())
    assert text.replace("\n", "").isprintable()


def test_nothing_measured_is_nothing_reported() -> None:
    assert render_regions(ProgramRegions(peak_memory=3, wall_time=1.0)) == ""


BOUND = ProgramPhase("a", 0, 1, 0, 1, 1, peak_memory=5 << 20, source="upper bound: .")
GUIDE = (
    "17 of 18|50 each|827 samples|8.34 s, mean 491 ms|10.1 ms per sample|"
    "quickest 200 ms|median 450 ms, slowest 800 ms"
)
LOOP = BatchTimes(50, 17, 827, 0.2, 0.4906, 0.45, 0.8, 0.0101, total=18)


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        (ProgramRegions(phases=(BOUND,)), "<5.00 MiB|upper bound"),
        (ProgramRegions(phases=(ProgramPhase("a", 0, 0, 0, 9, 9),)), "not ended"),
        # every figure of the guide
        (ProgramRegions(batches=(LOOP,)), GUIDE),
        # a loop over single samples does not claim the size of its batches
        (
            ProgramRegions(batches=(BatchTimes(64, 200, 200),)),
            "200, of 1 each, not 64, 200 samples",
        ),
    ],
)
def test_a_report_explains_bounds_loops_and_what_never_ended(
    regions: ProgramRegions, words: str
) -> None:
    text = render_regions(regions)
    assert [word for word in words.split("|") if word not in text] == []


def test_a_gpu_that_was_not_put_to_use_takes_two_lines() -> None:
    idle = GpuMemory("b", 7 << 20, 7 << 20, 7 << 20)
    phase = ProgramPhase("train", 0, 1, 0, 9, 9, gpus=(idle,))
    card = GpuUsage("b", "V100", 32 * GIB, 7 << 20, 7 << 20)
    text = render_regions(ProgramRegions(phases=(phase,), gpus=(card,)))
    assert "not used" in text
    assert "7.00 MiB" not in text


def test_the_gpu_memory_of_a_phase_names_its_rank() -> None:
    held = GpuMemory("b", 0, 7 << 20, 7 << 20)
    both = [ProgramPhase("train", 0, 1, 0, 9, 9, gpus=(held,), rank=n) for n in (0, 1)]
    text = render_regions(ProgramRegions(phases=tuple(both)))
    assert (text.count("0: train"), text.count("1: train")) == (2, 2)


@pytest.mark.parametrize(
    ("used", "total", "words"),
    [
        (8 * GIB, 32 * GIB, "8.00 GiB of 32.0 GiB  25%"),
        (None, 32 * GIB, "memory unknown"),
        (0, 0, "0 B of 0 B  ?"),
    ],
)
def test_a_gpus_line_states_used_total_and_share(
    used: int | None, total: int, words: str
) -> None:
    assert render_gpu(0, "V100", used, total).endswith(words)
