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
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from weigh.measure.ranks import rank_in_environment
from weigh.measure.region.peaks import joined_gpu_memory, most
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    BatchTimes,
    ProgramEvent,
    ProgramPhase,
    ProgramRegions,
    RecordedRank,
)
from weigh.regular_file import write_all
from weigh.store.lines import UNREADABLE, read_tail
from weigh.units import KIB, MIB, Bytes, Seconds

_Timed = TypeVar("_Timed", ProgramPhase, BatchTimes)
# names of the phases around one and its own, the outermost first
PhasePath = tuple[str, ...]
_RankPath = tuple[int, PhasePath]  # -1 without ranks
VARIABLE = "WEIGH_CHANNEL"
BOUND = "upper bound: the process's high-water mark, not reset"
clock = time.perf_counter if sys.platform == "win32" else time.monotonic

# of the end of the file, which has the last totals; a run of days writes some 20 MiB
_MOST_READ = 256 * MIB
MOST_EVENTS = 10_000  # of a process, and of a run: a record is read whole
# share of its time so far after which a process writes again: so much is lost with one
# that is killed, or with a fork that leaves by os._exit, and a run of days writes a
# thousand times. It grows with each MiB that was written: 1000 phases for days are some
# 20 MiB
_SHARE = 0.02
# the kernel's high-water mark is off by as much, and a program that grows by a page in
# each phase writes a line for every 16th only
MARK_SLACK = 64 * KIB


class RegionLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A measuring process so far, and what has changed in it since its last line.

    Its name is unique even if its id is used again.
    """

    process: str
    rank: RecordedRank | None = None  # None: there are no ranks
    # its own peak, written before its high-water mark is reset
    memory: Bytes | None = None
    gpus: tuple[GpuUsage, ...] = ()  # that it can see
    # so far; no calls until one has ended once
    phases: tuple[tuple[PhasePath, ProgramPhase], ...] = ()
    loops: dict[str, BatchTimes] = {}  # so far, by size and length
    events: tuple[ProgramEvent, ...] = ()


class RegionFile:
    """Appends one process's lines to the event file, until that fails.

    The file is opened for each write and never created: a program could close an open
    descriptor and use its number for another file. A failure is passed to *warn*.
    ``is_under_weigh_run`` is whether the file was ever written, so that weigh run
    reports the regions. With ``at_the_end``, changes are written immediately.
    """

    def __init__(self, env: Mapping[str, str], warn: Callable[[str], None]) -> None:
        path = env.get(VARIABLE, "")
        self.is_under_weigh_run = self.at_the_end = False
        # a process id may be used again while the run lasts
        self.process = f"{os.getpid()}.{time.time_ns():x}"
        host = os.uname().nodename if hasattr(os, "uname") else None
        own = rank_in_environment(env)
        self.rank = own and RecordedRank(own.rank, host, os.getpid())
        self._warn = warn
        # the program may change its directory; "": not under weigh run; None: it failed
        self._path: str | None = path and os.path.abspath(path)
        self._written = 0  # bytes
        self._kept: Bytes = 0  # the highest peak that was written before a reset
        self._began = self._due = clock()
        self.write(RegionLine(self.process, self.rank))
        # the first line has reached the file
        self.is_under_weigh_run = bool(self._path)

    def write(self, line: RegionLine) -> None:
        """Write *line* now."""
        if not self._path:
            return
        # one write in append mode: lines of several processes do not mix
        text = msgspec.json.encode(line) + b"\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                # a disk that fills up takes the beginning of a line, and no more
                write_all(descriptor, text)
            finally:
                os.close(descriptor)
            self._written += len(text)
        except OSError as error:
            self._path = None
            why = f"regions do not reach weigh run: {error.strerror}"
            if isinstance(error, FileNotFoundError):
                if self.is_under_weigh_run:
                    return  # weigh run has read it and ended
                why = (
                    "the file of weigh run is not here (another machine or a container)"
                )
            self.is_under_weigh_run = False
            self._warn(f"{why}: regions are reported here instead")

    def keep_peak(self, line: RegionLine) -> bool:
        """Write the process's own peak before it is lost; return False on failure."""
        peak = line.memory or 0
        if peak > self._kept + MARK_SLACK:
            self._kept = peak
            self.write(line)
        # without weigh run nobody reads the file, and nothing is lost by a reset
        return self._path is not None

    def write_changes(self, line: RegionLine, current_time: Seconds) -> None:
        """Write what has changed; the time until it is due again grows with the run."""
        self.write(line)
        share = _SHARE * (1 + self._written / MIB)
        self._due = current_time + (current_time - self._began) * share

    def is_due(self, current_time: Seconds) -> bool:
        """Return whether it is time to write the changes."""
        return bool(self._path) and (current_time >= self._due or self.at_the_end)


def read_channel(
    path: str, *, started: Seconds, ended: Seconds | None = None
) -> ProgramRegions:
    """Read the regions that the job's processes wrote to the file of WEIGH_CHANNEL."""
    return regions_of_lines(_channel_lines(path), started=started, ended=ended)


def _channel_lines(path: str) -> Iterator[RegionLine]:
    """Yield the lines; skip those that do not parse."""
    decoder = msgspec.json.Decoder(RegionLine)
    for text in read_tail(path, _MOST_READ).splitlines():
        try:
            yield decoder.decode(text)
        except UNREADABLE:
            continue


