"""The event file to which programs under ``weigh run`` write their regions.

weigh run creates an empty file and sets its path in WEIGH_CHANNEL. Every process of the
job appends whole lines to it, and weigh run reads it after the job. Figures are totals
so far: of several lines about one thing the last one counts, so a killed process loses
little, and a torn line affects no other. Times are on :data:`clock`, which on Linux is
the same for all processes of a machine.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from weigh.measure.ranks import place_of
from weigh.measure.region.gpu_meter import joined_gpu_memory, most
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    BatchTimes,
    ProgramEvent,
    ProgramPhase,
    ProgramRegions,
    RecordedRank,
)
from weigh.store.lines import UNREADABLE
from weigh.units import MIB, Bytes, Seconds

VARIABLE = "WEIGH_CHANNEL"
clock = time.perf_counter if sys.platform == "win32" else time.monotonic

# bounds of what a foreign or damaged file makes weigh run read
_LONGEST_LINE = MIB  # bytes; a longer line is read in pieces, which do not parse
_MOST_READ = 256 * MIB  # bytes of the file
_MOST_EVENTS = 100_000  # events of all processes
# a program's phases cost it some dozen lines, and a run of days some hundred
_INTERVAL = 1.0  # seconds between writes, at most, early in a run
_SOON, _LATE = 5, 50  # fractions of the elapsed time between writes; at least 1 s
_PEAK_STEP = 1024  # a new peak is written if it is higher by this fraction
_MOST_WRITTEN = 32 * MIB  # beyond it, only the final figures are written


class ProcessLine(msgspec.Struct, frozen=True, tag_field="line", tag="process"):
    """A measuring process so far; its name is unique even if its id is used again."""

    process: str
    pid: int
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    # its own peak, written before its high-water mark is reset
    memory: Bytes | None = None
    gpus: tuple[GpuUsage, ...] = ()  # that it can see


class PhaseLine(msgspec.Struct, frozen=True, tag_field="line", tag="phase"):
    """A phase so far, at its place in the nesting; no calls until it has ended once."""

    process: str
    # names of the phases around it and its own, the outermost first
    path: tuple[str, ...]
    phase: ProgramPhase


class BatchesLine(msgspec.Struct, frozen=True, tag_field="line", tag="batches"):
    """A loop so far, with its total time."""

    process: str
    loop: str  # size and length of the loop, see `RegionTracker`
    time: Seconds  # seconds in all batches
    batches: BatchTimes


class EventLine(msgspec.Struct, frozen=True, tag_field="line", tag="event"):
    """An event."""

    process: str
    event: ProgramEvent


Line = ProcessLine | PhaseLine | BatchesLine | EventLine


class RegionFile:
    """Appends one process's lines to the event file, until that fails.

    The file is opened for each write and never created: a program could close an open
    descriptor and use its number for another file. A failure is passed to *warn*.
    ``is_under_weigh_run`` is whether the file was ever written, so that weigh run
    reports the regions. With ``at_the_end``, changes are written immediately.
    """

    def __init__(self, env: Mapping[str, str], warn: Callable[[str], None]) -> None:
        path = env.get(VARIABLE)
        self.is_under_weigh_run = self.at_the_end = False
        # a process id may be used again while the run lasts
        self.process = f"{os.getpid()}.{time.time_ns():x}"
        self._warn = warn
        # the program may change its directory; None: not under weigh run, or it failed
        self._path = os.path.abspath(path) if path else None
        # a path is set, whether or not the file can be written here
        self._has_wrapper = bool(path)
        self._written = 0  # bytes
        place = place_of(env)
        self._line = ProcessLine(
            self.process,
            os.getpid(),
            os.uname().nodename if hasattr(os, "uname") else None,
            None if place is None else place.rank,
            None if place is None else place.local_rank,
        )
        self._began = self._due = clock()
        self.write(self._line)
        # the first line has reached the file
        self.is_under_weigh_run = self.is_open

    @property
    def is_open(self) -> bool:
        """Whether the event file can be written."""
        return self._path is not None

    def write(self, *lines: Line) -> None:
        """Write *lines* now."""
        if self._path is None or not lines:
            return
        # one write in append mode: lines of several processes do not mix
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                self._written += os.write(descriptor, text)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._path = None
            self._warn_why(error)

    def write_process(self, peak: Bytes, gpus: tuple[GpuUsage, ...] = ()) -> bool:
        """Write the process's own peak before it is lost; return False on failure."""
        # without weigh run nobody reads the file, and nothing is lost by a reset
        if not self._has_wrapper:
            return True
        known = self._line.memory or 0
        if peak > known + known // _PEAK_STEP or gpus:
            self._line = msgspec.structs.replace(
                self._line, memory=max(peak, known), gpus=gpus or self._line.gpus
            )
            self.write(self._line)
        return self.is_open

    def process_line(
        self, peak: Bytes | None, gpus: tuple[GpuUsage, ...]
    ) -> ProcessLine:
        """Return this process's line for its own report, where its rank is known."""
        return ProcessLine(self.process, self._line.pid, memory=peak, gpus=gpus)

    @property
    def has_room(self) -> bool:
        """Whether more than the final figures may be written."""
        return self.is_open and self._written < _MOST_WRITTEN

    def is_due(self, current_time: Seconds) -> bool:
        """Return whether it is time to write the changes."""
        return self.has_room and (current_time >= self._due or self.at_the_end)

    def note_written(self, current_time: Seconds) -> None:
        """Set the next due time; the interval grows with the run."""
        gone = current_time - self._began
        # often at first, since a short program may be killed, then more and more seldom
        self._due = current_time + max(min(_INTERVAL, gone / _SOON), gone / _LATE)

    def _warn_why(self, os_error: OSError) -> None:
        if not isinstance(os_error, FileNotFoundError):
            self._warn(f"regions do not reach weigh run: {os_error.strerror}")
        elif not self.is_under_weigh_run:
            self._warn(
                "the file of weigh run is not here (another machine or a container): "
                "regions are reported here instead"
            )  # else weigh run has read it and ended


