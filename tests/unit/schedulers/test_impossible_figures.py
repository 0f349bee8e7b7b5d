"""Figures of accounting that no job can have had: named, and in no average."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.report import AccountedElement, without_impossible
from weigh.units import GIB, HOUR


@pytest.mark.parametrize(
    ("figures", "lost"),
    [
        ({"cpus": 2, "wall_time": 1880.0, "cpu_time": 51.25 * HOUR}, "cpu_time"),
        ({"cpus": 1, "wall_time": 60.0, "cpu_time": 4_294_967_295.0}, "cpu_time"),
        ({"max_rss": 1 << 64}, "max_rss"),
        ({"max_rss": (1 << 63) - 1}, "max_rss"),
    ],
)
def test_a_figure_that_cannot_be_is_named_and_not_kept(
    figures: dict[str, float], lost: str
) -> None:
    found = without_impossible(AccountedElement(element=0, **figures))  # type: ignore[arg-type]

    assert getattr(found, lost) is None
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
