"""Run a few tasks for a while, each under ``weigh run``; stop them; judge each one.

Each is a process of its own, so its record equals that of ``weigh run``.
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, TypeAlias

import msgspec

from weigh.estimate.growth import growth_of
from weigh.estimate.readings import gpu_memory
from weigh.flow.run.run_measured import MeasuredRun, error_in, last_line
from weigh.model.check import Trial
from weigh.model.mask import MASK
from weigh.model.record import Measurement, Monitor, Record, Series
from weigh.need import has_waited
from weigh.outcome import signal_name
from weigh.probe.proc import ProcTree
from weigh.runner.divergence import Divergence, DivergenceWatch
from weigh.runner.memory_guard import Guard
from weigh.runner.memory_limits import MemoryGauge, Room
from weigh.runner.resources import gpu_settings
from weigh.runner.retry import Ending, end
from weigh.runner.shell import Shell
from weigh.runner.slots import FreeSlots, Layout, Slot, thread_settings
from weigh.store.lines import read_tail
from weigh.sweep import variables
from weigh.sweep.variables import in_line
from weigh.units import MIB, Bytes, Seconds, format_duration, format_size

Stop: TypeAlias = Literal["time", "output", "memory", "signal"]

_LAST_PATIENCE = 2.0  # seconds for `weigh run` to write a record when all is dead


class TaskToTry(msgspec.Struct, frozen=True):
    """A task, its unchanged line, and its parameters if a table has them."""

    seq: int
    line: bytes
    texts: dict[str, str] = {}


class Setup(msgspec.Struct, frozen=True):
    """Where tasks run: slots, environment, folders for their output and records."""

    layout: Layout
    env: Mapping[str, str]
    output: str
    records: str
    label: str
    memory: Bytes | None = None


class Ended(msgspec.Struct, frozen=True):
    """A task that ended, why weigh stopped it if it did, and its record.

    ``was_killed``: it ignored TERM.
    """

    seq: int
    record: Record | None
    stop: Stop | None
    log: str
    was_killed: bool


class Running:
    """A running task; ``now`` and ``peak`` are its resident bytes as sampled."""

    def __init__(self, task: TaskToTry, setup: Setup, slot: Slot, now: Seconds) -> None:
        """Start it.

        Raises:
            WeighError: its output cannot be written, or no process can be made.
        """
        self.task, self.slot, self.began = task, slot, now
        self.stop: Stop | None = None
        self.now = self.peak = 0
        self.log = os.path.join(setup.output, f"task-{task.seq}.log")
        self._terminated_at = now
        self._was_killed = False
        self._run = self._start(setup)
        self._child = self._run.process
        is_linux = sys.platform == "linux"
        self._tree = ProcTree(self._child.pid) if is_linux else None

    def has_ended(self) -> bool:
        """Return whether its process has ended."""
        return self._child.poll() is not None

    def look(self) -> None:
        """Sample its memory."""
        if self._tree is not None:
            self.now = sum(reading.resident for reading in self._tree.read())
            self.peak = max(self.peak, self.now)

    def output_size(self) -> Bytes:
        """Return the size of its output in bytes."""
        with suppress(OSError):
            return os.stat(self.log).st_size
        return 0

    def terminate(self, why: Stop, now: Seconds) -> None:
        """Send TERM, which ``weigh run`` passes on."""
        self.stop, self._terminated_at = why, now
        self._child.terminate()

    def insist(self, now: Seconds, grace: Seconds) -> None:
        """Kill what has not ended *grace* seconds after TERM."""
        if now < self._terminated_at + grace:
            return
        self._was_killed = True
        self._kill_tree()
        if now > self._terminated_at + grace + _LAST_PATIENCE:
            self._child.kill()

    def end_at_once(self) -> None:
        """Kill everything, and wait for it."""
        if self._child.poll() is None:
            self._kill_tree()
            self._child.kill()
            self._child.wait()

    def ended(self) -> Ended:
        """Return the result of a task that has ended, and release its resources."""
        if self._tree is not None:
            self._tree.close()
        record = self._run.record()
        return Ended(self.task.seq, record, self.stop, self.log, self._was_killed)

    def _kill_tree(self) -> None:
        if self._tree is None:
            return
        self._tree.read()
        for pid in self._tree.pids():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, setup: Setup) -> MeasuredRun:
        shell = Shell(os.environb)
        program, words = shell.shell_words(in_line(self.task.line))
        options = [f"--label={setup.label}"]
        options += [f"--param={name}={text}" for name, text in self.task.texts.items()]
        return MeasuredRun(
            [program, *words[1:]],
            os.path.join(setup.records, f"{self.task.seq}.json"),
            options=options,
            log=self.log,
            env=self._environment(setup),
        )

    def _environment(self, setup: Setup) -> dict[str, str]:
        """Return the environment that ``weigh exec`` sets, with unbuffered Python."""
        number = str(self.slot.number)
        env = {
            "PYTHONUNBUFFERED": "1",
            **setup.env,
            **thread_settings(setup.env, setup.layout.threads),
            **variables.settings(setup.memory, setup.layout.threads),
            "PARALLEL_SEQ": str(self.task.seq),
            "PARALLEL_JOBSLOT": number,
            "WEIGH_SLOT": number,
            "WEIGH_DIR": setup.records,
        }
        return env | gpu_settings(self.slot.gpu, env)


_TICK = 0.05
_SETTLING = 1.0  # seconds a task has to show its size before the next begins
_MARGIN = 0.05  # of the memory, to be left free
_MORE = 1.2  # a task stopped while it grew needs more than it had


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop a task: after ``seconds``, or once it has written so much."""

    seconds: Seconds = 30.0
    grace: Seconds = 5.0
    most_output: Bytes = 256 * MIB


