"""What follows a run, or a task of `weigh exec`: when it does what."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from weigh.measure.checkpoint_signal import parse_checkpoint_signal
from weigh.measure.progress_follower import ProgressFollower, ProgressReader
from weigh.model.record import TreeSample
from weigh.progress.notices import LimitWatch, StallWatch


class SilentStream:
    def look(self, _feed: Any) -> bool:
        return False

    def close(self) -> None:
        pass


class FollowedRun:
    """A follower with a stand-in for its run; ``said`` is what it prints, and when."""

    def __init__(self, *, handlers: int = 1, limit: str | None = None) -> None:
        self.now = 0.0
        self.said: list[tuple[float, str]] = []
        self.samples: list[TreeSample] = []
        self.signals: list[int] = []

        def say(text: str) -> None:
            self.said.append((self.now, text))

        def send(number: int) -> int:
            self.signals.append(number)
            return handlers

        self._follower = ProgressFollower(
            ProgressReader([SilentStream()]),
            StallWatch(60.0),
            notify=say,
            warn=say,
            send=send,
        )
        if limit is not None:
            limits = LimitWatch(100.0, str)
            self._follower.set_limit(limits, parse_checkpoint_signal(limit))

    def follow(self, seconds: float, cpu_time: Any = float) -> list[float]:
        """Look when it says so, for that long; return when it looked."""
        looks = []
        run: Any = SimpleNamespace(
            elapsed=lambda: self.now, gpu_idle=lambda: None, samples=self.samples
        )
        while self.now < seconds:
            self.samples.append(TreeSample(self.now, 0, cpu_time(self.now), 1))
            looks.append(self.now)
            self.now += self._follower.look(run)
        return looks


@pytest.mark.parametrize(
    ("handlers", "words"),
    [
        (1, "sent USR1, 29.5 s before the time limit"),
        (0, "USR1 not sent: no process has a handler for it"),
    ],
)
def test_the_checkpoint_signal_is_sent_once_and_never_late(
    handlers: int, words: str
) -> None:
    run = FollowedRun(handlers=handlers, limit="10@29500ms")
    assert 70.5 in run.follow(100)
    assert (run.signals, run.said) == ([10], [(70.5, words)])


def test_a_signal_that_would_come_before_the_first_look_is_sent_then() -> None:
    run = FollowedRun(limit="USR1@1h")
    run.follow(50)
    assert run.said == [(0.0, "sent USR1, 1 m 40 s before the time limit")]


def test_a_long_run_is_looked_at_less_often() -> None:
    looks = FollowedRun().follow(1000)
    pauses = [(now, round(later - now, 6)) for now, later in pairwise(looks)]
    assert {pause for now, pause in pauses if now <= 50} == {1}
    assert {pause for now, pause in pauses if now >= 250} == {5}
    assert all(1 <= pause <= 5 for _, pause in pauses)


@pytest.mark.parametrize(
    ("cpu_time", "hangs"),
    [
        (lambda _: 7.0, True),
        # of processes that are gone the live ones' sum has nothing
        (lambda now: 1000.0 if now < 60 else now % 50, False),
        # no figure in this look
        (lambda now: now if now % 2 else None, False),
    ],
)
def test_a_run_hangs_that_uses_no_cpu_time_whatever_has_ended_before(
    cpu_time: Any, *, hangs: bool
) -> None:
    run = FollowedRun()
    run.follow(300, cpu_time)
    assert bool(run.said) == hangs
