from collections.abc import Callable

import pytest

from weigh.hooks import training
from weigh.hooks.training import TrainingPhases
from weigh.model.record import BatchTimes, ProgramRegions

Measured = Callable[[], ProgramRegions]


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(training, "clock", clock)
    return clock


def only_loop(regions: Measured) -> BatchTimes:
    (loop,) = regions().batches
    return loop


def test_what_is_paused_over_is_in_no_step(regions: Measured, clock: Clock) -> None:
    steps = TrainingPhases()
    steps.begin_steps(size=8, total=2)
    clock.now += 1
    steps.step()
    clock.now += 60  # evaluating
    steps.pause()
    clock.now += 3
    steps.step()
    steps.end_steps()
    loop = only_loop(regions)
    assert (loop.count, loop.time_min, loop.time_max) == (2, 1, 3)
    assert (loop.size, loop.total) == (8, 2)


def test_a_long_loop_is_reported_before_it_ends(
    regions: Measured, clock: Clock
) -> None:
    steps = TrainingPhases()
    steps.begin_steps(size=None, total=None)
    clock.now += 5
    steps.step()
    assert only_loop(regions).count == 1


def test_samples_are_unknown_once_some_are(regions: Measured) -> None:
    steps = TrainingPhases()
    steps.begin_steps(size=4, total=None)
    steps.step(4)
    steps.step(None)
    steps.end_steps()
    assert only_loop(regions).samples is None


def test_a_loop_begun_anew_ends_the_one_before(regions: Measured) -> None:
    steps = TrainingPhases()
    for _ in range(2):
        steps.begin_steps(size=4, total=1)
        steps.step(3)
    steps.end_steps()
    loop = only_loop(regions)
    assert (loop.count, loop.samples, loop.total) == (2, 6, 2)


def test_ending_a_phase_ends_what_is_open_within(regions: Measured) -> None:
    phases = TrainingPhases()
    phases.begin("train")
    phases.begin("evaluate")
    phases.end("train")
    phases.begin("test")
    phases.end_all()
    seen = [(phase.name, phase.depth, phase.calls) for phase in regions().phases]
    assert seen == [("train", 0, 1), ("evaluate", 1, 1), ("test", 0, 1)]


def test_ending_what_never_began_changes_nothing(regions: Measured) -> None:
    phases = TrainingPhases()
    phases.begin("train")
    phases.end("evaluate")
    phases.step()
    phases.pause()
    assert phases.is_open("train")
    assert regions().batches == ()