class Tried(msgspec.Struct, frozen=True):
    """The results of the started tasks, in the order in which they ended.

    ``most_at_once`` is how many ran concurrently; ``alone`` the tasks that ran alone
    at the end, due to lack of memory; ``signal`` the signal that interrupted weigh.
    """

    ended: tuple[Ended, ...]
    most_at_once: int
    alone: tuple[int, ...]
    signal: int | None


def try_side_by_side(
    tasks: Sequence[TaskToTry], setup: Setup, rules: Rules, say: Callable[[str], None]
) -> Tried:
    """Run *tasks* in order, as many at once as slots and memory allow.

    If memory runs short, the youngest is stopped and runs alone later. No process is
    left running in any case.

    Raises:
        WeighError: a task's output cannot be written.
    """
    with _noted_signals() as signals:
        trial = _Trial(tasks, setup, rules, say)
        trial.run(signals)
    return Tried(
        ended=tuple(trial.ended),
        most_at_once=trial.most_at_once,
        alone=tuple(trial.alone),
        signal=signals[0] if signals else None,
    )


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Collect INT, TERM and HUP in a list."""
    signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        signals.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield signals
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _Trial:
    """The tasks that wait, run or have ended."""

    def __init__(
        self,
        tasks: Sequence[TaskToTry],
        setup: Setup,
        rules: Rules,
        say: Callable[[str], None],
    ) -> None:
        self.ended: list[Ended] = []
        self.alone: list[int] = []
        self.most_at_once = 0
        self._waiting = deque(tasks)
        self._running: list[Running] = []
        self._free = FreeSlots(setup.layout.slots)
        self._setup = setup
        self._rules = rules
        self._say = say
        self._gauge = MemoryGauge()
        self._guard = Guard()
        self._need: Bytes = 0
        self._memory_due: Seconds = 0.0

    def run(self, signals: Sequence[int]) -> None:
        """Run until all have ended, or until *signals* has one."""
        try:
            while self._waiting or self._running:
                now = time.monotonic()
                if signals:
                    self._waiting.clear()
                    self._stop_all("signal", now)
                self._check_all(now)
                if now >= self._memory_due:
                    self._look_at_memory(now)
                self._start_more(now)
                time.sleep(_TICK)
        finally:
            for one in self._running:
                one.end_at_once()

    def _start_more(self, now: Seconds) -> None:
        while self._waiting and len(self._free) and self._has_room(now):
            task = self._waiting.popleft()
            one = Running(task, self._setup, self._free.take(), now)
            self._running.append(one)
            self.most_at_once = max(self.most_at_once, len(self._running))

    def _has_room(self, now: Seconds) -> bool:
        """Return whether another task fits, with the running ones at their peak."""
        if not self._running:
            return True
        is_alone = self._waiting[0].seq in self.alone
        if is_alone or any(one.task.seq in self.alone for one in self._running):
            return False
        settling = min(_SETTLING, self._rules.seconds / 10)
        if now < max(one.began for one in self._running) + settling:
            return False
        room = self._room()
        if room is None:
            return True
        need = max(self._need, *(one.peak for one in self._running))
        growth = sum(max(0, need - one.now) for one in self._running)
        return room.free - _MARGIN * room.limit >= growth + need

    def _check_all(self, now: Seconds) -> None:
        for one in list(self._running):
            if one.has_ended():
                self._collect(one)
            elif one.stop is not None:
                one.insist(now, self._rules.grace)
            elif now >= one.began + self._rules.seconds:
                one.terminate("time", now)
            elif one.output_size() > self._rules.most_output:
                one.terminate("output", now)

    def _collect(self, one: Running) -> None:
        self._running.remove(one)
        self._free.give_back(one.slot)
        self._need = max(self._need, one.peak)
        ended = one.ended()
        if ended.stop == "memory" and one.task.seq not in self.alone:
            self.alone.append(one.task.seq)
            self._waiting.append(one.task)
        else:
            self.ended.append(ended)

    def _look_at_memory(self, now: Seconds) -> None:
        """Stop the youngest task if memory is about to run out."""
        for one in self._running:
            one.look()
        room = self._room()
        if room is None:
            self._memory_due = float("inf")
            return
        self._memory_due = now + self._guard.pause(room)
        going = [one for one in self._running if one.stop is None]
        is_last = len(self._running) == 1
        is_short = self._guard.is_short(now, room)
        if is_last:
            is_short = self._guard.is_desperate(room)
        if not is_short or not going or len(going) < len(self._running):
            return
        youngest = max(going, key=lambda one: one.began)
        self._need = max(self._need, round(youngest.peak * _MORE))
        if is_last and youngest.task.seq not in self.alone:
            self.alone.append(youngest.task.seq)  # no second try
        youngest.terminate("memory", now)
        self._say(
            f"memory is running out ({format_size(max(0, room.free))} left): task "
            f"{youngest.task.seq} is stopped"
            + ("" if is_last else ", to run alone later")
        )

    def _room(self) -> Room | None:
        return self._gauge.tightest(sum(one.now for one in self._running))

    def _stop_all(self, why: Stop, now: Seconds) -> None:
        for one in self._running:
            if one.stop is None:
                one.terminate(why, now)


_AT_ONCE: Seconds = 1.0  # a crash before that is one of the start
_PIECE = 4 * MIB
_TAIL = 16384  # bytes of output looked through for words of memory trouble
_LONGEST_EVIDENCE = 200


class _Verdict(msgspec.Struct, frozen=True):
    state: str
    words: str
    is_wrong: bool = False


_STOPPED: dict[Stop | None, _Verdict] = {
    "signal": _Verdict("INTERRUPTED", "stopped with weigh"),
    "memory": _Verdict("OUT_OF_MEMORY", "memory ran out", is_wrong=True),
}


def judge_trial(
    task: TaskToTry,
    ended: Ended | None,
    *,
    parameters: Mapping[str, int | float | str],
    allow_nan: bool,
) -> Trial:
    """Make the verdict on one task; *ended* is None for one that was not begun."""
    trial = Trial(
        task=task.seq,
        command=_text(MASK.line(os.fsdecode(task.line))),
        parameters={_text(name): _plain(value) for name, value in parameters.items()},
        state="PENDING",
        verdict="not tried",
    )
    if ended is None:
        return trial
    lost = None if allow_nan else _divergence(ended.log)
    verdict = _verdict(ended, lost)
    line = error_in if verdict.is_wrong else last_line
    evidence = lost.text if lost is not None else line(ended.log)
    if verdict.is_wrong and not evidence and _is_full(ended.log):
        evidence = "no output: the disk of .weigh is full"
    return msgspec.structs.replace(
        trial if ended.record is None else _measured(trial, ended.record, ended),
        state=verdict.state,
        verdict=verdict.words,
        is_wrong=verdict.is_wrong,
        output=os.path.relpath(ended.log),
        output_size=_size(ended.log),
        evidence=_text(evidence[:_LONGEST_EVIDENCE]),
    )


def _is_full(path: str) -> bool:
    """Return whether nothing more can be written next to *path*."""
    with suppress(OSError, AttributeError):  # there is no statvfs on Windows
        return os.statvfs(os.path.dirname(path)).f_bavail == 0
    return False


def _measured(trial: Trial, record: Record, ended: Ended) -> Trial:
    """Fill in what it used."""
    usage = record.usage
    if usage is None:
        return trial
    peak = usage.peak_memory
    return msgspec.structs.replace(
        trial,
        exit_code=None if ended.stop else record.exit_code,
        signal=None if ended.stop else record.signal,
        wall_time=usage.wall_time,
        cpu_time=usage.cpu_time,
        cpus_used=usage.cpus_used,
        cpus_wanted=usage.cpu_wait.wanted
        if usage.cpu_wait and has_waited(usage)
        else None,
        peak_memory=None if peak is None else peak.value,
        gpu_memory=gpu_memory(usage),
        growth_rate=_growth_rate(record),
    )


def _growth_rate(record: Record) -> float | None:
    """Return the bytes a second by which memory still rose; None where it did not."""
    if record.series is None:
        return None
    growth = growth_of(record.series.t, record.series.memory)
    if growth is None or not growth.growing or growth.trend is None:
        return None
    return growth.trend.rate


def _verdict(ended: Ended, lost: Divergence | None) -> _Verdict:
    """Judge: what ended it first, then what it printed."""
    record = ended.record
    if ended.stop in _STOPPED:
        return _STOPPED[ended.stop]
    if record is None or record.usage is None:
        return _Verdict("UNKNOWN", "not measured", is_wrong=True)
    if ended.stop == "output":
        words = f"wrote {format_size(_size(ended.log))}"
        return _Verdict("CANCELLED", words, is_wrong=True)
    time = record.usage.wall_time
    ending = None if ended.stop else _ending(record, ended.log)
    if ending is not None and not ending.succeeded:
        return _Verdict(ending.state, _failure(ending, time), is_wrong=True)
    state = "RUNNING" if ended.stop else "COMPLETED"
    if lost is not None:
        return _Verdict(state, f"{lost.word} in line {lost.line}", is_wrong=True)
    fine = "still running, fine" if ended.stop else f"fine, {format_duration(time)}"
    return _Verdict(state, fine)


def _failure(ending: Ending, time: Seconds) -> str:
    how = f"exit {ending.exit_code}"
    if ending.state == "OUT_OF_MEMORY":
        how = "out of memory"
    elif ending.signal is not None:
        how = signal_name(ending.signal)
    when = "at once" if time < _AT_ONCE else f"after {format_duration(time)}"
    return f"{how} {when}"


def _ending(record: Record, log: str) -> Ending:
    """Judge a run by its last words too, as ``weigh exec`` does."""
    assert record.usage is not None  # noqa: S101 - asked before
    measured = Measurement(
        started=0.0,
        ended=0.0,
        exit_code=record.exit_code,
        signal=record.signal,
        usage=record.usage,
        series=Series(),
        monitor=Monitor(),
        oom_kills=1 if record.state == "OUT_OF_MEMORY" else None,
    )
    return end(measured, tail=read_tail(log, _TAIL))


def _divergence(log: str) -> Divergence | None:
    """Find the first lost number or exploded loss in a file of any size."""
    watch = DivergenceWatch()
    try:
        with open(log, "rb") as file:
            while piece := file.read(_PIECE):
                lost = watch.feed(piece)
                if lost is not None:
                    return lost
    except OSError:
        return None
    return watch.end()


def _size(log: str) -> int:
    try:
        return os.stat(log).st_size
    except OSError:
        return 0


def _text(text: str) -> str:
    """Put a mark in the place of bytes that are no UTF-8: JSON cannot hold them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plain(value: float | str) -> int | float | str:
    return _text(value) if isinstance(value, str) else value
