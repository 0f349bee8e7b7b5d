"""One run in progress as it is now: its last checkpoint and a look at its processes."""

import os
from collections import deque
from collections.abc import Callable

import msgspec

from weigh.measure.onlooker import Glance, Onlooker
from weigh.model.record import PeakMemory, Record, Usage
from weigh.probe.processes import UserProcess
from weigh.report.top_view import RunView
from weigh.store.checkpoint import RUNNING, Checkpoint, Running
from weigh.store.identity import Machine, Process, is_alive
from weigh.store.lines import UNREADABLE
from weigh.units import MIB, Bytes, Seconds

_MATERIAL = 1.01  # what a peak must be passed by to have a new moment
_MOST_SEEN = 3600  # looks kept, where no checkpoint comes any more to replace them


class LiveRun:
    """Follows one run, through all that weigh writes down of it."""

    def __init__(
        self,
        root: str,
        record_id: str,
        here: Machine,
        *,
        proc: str = "/proc",
        now: Callable[[], Seconds],
    ) -> None:
        self._path = os.path.join(root, RUNNING, f"{record_id}.json")
        self._here = here
        self._proc = proc
        self._now = now
        self._leader: Process | None = None
        self._onlooker: Onlooker | None = None
        self._seen: deque[tuple[Seconds, Bytes]] = deque(maxlen=_MOST_SEEN)
        self._largest: Bytes = 0
        self._largest_at: Seconds = 0.0
        self._glanced: Glance | None = None

    @property
    def processes(self) -> tuple[UserProcess, ...] | None:
        """Give its processes at the last look; None where they are not here."""
        return self._glanced.processes if self._glanced else None

    def close(self) -> None:
        """Give back descriptors."""
        if self._onlooker is not None:
            self._onlooker.close()
        self._onlooker = self._leader = self._glanced = None

    def is_over(self) -> bool:
        """Tell whether the command ended since it was found here."""
        return self._leader is not None and not self._is_alive(self._leader)

    def refresh(self, found: Running) -> None:
        """Take in what the store says of it now."""
        leader = self._leader_now()
        if leader != self._leader:  # the next of several runs, or the first
            self.close()
            self._seen.clear()
            self._largest = 0
            self._leader = leader
            if leader is not None:
                self._onlooker = Onlooker(leader.pid, self._proc)
        series = found.record.series
        written = series.t[-1] if series and series.t else 0.0
        while self._seen and self._seen[0][0] <= written:
            self._seen.popleft()

    def look(self, found: Running) -> RunView:
        """Look at its processes, where they are here; else say what was written."""
        usage = found.record.usage
        age = max(0.0, self._now() - found.seen)
        elapsed = (usage.wall_time if usage else 0.0) + age
        peak = usage.peak_memory.value if usage and usage.peak_memory else 0
        self._glanced = glance = self._glance(max(peak, self._largest))
        if glance is None:
            return self._as_written(found, age)
        largest = max(glance.held.total, glance.largest)
        if largest > self._largest:
            self._largest, self._largest_at = largest, elapsed
        self._seen.append((elapsed, glance.held.total))
        record = with_glance(
            found.record, glance, elapsed, peak=(self._largest, self._largest_at)
        )
        t, memories = self._over_time(found.record)
        return RunView(
            record=record,
            elapsed=elapsed,
            memory=glance.held.total,
            peak=max(peak, self._largest),
            cores=glance.cores,
            processes=len(glance.processes),
            t=t,
            memories=memories,
            stopped=glance.stopped,
        )

    def _as_written(self, found: Running, age: Seconds) -> RunView:
        usage = found.record.usage
        series = found.record.series
        return RunView(
            record=found.record,
            elapsed=(usage.wall_time if usage else 0.0) + age,
            peak=usage.peak_memory.value if usage and usage.peak_memory else None,
            t=series.t if series else (),
            memories=series.memory if series else (),
            age=age,
            stale=found.stale,
        )

    def _over_time(
        self, record: Record
    ) -> tuple[tuple[Seconds, ...], tuple[Bytes, ...]]:
        series = record.series
        t, memories = (series.t, series.memory) if series else ((), ())
        return (
            (*t, *(time for time, _ in self._seen)),
            (*memories, *(memory for _, memory in self._seen)),
        )

    def _glance(self, best: Bytes) -> Glance | None:
        if self._onlooker is None or self.is_over():
            return None
        return self._onlooker.glance(best)

    def _leader_now(self) -> Process | None:
        """Give the command's process, where it can be looked at from here."""
        try:
            with open(self._path, "rb") as file:
                checkpoint = msgspec.json.decode(file.read(), type=Checkpoint)
        except (OSError, *UNREADABLE):
            return self._leader  # it is being finished: as before
        if not self._here.sees_processes_of(checkpoint.machine):
            return None
        leader = checkpoint.leader
        return leader if leader is not None and self._is_alive(leader) else None

    def _is_alive(self, process: Process) -> bool:
        return is_alive(process, os.path.dirname(self._proc) or "/")


def with_glance(
    record: Record, glance: Glance, elapsed: Seconds, *, peak: tuple[Bytes, Seconds]
) -> Record:
    """Bring what was written of a run up to this moment.

    *peak* is the most that was seen of it from here, and when.
    """
    usage = record.usage or Usage(wall_time=elapsed)
    cpu_time = max(usage.cpu_time or 0.0, glance.cpu_time)
    return msgspec.structs.replace(
        record,
        usage=msgspec.structs.replace(
            usage,
            wall_time=elapsed,
            cpu_time=cpu_time,
            cpus_used=cpu_time / elapsed if elapsed else None,
            peak_memory=_peak(usage.peak_memory, glance, *peak),
        ),
    )


def _peak(
    written: PeakMemory | None, glance: Glance, largest: Bytes, at: Seconds
) -> PeakMemory:
    held = glance.held
    if written is not None and largest <= written.value * _MATERIAL + MIB:
        value = max(written.value, largest)
        high = max(written.high, value)
        return msgspec.structs.replace(written, value=value, high=high)
    return PeakMemory(
        value=largest,
        low=max(largest if written is None else written.low, glance.largest),
        high=max(largest, held.high),
        anonymous=held.anonymous,
        shared=held.shared,
        file=held.file,
        source="weigh top's looks",
        time=at,
    )
