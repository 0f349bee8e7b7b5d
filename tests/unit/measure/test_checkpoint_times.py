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
        self.written: list[float] = []  # when the run was written

    def elapsed(self) -> float:
        return self.now

    def cpu_time(self) -> float:
        return self.used

    def call_at(self, observer: Any, at: float) -> None:
        self.observer = observer
        self.calls.append(at)

    def write(self) -> None:
        self.written.append(self.now)


@pytest.fixture
def watched() -> Any:
    """Return a watcher of a run that was written at 20 s."""
    watched: Any = Watched()
    watched.checkpoints = RunCheckpoints(watched, watched.write)
    watched.now = 20.0
    watched.observer()
    return watched


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
    watched: Any, state: tuple[float, float, int, int], *, is_written: bool
) -> None:
    watched.now, watched.used, watched.tree.seen, watched.tracker.best = state
    assert watched.observer() == 10.0
    assert len(watched.written) == 1 + is_written


def test_a_run_that_ends_early_has_lost_half_of_itself_at_most() -> None:
    watched: Any = Watched()
    RunCheckpoints(watched, watched.write)
    times = watched.calls
    while times[-1] < 30:
        watched.now = times[-1]
        times.append(watched.now + watched.observer())
    assert times == pytest.approx([0.2, 1.2, 2.4, 4.8, 9.6, 19.2, 29.2, 39.2])


def test_after_a_signal_to_end_it_is_written_at_once_and_soon_again(
    watched: Any,
) -> None:
    watched.now = 30.0
    watched.checkpoints.hurry()
    assert watched.calls == [0.2, 0.0]
    assert [watched.observer() for _ in range(3)] == pytest.approx([0.2, 0.4, 0.8])
    assert watched.written == [20.0, 30.0, 30.0, 30.0]


def test_what_a_full_disk_refused_is_written_at_the_next_time() -> None:
    watched: Any = Watched()
    refusals = [OSError(28, "full")]

    def write() -> None:
        if refusals:
            raise refusals.pop()
        watched.write()

    RunCheckpoints(watched, write)
    watched.now = 20.0
    with pytest.raises(OSError, match="full"):
        watched.observer()
    watched.now = 24.0
    watched.observer()
    assert watched.written == [24.0]