def read_channel(
    path: str, *, started: Seconds, ended: Seconds | None = None
) -> ProgramRegions:
    """Read the regions that the job's processes wrote; empty if there are none.

    Args:
        path: the file of WEIGH_CHANNEL.
        started: start of the run on :data:`clock`; times become seconds since then.
        ended: end of the run; phases that are still open end then.
    """
    return regions_of_lines(_channel_lines(path), started=started, ended=ended)


def regions_of_lines(
    lines: Iterable[Line], *, started: Seconds, ended: Seconds | None
) -> ProgramRegions:
    """Return the regions that *lines* state, as for :func:`read_channel`."""
    events = _ChannelEvents()
    for line in lines:
        events.take(line)
    return events.regions(started, ended)


def _channel_lines(path: str) -> Iterator[Line]:
    """Yield the lines; skip those that do not parse."""
    decoder = msgspec.json.Decoder(Line)
    read = 0
    try:
        with open(path, "rb") as file:
            while read < _MOST_READ and (text := file.readline(_LONGEST_LINE)):
                read += len(text)
                try:
                    yield decoder.decode(text)
                except UNREADABLE:
                    continue
    except OSError:
        return


class _ChannelEvents:
    """The lines read so far; the last line about each thing counts."""

    def __init__(self) -> None:
        self._processes: dict[str, ProcessLine] = {}
        self._phases: dict[tuple[str, tuple[str, ...]], ProgramPhase] = {}
        self._loops: dict[tuple[str, str], BatchesLine] = {}
        self._events: list[ProgramEvent] = []

    def take(self, line: Line) -> None:
        """Add a line."""
        match line:
            case ProcessLine():
                self._processes[line.process] = line
            case PhaseLine():
                self._phases[line.process, line.path] = line.phase
            case BatchesLine():
                self._loops[line.process, line.loop] = line
            case EventLine():
                if len(self._events) < _MOST_EVENTS:
                    self._events.append(line.event)

    def regions(self, started: Seconds, ended: Seconds | None) -> ProgramRegions:
        """Return the regions, with times in seconds since *started*."""
        loops = sorted(self._loops.values(), key=lambda line: -line.time)
        events = sorted(self._events, key=lambda event: event.time)
        peaks = [line.memory for line in self._processes.values()]
        return ProgramRegions(
            phases=tuple(
                _since(phase, started, ended) for phase in in_order(self._by_rank())
            ),
            batches=tuple(
                _loop_since(loop, started) for loop in _with_all_left_out(loops)
            ),
            events=tuple(
                ProgramEvent(event.name, max(0.0, event.time - started), event.value)
                for event in events
            ),
            ranks=self._ranks(),
            peak_memory=max((peak for peak in peaks if peak is not None), default=None),
            wall_time=None if ended is None else ended - started,
            gpus=self._gpus(),
        )

    def _by_rank(self) -> dict[tuple[int, tuple[str, ...]], ProgramPhase]:
        """Join the same phases of one rank's processes."""
        joined: dict[tuple[int, tuple[str, ...]], ProgramPhase] = {}
        for (process, path), phase in self._phases.items():
            known = self._processes.get(process)
            rank = None if known is None else known.rank
            # -1 sorts phases without a rank before the ranks
            key = (-1 if rank is None else rank, path)
            ranked = msgspec.structs.replace(phase, rank=rank)
            if key in joined:
                ranked = _phase_of_two_processes(joined[key], ranked)
            joined[key] = ranked
        return joined

    def _ranks(self) -> tuple[RecordedRank, ...]:
        ranks: dict[int, RecordedRank] = {}
        for line in self._processes.values():
            if line.rank is None:
                continue
            # of several processes of one rank, as with workers, the first names it,
            # and the largest peak counts
            rank = ranks.get(line.rank) or RecordedRank(
                line.rank, line.local_rank, line.host, line.pid
            )
            ranks[line.rank] = msgspec.structs.replace(
                rank, peak_memory=most(rank.peak_memory, line.memory)
            )
        return tuple(ranks[rank] for rank in sorted(ranks))

    def _gpus(self) -> tuple[GpuUsage, ...]:
        joined: dict[str, GpuUsage] = {}
        for line in self._processes.values():
            for gpu in line.gpus:
                known = joined.get(gpu.uuid, gpu)
                peak = most(known.peak_memory, gpu.peak_memory)
                joined[gpu.uuid] = msgspec.structs.replace(known, peak_memory=peak)
        return tuple(joined.values())


