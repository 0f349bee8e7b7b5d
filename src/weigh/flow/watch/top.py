"""``weigh top``: the runs, GPUs and processes of this moment, look after look."""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from weigh.errors import RecordNotFoundError, UsageError
from weigh.flow.records.records import Store
from weigh.flow.watch.gpus import GpuFactory, GpuLook, GpuWatch
from weigh.measure.observer import Glance, Observer
from weigh.model.record import PeakMemory, Record, Request, Usage
from weigh.probe.gpu import GpuDevice, GpuReading
from weigh.probe.host import read_host
from weigh.probe.processes import UserProcess, read_command, read_processes
from weigh.render.printable import short_command
from weigh.render.top_lines import (
    GpuHolder,
    GpuView,
    MachineView,
    ProcessView,
    RunView,
    TopView,
)
from weigh.request import DEFAULT_HEADROOM, from_usages
from weigh.store.checkpoint import (
    RUNNING,
    Checkpoint,
    Running,
    finalise_interrupted,
    running,
)
from weigh.store.find import LAST, find, find_running
from weigh.store.identity import Machine, Process, is_alive
from weigh.store.lines import UNREADABLE
from weigh.units import KIB, MIB, Bytes, Seconds

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
        self._onlooker: Observer | None = None
        self._seen: deque[tuple[Seconds, Bytes]] = deque(maxlen=_MOST_SEEN)
        self._largest: Bytes = 0
        self._largest_at: Seconds = 0.0
        self._glanced: Glance | None = None

    @property
    def processes(self) -> tuple[UserProcess, ...] | None:
        """Return its processes at the last look; None where they are not here."""
        return self._glanced.processes if self._glanced else None

    def close(self) -> None:
        """Return back descriptors."""
        if self._onlooker is not None:
            self._onlooker.close()
        self._onlooker = self._leader = self._glanced = None

    def is_over(self) -> bool:
        """Return whether the command ended since it was found here."""
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
                self._onlooker = Observer(leader.pid, self._proc)
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
        if glance is None or found.record.nodes:  # on other nodes there is more
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
        """Return the command's process, where it can be looked at from here."""
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


_SHOWN = 6  # letters of an id
_STORE_INTERVAL = 2.0  # seconds between looks into the store: it may be on a network


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """What to watch: the run called *name*, or without one all that goes on here.

    ``gpus`` opens the source of GPU readings; None where there is none.
    """

    name: str | None = None
    headroom: float = DEFAULT_HEADROOM
    gpus: GpuFactory = lambda: None
    proc: str = "/proc"
    clock: Callable[[], Seconds] = time.monotonic
    now: Callable[[], Seconds] = time.time


class Watcher:
    """Looks at runs, GPUs and processes; each look is one :class:`TopView`."""

    def __init__(self, store: Store, watching: Watching) -> None:
        """Find the run to follow, where one is named.

        Raises:
            RecordNotFoundError: there is no such record.
            UsageError: it has ended, or several are called so.
        """
        self._store = store
        self._watching = watching
        self._host = read_host(watching.proc)
        self._runs: list[Running] = []
        self._lives: dict[str, LiveRun] = {}
        self._interrupted: dict[str, Record] = {}
        self._refreshed = 0.0
        self._meter = _Meter(watching.proc)
        self._refresh(watching.clock())
        self._followed = watching.name and self._find(watching.name)
        self._gpus = GpuWatch(watching.gpus)

    def close(self) -> None:
        """Return back descriptors."""
        for live in self._lives.values():
            live.close()
        self._lives.clear()
        self._gpus.close()

    def look(self) -> TopView:
        """Look at everything once.

        Raises:
            StoreError: the store cannot be read.
        """
        moment = self._watching.clock()
        if moment - self._refreshed >= _STORE_INTERVAL or self._is_one_over():
            self._refresh(moment)
        if self._followed:
            return self._look_at(self._followed, moment)
        mine = self._own_processes()
        views = (self._lives[one.record.id].look(one) for one in self._runs)
        return self._view(mine, moment, runs=tuple(views))

    def _look_at(self, record_id: str, moment: Seconds) -> TopView:
        """Look at one run; when it has ended, at its record."""
        found = next((one for one in self._runs if one.record.id == record_id), None)
        if found is None:
            return self._view(None, moment, followed=self._ended(record_id))
        live = self._lives[record_id]
        followed = live.look(found)
        request = _request(followed.record, self._watching.headroom)
        return self._view(live.processes, moment, followed=followed, request=request)

    def _view(
        self,
        processes: Sequence[UserProcess] | None,
        moment: Seconds,
        *,
        runs: tuple[RunView, ...] = (),
        followed: RunView | None = None,
        request: Request | None = None,
    ) -> TopView:
        gpus = self._gpus.look()
        names = {one.pid: one.name for one in processes or ()}
        return TopView(
            clock=time.strftime("%H:%M:%S", time.localtime(self._watching.now())),
            machine=self._machine(),
            store=self._store.root,
            runs=runs,
            followed=followed,
            request=request,
            gpus=_gpus(gpus, names),
            gpu_note=gpus.note,
            processes=self._meter.views(processes, moment),
        )

    def _ended(self, record_id: str) -> RunView:
        record = self._interrupted.get(record_id) or find(self._store.root, record_id)
        usage, series = record.usage, record.series
        return RunView(
            record=record,
            elapsed=usage.wall_time if usage else 0.0,
            peak=usage.peak_memory.value if usage and usage.peak_memory else None,
            t=series.t if series else (),
            memories=series.memory if series else (),
        )

    def _is_one_over(self) -> bool:
        return any(live.is_over() for live in self._lives.values())

    def _refresh(self, moment: Seconds) -> None:
        """See which runs are in progress now."""
        store, now = self._store, self._watching.now()
        over = finalise_interrupted(store.root, store.machine)
        self._interrupted |= {record.id: record for record in over}
        everyone = running(store.root, store.machine, now)
        runs = [one for one in everyone if one.record.id not in self._interrupted]
        self._runs = sorted(runs, key=lambda one: one.record.started, reverse=True)
        for gone in self._lives.keys() - {one.record.id for one in self._runs}:
            self._lives.pop(gone).close()
        for one in self._runs:
            self._life(one.record.id).refresh(one)
        self._refreshed = moment

    def _life(self, record_id: str) -> LiveRun:
        if record_id not in self._lives:
            self._lives[record_id] = LiveRun(
                self._store.root,
                record_id,
                self._store.machine,
                proc=self._watching.proc,
                now=self._watching.now,
            )
        return self._lives[record_id]

    def _find(self, name: str) -> str:
        """Return the id of the run in progress called *name*, the newest of several."""
        records = [one.record for one in self._runs]
        if name == LAST and records:
            return records[0].id
        record = find_running(records, name)
        if record is None:
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
                f"run {ended.id} has ended ({ended.state}): "
                f"weigh records show {ended.id}"
            )
        return record.id

    def _own_processes(self) -> tuple[UserProcess, ...] | None:
        if not hasattr(os, "geteuid"):
            return None
        return read_processes(os.geteuid(), self._watching.proc)

    def _machine(self) -> MachineView:
        free = _available(f"{self._watching.proc}/meminfo")
        total = self._host.memory
        used = None if free is None or total is None else total - free
        try:
            load = os.getloadavg()[0]
        except (OSError, AttributeError):  # not on Windows
            load = None
        return MachineView(
            self._host.name, self._host.cpus, used, total, load, os.cpu_count()
        )


