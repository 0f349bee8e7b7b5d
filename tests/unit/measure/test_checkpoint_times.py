"""When a run writes down what it has measured so far."""

from types import SimpleNamespace

import pytest

from weigh.measure.command import _MeasuredCommand


@pytest.mark.parametrize(
    ("now", "used", "hurry", "is_written"),
    [
        (5.0, 3.0, None, True),  # a young run: the later half of it is at stake
        (30.0, 3.0, None, False),
        (30.0, 3.1, None, True),  # it has worked
        (30.0, None, None, True),  # whether it has is not known
        (81.0, 3.0, None, True),  # a minute after the last
        (30.0, 3.0, 0.2, True),  # a signal to end came
    ],
)
def test_a_run_that_does_nothing_is_seldom_written_down(
    now: float, used: float | None, hurry: float | None, *, is_written: bool
) -> None:
    clock = SimpleNamespace(read=lambda: used)
    run = SimpleNamespace(_clock=clock, _checkpointed=(20.0, 3.0), _hurry=hurry)
    assert _MeasuredCommand._is_unchanged(run, now) is not is_written  # type: ignore[arg-type]
