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
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weigh.measure.ranks import place_of
from weigh.measure.region.gpu_meter import GpuSpan, most
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

_LONGEST_LINE = MIB  # bytes; a longer line is read in pieces, which do not parse
_MOST_READ = 256 * MIB  # bytes of the file
_MOST_EVENTS = 100_000  # events of all processes


class ProcessLine(msgspec.Struct, frozen=True, tag_field="line", tag="process"):
    """A measuring process; its name is unique even if its process id is used again."""

    process: str
    pid: int
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None


class PeakLine(msgspec.Struct, frozen=True, tag_field="line", tag="peak"):
    """A process's peak, written before its high-water mark is reset."""

    process: str
    memory: Bytes


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


class GpusLine(msgspec.Struct, frozen=True, tag_field="line", tag="gpus"):
    """The GPUs that a process can see."""

    process: str
    gpus: tuple[GpuUsage, ...]


Line = ProcessLine | PeakLine | PhaseLine | BatchesLine | EventLine | GpusLine


class ChannelWriter:
    """Appends lines; opens the file for each write and never creates it.

    The program could close an open descriptor and use its number for another file.
    ``written`` counts bytes.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)  # the program may change its directory
        self.written = 0

    def write(self, lines: Iterable[Line]) -> None:
        """Append all *lines* at once.

        Raises:
            OSError: the file was removed or is not writable.
        """
        # one write in append mode: lines of several processes do not mix
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            self.written += os.write(descriptor, text)
        finally:
            os.close(descriptor)


def this_process(env: Mapping[str, str], name: str) -> ProcessLine:
    """Return the line about this process, with its rank if there are several."""
    host = os.uname().nodename if hasattr(os, "uname") else None
    place = place_of(env)
    if place is not None:
        return ProcessLine(name, os.getpid(), host, place.rank, place.local_rank)
    return ProcessLine(name, os.getpid(), host)


def read_channel(
    path: str, *, started: Seconds, ended: Seconds | None = None
) -> ProgramRegions:
    """Read the regions that the job's processes wrote; empty if there are none.

    Args:
        path: the file of WEIGH_CHANNEL.
        started: start of the run on :data:`clock`; times become seconds since then.
        ended: end of the run; phases that are still open end then.
    """
    events = _ChannelEvents()
    for line in _channel_lines(path):
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
        self._peaks: dict[str, Bytes] = {}
        self._phases: dict[tuple[str, tuple[str, ...]], ProgramPhase] = {}
        self._loops: dict[tuple[str, str], BatchesLine] = {}
        self._gpus: dict[str, GpuUsage] = {}
        self._events: list[ProgramEvent] = []

    def take(self, line: Line) -> None:
        """Add a line."""
        match line:
            case ProcessLine():
                self._processes.setdefault(line.process, line)
            case PeakLine():
                old = self._peaks.get(line.process, 0)
                self._peaks[line.process] = max(line.memory, old)
            case PhaseLine():
                self._phases[line.process, line.path] = line.phase
            case BatchesLine():
                self._loops[line.process, line.loop] = line
            case EventLine():
                if len(self._events) < _MOST_EVENTS:
                    self._events.append(line.event)
            case GpusLine():
                for gpu in line.gpus:
                    self._gpus[gpu.uuid] = _joined_gpu_usage(
                        self._gpus.get(gpu.uuid), gpu
                    )

    def regions(self, started: Seconds, ended: Seconds | None) -> ProgramRegions:
        """Return the regions, with times in seconds since *started*."""
        loops = sorted(self._loops.values(), key=lambda line: -line.time)
        events = sorted(self._events, key=lambda event: event.time)
        return ProgramRegions(
            phases=tuple(
                _since(phase, started, ended) for phase in in_order(self._by_rank())
            ),
            batches=tuple(_loop_since(line.batches, started) for line in loops),
            events=tuple(
                ProgramEvent(event.name, max(0.0, event.time - started), event.value)
                for event in events
            ),
            ranks=self._ranks(),
            peak_memory=max(self._peaks.values(), default=None),
            wall_time=None if ended is None else ended - started,
            gpus=tuple(self._gpus.values()),
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
            joined[key] = (
                _phase_of_two_processes(joined[key], ranked)
                if key in joined
                else ranked
            )
        return joined

    def _ranks(self) -> tuple[RecordedRank, ...]:
        ranks: dict[int, RecordedRank] = {}
        for name, line in self._processes.items():
            if line.rank is None:
                continue
            # several processes may have one rank, as with workers: the largest peak
            # counts
            peak = self._peaks.get(name)
            if line.rank in ranks:
                old = ranks[line.rank]
                peak = most(old.peak_memory, peak)
                ranks[line.rank] = msgspec.structs.replace(old, peak_memory=peak)
            else:
                ranks[line.rank] = RecordedRank(
                    line.rank, line.local_rank, line.host, line.pid, peak
                )
        return tuple(ranks[rank] for rank in sorted(ranks))


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
    first, last = (
        (program_phase, other)
        if program_phase.start <= other.start
        else (other, program_phase)
    )
    # memory before and after belong to the process with the higher peak
    higher = max(program_phase, other, key=lambda phase: phase.peak_memory or 0)
    # both processes see the same GPUs
    spans = GpuSpan()
    spans.merge(first.gpus)
    spans.merge(last.gpus)
    cpu = [
        phase.cpu_time for phase in (program_phase, other) if phase.cpu_time is not None
    ]
    return msgspec.structs.replace(
        first,
        calls=program_phase.calls + other.calls,
        end=max(program_phase.end, other.end),
        wall_time=program_phase.wall_time + other.wall_time,
        cpu_time=sum(cpu) if cpu else None,
        memory_after=higher.memory_after,
        memory_before=higher.memory_before,
        peak_memory=higher.peak_memory,
        source=higher.source,
        gpus=spans.memory(),
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


def _loop_since(loop: BatchTimes, started: Seconds) -> BatchTimes:
    if loop.start is None or loop.end is None:
        return loop
    return msgspec.structs.replace(
        loop,
        start=max(0.0, loop.start - started),
        end=max(0.0, loop.end - started),
    )


def _joined_gpu_usage(old: GpuUsage | None, new: GpuUsage) -> GpuUsage:
    if old is None:
        return new
    peak = most(old.peak_memory, new.peak_memory)
    return msgspec.structs.replace(old, peak_memory=peak)
