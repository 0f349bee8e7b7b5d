"""``weigh top``: the runs, GPUs and processes of this moment, look after look."""

import os
import time
from collections.abc import Callable, Sequence

import msgspec

from weigh.errors import RecordNotFoundError, UsageError
from weigh.flow.records.records import Store
from weigh.flow.watch.gpus import GpuFactory, GpuWatch, gpus_of
from weigh.measure.observer import Glance, Observer
from weigh.model.record import PeakMemory, Record, Request, Usage
from weigh.probe.host import read_host
from weigh.probe.processes import UserProcess, read_command, read_processes
from weigh.render.printable import short_command
from weigh.render.top_view import MachineView, ProcessView, RunView, TopView
from weigh.request import DEFAULT_HEADROOM, from_usages
from weigh.store.checkpoint import Running, finalise_interrupted, running
from weigh.store.find import LAST, find, find_running
from weigh.store.identity import Process, is_alive
from weigh.units import KIB, Bytes, Seconds

_SHOWN = 6  # letters of an id
_STORE_INTERVAL = 2.0  # seconds between looks into the store: it may be on a network


class TopSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What to watch: the run called *name*, or without one all that goes on here.

    ``gpus`` opens the source of GPU readings; None where there is none.
    """

    name: str | None = None
    headroom: float = DEFAULT_HEADROOM
    gpus: GpuFactory = lambda: None
    clock: Callable[[], Seconds] = time.monotonic
    now: Callable[[], Seconds] = time.time


class TopWatcher:
    """Looks at runs, GPUs and processes; each look is one :class:`TopView`."""

    def __init__(self, store: Store, watching: TopSubject) -> None:
        """Find the run to follow, where one is named.

        Raises:
            RecordNotFoundError: there is no such record.
            UsageError: it has ended, or several are called so.
        """
        self._store = store
        self._watching = watching
        self._host = read_host()
        self._runs: list[Running] = []
        self._followers: dict[str, _RunFollower] = {}
        self._interrupted: dict[str, Record] = {}
        self._cpu_times: dict[tuple[int, int], Seconds] = {}
        self._commands: dict[tuple[int, int], str] = {}
        self._looked_at: Seconds = 0.0
        self._refreshed: Seconds = 0.0
        self._refresh(watching.clock())
        self._followed = watching.name and self._find(watching.name)
        self._gpus = GpuWatch(watching.gpus)

    def close(self) -> None:
        """Close the descriptors."""
        for follower in self._followers.values():
            follower.close()
        self._gpus.close()

    def look(self) -> TopView:
        """Look at everything once.

        Raises:
            StoreError: the store cannot be read.
        """
        moment = self._watching.clock()
        has_ended = any(one.has_ended() for one in self._followers.values())
        if has_ended or moment - self._refreshed >= _STORE_INTERVAL:
            self._refresh(moment)
        now = self._watching.now()
        views = {
            one.record.id: self._followers[one.record.id].look(one, now)
            for one in self._runs
            if self._followed in {None, one.record.id}
        }
        followed, request, processes = None, None, _my_processes()
        if self._followed:
            followed = views.get(self._followed) or self._ended(self._followed)
            request = _request_now(followed.record, self._watching.headroom)
            follower = self._followers.get(self._followed)
            processes = None if follower is None else follower.processes
        gpus = self._gpus.look()
        return TopView(
            clock=time.strftime("%H:%M:%S", time.localtime(now)),
            machine=self._machine(),
            store=self._store.root,
            runs=() if followed else tuple(views.values()),
            followed=followed,
            request=request,
            gpus=gpus_of(gpus, os.environ),
            gpu_note=gpus.note,
            processes=self._process_views(processes, moment),
        )

    def _ended(self, record_id: str) -> RunView:
        record = self._interrupted.get(record_id) or find(self._store.root, record_id)
        elapsed = record.usage.wall_time if record.usage else 0.0
        return RunView(record=record, elapsed=elapsed, peak=_peak_value(record))

    def _refresh(self, moment: Seconds) -> None:
        """See which runs are in progress now."""
        store = self._store
        over = finalise_interrupted(store.root, store.machine)
        self._interrupted |= {record.id: record for record in over}
        everyone = running(store.root, store.machine, self._watching.now())
        runs = [one for one in everyone if one.record.id not in self._interrupted]
        self._runs = sorted(runs, key=lambda one: one.record.started, reverse=True)
        for gone in self._followers.keys() - {one.record.id for one in self._runs}:
            self._followers.pop(gone).close()
        for one in self._runs:
            self._followers.setdefault(one.record.id, _RunFollower()).follow(one.leader)
        self._refreshed = moment

    def _find(self, name: str) -> str:
        """Return the id of the run in progress called *name*, the newest of several."""
        records = [one.record for one in self._runs]
        if name == LAST and records:
            return records[0].id
        record = find_running(records, name)
        if record is not None:
            return record.id
        try:
            ended = find(self._store.root, name)
        except RecordNotFoundError:
            if not records:
                raise
            names = ", ".join(one.label or one.id[:_SHOWN] for one in records)
            raise RecordNotFoundError(
                f"no run called {name!r} (in progress: {names})"
            ) from None
        raise UsageError(
            f"run {ended.id} has ended ({ended.state}): weigh records show {ended.id}"
        )

    def _process_views(
        self, processes: Sequence[UserProcess] | None, moment: Seconds
    ) -> tuple[ProcessView, ...] | None:
        """Return the processes, the largest first, with their CPU use since last."""
        if processes is None:
            return None
        since, before = moment - self._looked_at, self._cpu_times
        self._looked_at = moment
        self._cpu_times = {
            (one.pid, one.start_ticks): one.cpu_time for one in processes
        }
        known, self._commands = self._commands, {}
        views = []
        for one in sorted(processes, key=lambda one: (-one.resident, one.pid)):
            key = (one.pid, one.start_ticks)
            last = before.get(key)
            busy = None if last is None else max(0.0, one.cpu_time - last) / since
            command = known.get(key) or _command_of(one)
            self._commands[key] = command
            views.append(ProcessView(one.pid, command, one.resident, busy))
        return tuple(views)

    def _machine(self) -> MachineView:
        free, total = _available_memory(), self._host.memory
        used = None if free is None or total is None else total - free
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # Windows
        cpus = self._host.cpus
        return MachineView(self._host.name, cpus, used, total, load, os.cpu_count())


class _RunFollower:
    """Follows the processes of one run, where they are on this machine."""

    def __init__(self) -> None:
        self.processes: tuple[UserProcess, ...] | None = None
        self._leader: Process | None = None
        self._observer: Observer | None = None
        self._largest: Bytes = 0

    def close(self) -> None:
        """Close the descriptors."""
        if self._observer is not None:
            self._observer.close()
        self._observer = self._leader = self.processes = None

    def has_ended(self) -> bool:
        """Return whether the command ended since it was found here."""
        return self._leader is not None and not is_alive(self._leader)

    def follow(self, leader: Process | None) -> None:
        """Observe *leader*; of several runs it is another one than before."""
        if leader != self._leader:
            self.close()
            self._largest = 0
            if leader is not None and is_alive(leader):
                self._leader, self._observer = leader, Observer(leader.pid)

    def look(self, found: Running, now: Seconds) -> RunView:
        """Look at its processes if they are here; else return what was written."""
        usage = found.record.usage
        age = max(0.0, now - found.seen)
        elapsed = (usage.wall_time if usage else 0.0) + age
        peak = _peak_value(found.record)
        glance = None
        if self._observer is not None and not self.has_ended():
            glance = self._observer.glance(max(peak or 0, self._largest))
        self.processes = glance.processes if glance else None
        if glance is None or found.record.nodes:  # on other nodes there is more
            return RunView(
                record=found.record,
                elapsed=elapsed,
                peak=peak,
                age=age,
                stale=found.stale,
            )
        self._largest = max(self._largest, glance.held.total, glance.largest)
        largest = max(peak or 0, self._largest)
        return RunView(
            record=_with_usage_now(found.record, glance, elapsed, largest),
            elapsed=elapsed,
            memory=glance.held.total,
            peak=largest,
            cores=glance.cores,
            processes=len(glance.processes),
            stopped=glance.stopped,
        )


def _with_usage_now(
    record: Record, glance: Glance, elapsed: Seconds, largest: Bytes
) -> Record:
    """Return what was written of a run, with what was seen of it since."""
    usage = record.usage or Usage(wall_time=elapsed)
    peak = usage.peak_memory
    if peak is None or peak.value < largest:
        held = glance.held
        peak = PeakMemory(
            value=largest,
            low=glance.largest if peak is None else max(peak.low, glance.largest),
            high=max(largest, held.high),
            anonymous=held.anonymous,
            shared=held.shared,
            file=held.file,
            source="weigh top's looks",
            time=elapsed,
        )
    cpu_time = max(usage.cpu_time or 0.0, glance.cpu_time)
    usage = msgspec.structs.replace(
        usage,
        wall_time=elapsed,
        cpu_time=cpu_time,
        cpus_used=cpu_time / elapsed if elapsed else None,
        peak_memory=peak,
    )
    return msgspec.structs.replace(record, usage=usage)


def _peak_value(record: Record) -> Bytes | None:
    usage = record.usage
    return usage.peak_memory.value if usage and usage.peak_memory else None


def _request_now(record: Record, headroom: float) -> Request | None:
    """Work out what to request if it ended now; None where nothing is known yet."""
    try:
        return from_usages([record], headroom=headroom)
    except UsageError:
        return None


def _command_of(process: UserProcess) -> str:
    command = read_command(process.pid)
    return short_command(command) if command else process.name


def _my_processes() -> tuple[UserProcess, ...] | None:
    return read_processes(os.geteuid()) if hasattr(os, "geteuid") else None


def _available_memory() -> Bytes | None:
    """Read MemAvailable of meminfo, which is what programs could still get."""
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * KIB
    except (OSError, IndexError, ValueError):
        return None
    return None
