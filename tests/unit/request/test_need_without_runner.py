"""What a task needs by itself: a need below the least request was raised to that."""

import pytest

from weigh.model.plan import TaskKind, TaskNeed
from weigh.request import need_without_runner
from weigh.units import MIB


@pytest.mark.parametrize(
    ("planned", "used", "own"),
    [
        (50, 10, 12),  # the rest of the least request has room for weigh exec
        (50, 45, 50),  # 54 with headroom: no more than is planned
        (50, 0, 50),  # nobody measured it
        (60, 50, 60),
        (200, 10, 200),  # stated, or of a fit: above the least
    ],
)
def test_only_a_need_that_was_raised_is_less_than_planned(
    planned: int, used: int, own: int
) -> None:
    item, measured = TaskNeed(memory=planned * MIB), TaskNeed(memory=used * MIB)
    kind = TaskKind(item=item, used=measured, tasks=1, example="x")
    assert need_without_runner(kind, 0.2) == pytest.approx(own * MIB, abs=1)
