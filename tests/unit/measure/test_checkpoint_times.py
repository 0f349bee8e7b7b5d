"""When a run writes down what it has measured so far."""

from types import SimpleNamespace

import pytest

from weigh.measure.command import _MeasuredCommand


@pytest.mark.parametrize(
    ("now", "used", "is_written"),
    [
        (5.0, 3.0, True),  # a young run: the later half of it is at stake
        (30.0, 3.0, False),
        (30.0, 3.1, True),  # it has worked
        (30.0, None, True),  # whether it has is not known
        (81.0, 3.0, True),  # a minute after the last
    ],
)
def test_a_run_that_does_nothing_is_seldom_written_down(
    now: float, used: float | None, *, is_written: bool
) -> None:
    clock = SimpleNamespace(read=lambda: used)
    run = SimpleNamespace(_clock=clock, _checkpointed=(20.0, 3.0), _hurry=None)
    assert _MeasuredCommand._is_unchanged(run, now) is not is_written  # type: ignore[arg-type]


def test_after_a_signal_to_end_every_checkpoint_is_written() -> None:
    clock = SimpleNamespace(read=lambda: 3.0)
    run = SimpleNamespace(_clock=clock, _checkpointed=(20.0, 3.0), _hurry=0.2)
    assert not _MeasuredCommand._is_unchanged(run, 30.0)  # type: ignore[arg-type]
