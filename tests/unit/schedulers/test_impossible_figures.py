"""Figures of accounting that no job can have had: named, and in no average."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.report import AccountedElement, without_impossible
from weigh.units import GIB, HOUR

IMPOSSIBLE: list[dict[str, Any]] = [
    {"cpus": 2, "wall_time": 1880.0, "cpu_time": 51.25 * HOUR},
    {"cpus": 1, "wall_time": 60.0, "cpu_time": 4_294_967_295.0},
    {"max_rss": 1 << 64},
    {"max_rss": (1 << 63) - 1},
]


@pytest.mark.parametrize("figures", IMPOSSIBLE)
def test_a_figure_that_cannot_be_is_named_and_not_kept(figures: dict[str, Any]) -> None:
    found = without_impossible(AccountedElement(element=0, **figures))
    assert (found.cpu_time, found.max_rss) == (None, None)
    (doubt,) = found.doubts
    assert doubt.endswith("not believed")


@given(
    cpus=st.integers(1, 512),
    wall_time=st.floats(0.1, 30 * 24 * HOUR),
    share=st.floats(0, 1),
    max_rss=st.integers(0, 24 * 1024 * GIB),
)
def test_a_figure_that_can_be_is_kept(
    cpus: int, wall_time: float, share: float, max_rss: int
) -> None:
    job = AccountedElement(
        element=0,
        cpus=cpus,
        wall_time=wall_time,
        cpu_time=cpus * wall_time * share,
        max_rss=max_rss,
    )
    assert without_impossible(job) is job
