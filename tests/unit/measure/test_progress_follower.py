"""What follows a run, or a task of `weigh exec`: when it does what."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from signal import SIGUSR1
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from weigh.measure.checkpoint_signal import parse_checkpoint_signal
from weigh.measure.progress_follower import ProgressFollower, ProgressReader
from weigh.measure.region.channel import RegionLine
from weigh.model.record import BatchTimes, ProgramEvent, TreeSample
from weigh.progress.notices import LimitWatch, StallWatch


class SomeStream:
    """Output that has been written: *text*, and then nothing."""

    def __init__(self, text: str = "") -> None:
        self.text = text.encode()

    def look(self, feed: Callable[[bytes], None]) -> bool:
        text, self.text = self.text, b""
        if text:
            feed(text)
        return bool(text)

    def close(self) -> None:
        pass


def follow(
    seconds: float,
    cpu_time: Callable[[float], float | None] = float,
    *,
    signal: str | None = None,
    handlers: int = 1,
) -> tuple[list[float], list[tuple[float, str]]]:
    """Follow a run; return when it was looked at, and what was said when."""
    run: Any = SimpleNamespace(now=0.0, samples=[], gpu_idle=lambda: None)
    run.elapsed = lambda: run.now
    looks: list[float] = []
    said: list[tuple[float, str]] = []

    def say(text: str) -> None:
        said.append((run.now, text))

    follower = ProgressFollower(
        ProgressReader([SomeStream()]),
        StallWatch(60.0, gpus=0),
        notify=say,
        warn=say,
        send=lambda number: handlers if number == SIGUSR1 else 0,
    )
    if signal is not None:
        follower.set_limit(LimitWatch(100.0, str), parse_checkpoint_signal(signal))
    while run.now < seconds:
        run.samples.append(TreeSample(run.now, 0, cpu_time(run.now), 1))
        looks.append(run.now)
        run.now += follower.look(run)
    return looks, said


@pytest.mark.parametrize(
    ("signal", "handlers", "at", "words"),
    [
        ("USR1@29500ms", 1, 70.5, "sent USR1, 29.5 s before the time limit"),
        ("10@29500ms", 0, 70.5, "USR1 not sent: no process has a handler for it"),
        # it would come before the first look
        ("USR1@1h", 1, 0.0, "sent USR1, 1 m 40 s before the time limit"),
    ],
)
def test_the_checkpoint_signal_is_sent_once_and_never_late(
    signal: str, handlers: int, at: float, words: str
) -> None:
    looks, said = follow(100, signal=signal, handlers=handlers)
    assert at in looks
    assert said == [(at, words)]


def test_a_long_run_is_looked_at_less_often() -> None:
    looks, _ = follow(1000)
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
        # not each look has a figure
        (lambda now: now if now % 2 else None, False),
    ],
)
def test_a_run_hangs_that_uses_no_cpu_time_whatever_has_ended_before(
    cpu_time: Callable[[float], float | None], *, hangs: bool
) -> None:
    assert bool(follow(300, cpu_time)[1]) == hangs


def event(name: str, value: Any) -> RegionLine:
    return RegionLine("1", events=(ProgramEvent(name, 0.0, value),))


def batches(count: int, process: str = "1") -> RegionLine:
    return RegionLine(process, loops={"loop": BatchTimes(None, count, None, total=60)})


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([event("total_steps", 90), event("step", 5)], (5, 90, "weigh.event 'step'")),
        # another name, and the total of something else
        (
            [event("max_epochs", 3), event("Global_Step", 5)],
            (5, None, "weigh.event 'global_step'"),
        ),
        ([event("n_epoch", True), event("epoch", "5"), event("loss", 5)], None),
        # a loop that weigh times counts itself; of several processes the first
        ([batches(4), event("step", 9)], (4, 60, "weigh.batches")),
        ([batches(4), batches(7, "2"), batches(5)], (5, 60, "weigh.batches")),
    ],
)
def test_events_of_the_program_count(tmp_path: Path, lines: Any, found: Any) -> None:
    file = tmp_path / "events"
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    file.write_bytes(b"torn {\n" + text[:-9])
    reader = ProgressReader([], str(file))
    reader.look(1.0)
    file.write_bytes(b"torn {\n" + text)  # also the last line has come
    reader.look(2.0)
    forecast = reader.forecast(2.0)
    reader.close()
    seen = forecast and (forecast.done, forecast.total, forecast.source)
    assert seen == found


@pytest.mark.parametrize(
    ("printed", "reported", "source"),
    [(20, 90, "weigh.event 'step'"), (90, 20, "step lines")],
)
def test_of_what_is_printed_and_reported_the_later_end_counts(
    tmp_path: Path, printed: int, reported: int, source: str
) -> None:
    file, stream = tmp_path / "events", SomeStream()
    with file.open("wb", buffering=0) as events:
        reader = ProgressReader([stream], str(file))
        for step in range(10):
            pair = event("total_steps", reported), event("step", step)
            events.write(b"".join(msgspec.json.encode(one) + b"\n" for one in pair))
            stream.text = f"step {step} of {printed}\n".encode()
            reader.look(float(step))
    forecast = reader.forecast(9.0)
    reader.close()
    assert forecast is not None
    assert forecast.source == source
    assert forecast.remaining == pytest.approx(81, rel=0.1)


def test_it_is_known_whether_the_output_ends_within_a_line() -> None:
    reader = ProgressReader([stream := SomeStream()])
    seen = [reader.is_in_a_line]
    for stream.text in (b"one line\n", b"half a"):
        reader.look(1.0)
        seen.append(reader.is_in_a_line)
    assert seen == [False, False, True]