class _Meter:
    """Gives each process its share of a CPU between two looks, and its command."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._last: dict[tuple[int, int], Seconds] = {}
        self._commands: dict[tuple[int, int], str] = {}
        self._at: Seconds = 0.0

    def views(
        self, processes: Sequence[UserProcess] | None, moment: Seconds
    ) -> tuple[ProcessView, ...] | None:
        """Return the processes, the biggest first."""
        if processes is None:
            return None
        since, before = moment - self._at, self._last
        self._at = moment
        self._last = {_name(one): one.cpu_time for one in processes}
        known = self._commands
        self._commands = {
            _name(one): known.get(_name(one)) or self._command(one) for one in processes
        }
        ordered = sorted(processes, key=lambda one: (-one.resident, one.pid))
        return tuple(
            ProcessView(
                one.pid,
                self._commands[_name(one)],
                one.resident,
                _busy(before.get(_name(one)), one.cpu_time, since),
            )
            for one in ordered
        )

    def _command(self, process: UserProcess) -> str:
        command = read_command(process.pid, self._proc)
        return short_command(command) if command else process.name


def _name(process: UserProcess) -> tuple[int, int]:
    return process.pid, process.start_ticks


def _busy(before: Seconds | None, now: Seconds, since: Seconds) -> float | None:
    if before is None or since <= 0:
        return None
    return max(0.0, now - before) / since


def _request(record: Record, headroom: float) -> Request | None:
    """Work out what to ask for if it ended now; None where nothing is known yet."""
    try:
        return from_usages([record], headroom=headroom)
    except UsageError:
        return None


def _gpus(look: GpuLook, names: dict[int, str]) -> tuple[GpuView, ...]:
    readings = {one.uuid: one for one in look.readings}
    return tuple(_gpu(one, readings.get(one.uuid), names) for one in look.devices)


def _gpu(
    device: GpuDevice, reading: GpuReading | None, names: dict[int, str]
) -> GpuView:
    if reading is None:
        return GpuView(device.index, device.name, memory_total=device.memory_total)
    memory = reading.process_memory or {}
    is_told = reading.process_memory is not None or reading.processes is not None
    on_it = {*memory, *(reading.processes or ())}
    holders = [GpuHolder(pid, names[pid], memory.get(pid)) for pid in on_it & {*names}]
    return GpuView(
        device.index,
        device.name,
        reading.memory_used,
        device.memory_total,
        reading.utilization,
        tuple(sorted(holders, key=lambda one: (-(one.memory or 0), one.pid))),
        len(on_it) - len(holders) if is_told else None,
        reading.lost,
    )


def _available(path: str) -> Bytes | None:
    """Read MemAvailable of meminfo, which is what programs could still get."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * KIB
    except (OSError, IndexError, ValueError):
        return None
    return None