def regions_of_lines(
    lines: Iterable[RegionLine], *, started: Seconds, ended: Seconds | None
) -> ProgramRegions:
    """Return the regions that *lines* state; empty if there are none.

    Args:
        lines: those of the file, or of this process.
        started: start of the run on :data:`clock`; times become seconds since then.
        ended: end of the run; phases that are still open end then.
    """
    processes: dict[str, RegionLine] = {}
    phases: dict[tuple[str, PhasePath], ProgramPhase] = {}
    loops: dict[tuple[str, str], BatchTimes] = {}
    events: list[ProgramEvent] = []
    for line in lines:
        process = line.process
        processes[process] = line
        phases.update({(process, path): phase for path, phase in line.phases})
        loops.update({(process, key): loop for key, loop in line.loops.items()})
        events += line.events
    ranks: dict[int, RecordedRank] = {}
    gpus: dict[str, GpuUsage] = {}
    peak: Bytes | None = None
    for line in processes.values():
        peak = most(peak, line.memory)
        if line.rank is not None:
            # of several processes of one rank, as with workers, the first names it, and
            # the largest peak counts
            rank = ranks.get(line.rank.rank, line.rank)
            higher = most(rank.peak_memory, line.memory)
            ranks[rank.rank] = msgspec.structs.replace(rank, peak_memory=higher)
        for gpu in line.gpus:
            known = gpus.get(gpu.uuid, gpu)
            higher = most(known.peak_memory, gpu.peak_memory)
            gpus[gpu.uuid] = msgspec.structs.replace(known, peak_memory=higher)

    in_places = in_order(_phases_by_rank(phases, processes))
    return ProgramRegions(
        phases=tuple(_in_run(_until(ended, phase), started) for phase in in_places),
        batches=tuple(_in_run(loop, started) for loop in _longest_loops_first(loops)),
        events=tuple(
            msgspec.structs.replace(event, time=max(0.0, event.time - started))
            for event in sorted(events[:MOST_EVENTS], key=lambda event: event.time)
        ),
        ranks=tuple(ranks[rank] for rank in sorted(ranks)),
        peak_memory=peak,
        wall_time=None if ended is None else ended - started,
        gpus=tuple(gpus.values()),
    )


def _in_run(timed: _Timed, started: Seconds) -> _Timed:
    """Return what was timed on :data:`clock` with times since the run's start."""
    times = {
        name: max(0.0, (time or 0.0) - started)
        for name, time in (("start", timed.start), ("end", timed.end))
    }
    return msgspec.structs.replace(timed, **times)


def _phases_by_rank(
    phases: Mapping[tuple[str, PhasePath], ProgramPhase],
    processes: Mapping[str, RegionLine],
) -> dict[_RankPath, ProgramPhase]:
    """Join the same phases of one rank's processes; -1 sorts before the ranks."""
    by_rank: dict[_RankPath, ProgramPhase] = {}
    for (process, path), phase in phases.items():
        own = processes[process].rank
        key = (-1 if own is None else own.rank, path)
        ranked = msgspec.structs.replace(phase, rank=own and own.rank)
        if key in by_rank:
            ranked = joined_phases(by_rank[key], ranked, is_one_process=False)
        by_rank[key] = ranked
    return by_rank


def in_order(phases: Mapping[_RankPath, ProgramPhase]) -> list[ProgramPhase]:
    """Sort phases by start, each after the one that contains it."""

    def place(key: _RankPath) -> tuple[int, list[tuple[float, str]]]:
        rank, path = key
        # a phase whose outer one was lost stands by itself
        starts = [
            (phases.get((rank, path[: depth + 1]), phases[key]).start, name)
            for depth, name in enumerate(path)
        ]
        return rank, starts

    return [phases[key] for key in sorted(phases, key=place)]


def joined_phases(
    first: ProgramPhase, later: ProgramPhase, *, is_one_process: bool = True
) -> ProgramPhase:
    """Join what was measured of one phase: times add up, the higher peak counts.

    Of two processes, memory before and after are those of the one with that peak.
    """
    # several may have the same peak: one exact figure is enough
    higher = max(
        first, later, key=lambda one: (one.peak_memory or 0, one.source != BOUND)
    )
    known_cpu = first.cpu_time is not None or later.cpu_time is not None
    return msgspec.structs.replace(
        first,
        calls=first.calls + later.calls,
        start=min(first.start, later.start),
        end=max(first.end, later.end),
        wall_time=first.wall_time + later.wall_time,
        cpu_time=(first.cpu_time or 0) + (later.cpu_time or 0) if known_cpu else None,
        memory_before=(first if is_one_process else higher).memory_before,
        memory_after=(later if is_one_process else higher).memory_after,
        peak_memory=higher.peak_memory,
        source=higher.source,
        gpus=joined_gpu_memory(first.gpus, later.gpus),
    )


def _until(ended: Seconds | None, phase: ProgramPhase) -> ProgramPhase:
    """Return a phase; one that never ended lasts until the run did."""
    if phase.calls or ended is None:
        return phase
    end = max(ended, phase.start)
    return msgspec.structs.replace(phase, end=end, wall_time=end - phase.start)


def _longest_loops_first(
    loops: Mapping[tuple[str, str], BatchTimes],
) -> list[BatchTimes]:
    """Return the loops of all processes.

    What a forecast leaves out is of the whole run: the loops of a process run one after
    another, those of several at the same time.
    """
    left_out: defaultdict[str, Seconds] = defaultdict(float)
    for (process, _), loop in loops.items():
        left_out[process] += 0.0 if loop.forecast is None else loop.forecast.left_out
    longest = max(left_out.values(), default=0.0)
    found: list[BatchTimes] = []
    for loop in loops.values():
        forecast = loop.forecast
        forecast = forecast and msgspec.structs.replace(forecast, left_out=longest)
        found.append(msgspec.structs.replace(loop, forecast=forecast))
    return sorted(found, key=lambda loop: -loop.count * (loop.time_mean or 0))