def in_order(
    phases: Mapping[tuple[int, tuple[str, ...]], ProgramPhase],
) -> list[ProgramPhase]:
    """Sort phases by start, each after the one that contains it."""

    def place(key: tuple[int, tuple[str, ...]]) -> list[tuple[float, str]]:
        rank, path = key
        starts = []
        for depth in range(1, len(path) + 1):
            # a phase whose outer one was lost stands by itself
            above = phases.get((rank, path[:depth]), phases[key])
            starts.append((above.start, path[depth - 1]))
        return starts

    return [phases[key] for key in sorted(phases, key=lambda key: (key[0], place(key)))]


def _phase_of_two_processes(
    program_phase: ProgramPhase, other: ProgramPhase
) -> ProgramPhase:
    """Join the same phase of two processes: times add up, the higher peak counts."""
    first, last = sorted((program_phase, other), key=lambda phase: phase.start)
    # memory before and after belong to the process with the higher peak
    higher = max(program_phase, other, key=lambda phase: phase.peak_memory or 0)
    cpu = [phase.cpu_time for phase in (first, last) if phase.cpu_time is not None]
    return msgspec.structs.replace(
        first,
        calls=first.calls + last.calls,
        end=max(first.end, last.end),
        wall_time=first.wall_time + last.wall_time,
        cpu_time=sum(cpu) if cpu else None,
        memory_after=higher.memory_after,
        memory_before=higher.memory_before,
        peak_memory=higher.peak_memory,
        source=higher.source,
        # both processes see the same GPUs
        gpus=joined_gpu_memory(first.gpus, last.gpus),
    )


def _since(
    phase: ProgramPhase, started: Seconds, ended: Seconds | None
) -> ProgramPhase:
    end, wall = phase.end, phase.wall_time
    if phase.calls == 0 and ended is not None:
        end, wall = max(ended, phase.start), max(0.0, ended - phase.start)
    return msgspec.structs.replace(
        phase,
        start=max(0.0, phase.start - started),
        end=max(0.0, end - started),
        wall_time=wall,
    )


def _with_all_left_out(lines: Sequence[BatchesLine]) -> Iterator[BatchTimes]:
    """Yield the loops, with the time that is missing from the whole run in each.

    The loops of a process run one after another, those of several at the same time.
    """
    by_process: dict[str, Seconds] = {}
    for line in lines:
        if line.batches.forecast is not None:
            known = by_process.get(line.process, 0.0)
            by_process[line.process] = known + line.batches.forecast.left_out
    for line in lines:
        loop = line.batches
        if loop.forecast is not None:
            left_out = max(by_process.values())
            forecast = msgspec.structs.replace(loop.forecast, left_out=left_out)
            loop = msgspec.structs.replace(loop, forecast=forecast)
        yield loop


def _loop_since(loop: BatchTimes, started: Seconds) -> BatchTimes:
    if loop.start is None or loop.end is None:
        return loop
    return msgspec.structs.replace(
        loop,
        start=max(0.0, loop.start - started),
        end=max(0.0, loop.end - started),
    )
