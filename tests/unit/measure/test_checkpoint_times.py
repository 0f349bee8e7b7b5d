"""When a run writes down what it has measured so far."""

from types import SimpleNamespace
from typing import Any

import pytest

from weigh.measure.watcher import RunCheckpoints


class Watched:
    """A watcher whose time and CPU time are set by hand."""

    def __init__(self) -> None:
        self.now, self.used = 0.0, 3.0
        self.tree = SimpleNamespace(seen=1)
        self.tracker = SimpleNamespace(best=5)
        self.calls: list[float] = []  # what was asked to be called, when

    def elapsed(self) -> float:
        return self.now

    def cpu_time(self) -> float:
        return self.used

    def call_at(self, observer: Any, at: float) -> None:
        self.observer = observer
        self.calls.append(at)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def written(watched: Watched) -> list[float]:
    """When the run was written; it has been at 20 s."""
    times: list[float] = []
    watched.checkpoints = RunCheckpoints(  # type: ignore[attr-defined]
        watched,  # type: ignore[arg-type]
        lambda: times.append(watched.now),
    )
    watched.now = 20.0
    watched.observer()
    return times


@pytest.mark.parametrize(
    ("state", "is_written"),
    [
        ((30.0, 3.0, 1, 5), False),
        ((30.0, 3.1, 1, 5), True),  # it has worked
        ((30.0, 3.0, 2, 5), True),  # it has started a process
        # it has grown: without a clock, work after that of an ended process is not seen
        ((30.0, 3.0, 1, 6), True),
        ((81.0, 3.0, 1, 5), True),  # a minute after the last
    ],
)
def test_a_run_that_does_nothing_is_seldom_written_down(
    watched: Watched,
    written: list[float],
    state: tuple[float, float, int, int],
    *,
    is_written: bool,
) -> None:
    watched.now, watched.used, watched.tree.seen, watched.tracker.best = state
    assert watched.observer() == 10.0
    assert len(written) == 1 + is_written


def test_a_run_that_ends_early_has_lost_half_of_itself_at_most(
    watched: Watched,
) -> None:
    RunCheckpoints(watched, lambda: None)  # type: ignore[arg-type]
    times = [watched.calls[0]]
    while times[-1] < 30:
        watched.now = times[-1]
        times.append(watched.now + watched.observer())
    assert times == pytest.approx([0.2, 1.2, 2.4, 4.8, 9.6, 19.2, 29.2, 39.2])


def test_after_a_signal_to_end_it_is_written_at_once_and_soon_again(
    watched: Watched, written: list[float]
) -> None:
    watched.now = 30.0
    watched.checkpoints.hurry()  # type: ignore[attr-defined]
    assert watched.calls == [0.2, 0.0]
    assert [watched.observer() for _ in range(3)] == pytest.approx([0.2, 0.4, 0.8])
    assert written == [20.0, 30.0, 30.0, 30.0]


def test_what_a_full_disk_refused_is_written_at_the_next_time(watched: Watched) -> None:
    answers: list[OSError | None] = [OSError(28, "full"), None]
    written = []

    def write() -> None:
        if (error := answers.pop(0)) is not None:
            raise error
        written.append(watched.now)

    RunCheckpoints(watched, write)  # type: ignore[arg-type]
    watched.now = 20.0
    with pytest.raises(OSError, match="full"):
        watched.observer()
    watched.now = 24.0
    watched.observer()
    assert written == [24.0]
