"""Turn the readings of one GPU into the job's usage of it.

Neither clock nor driver is touched here, so that each rule can be tried on readings
made up for it.
"""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from weigh.model.gpu import GPU_FAULTS, HEALTHY, UNTOUCHED, GpuProcess, GpuUsage
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading
from weigh.process_ids import is_process_id_in_use
from weigh.units import Bytes, Seconds

PER_PROCESS = "NVML per process"
DEVICE_RISE = (
    "NVML device memory minus what was in use before; other users' changes count too"
)
_MOST_MOMENTS = 4096  # of a GPU; beyond it, the larger of each two stays
_MOST_PROCESSES = 64  # of one GPU, whose figures are in the record one by one
# of the listed memory, what may be in use beyond it: processes that start are on no
# list yet, with 59 MiB of eight at once (eight_trainings_h100.json)
_UNLISTED_SHARE = 0.05
_LATE = 0.5  # seconds after the start; a later baseline is reported as late
# the figures of readings, and of the bus, whose mean and bounds are kept
_OF_READINGS = (
    *("utilization", "memory_utilization"),
    *("sm_clock", "memory_clock", "power"),
)
_OF_THE_BUS = ("pcie_rx", "pcie_tx")
_COUNTED = ("energy", "ecc_errors", "corrected_ecc_errors", "pcie_replays")


class GpuMoment(msgspec.Struct, frozen=True, gc=False):
    """A GPU's memory at one time: of all users, and of the job if known."""

    time: Seconds  # seconds, on the sampler's clock
    device: Bytes
    job: Bytes | None  # None: the driver does not list processes


def is_process_of_mine(pid: int) -> bool:
    """Return whether *pid* is a process of this user here."""
    try:
        return pid > 0 and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except (OSError, AttributeError):  # gone, hidden, or no such system
        return False


class GpuAccount(msgspec.Struct, eq=False):
    """The usage of one GPU so far."""

    device: GpuDevice
    started: Seconds  # when the job could first use it
    # whether a process id is valid here: in a container, the driver's may not be
    exists: Callable[[int], bool] = is_process_id_in_use
    is_mine: Callable[[int], bool] = is_process_of_mine
    # the job was running before the first reading: memory in use then may be its own
    joined: bool = False
    # a rise may be of others: the job was joined, or jobs with other accounts use it
    mixed: bool = False
    moments: list[GpuMoment] = []
    last: GpuReading | None = None
    first_looked: Seconds | None = None
    lost_at: Seconds | None = None
    idle_since: Seconds | None = None  # None: unknown
    # at the first reading, without the job's own
    before: Bytes | None = None
    device_peak: Bytes | None = None  # the most in use, of all users
    job_peak: Bytes | None = None  # by the driver's list; None: it has none
    process_peaks: dict[int, Bytes] = {}  # of the job's, some of which have ended
    other_peak: Bytes | None = None  # of this user's other processes
    busy_for_nobody: bool = False  # that is known to be another user's
    # in use by nobody listed, at the start; None: no list was checked
    unlisted: Bytes | None = None
    explained: Bytes = 0  # the most in use that the lists explained
    unexplained: Bytes = 0  # the most in use that no list has explained since
    # of each figure over the readings that had it: count, sum, least, most
    figures: dict[str, tuple[int, float, float, float]] = {}
    first_counters: GpuCounters | None = None
    counters: GpuCounters = GpuCounters()
    xids: list[int] | None = None
    slowed: Counter[str] = msgspec.field(default_factory=Counter)  # looks, by reason
    slowed_looks: int = 0

    def __post_init__(self) -> None:
        self.mixed = self.mixed or self.joined

    def take(self, time: Seconds, reading: GpuReading, tree: Collection[int]) -> None:
        """Add one reading; *tree* are the job's processes at that time."""
        if reading.lost and self.lost_at is None:
            self.lost_at = time - self.started
        self.last = reading
        job, used = self._job_memory(reading, tree), reading.memory_used
        if used is not None:
            if self.before is None:
                self.before = max(0, used - (job or 0))
            self.device_peak = max(self.device_peak or 0, used)
            self._keep(GpuMoment(time, used, job))
        elif job is not None:  # for GPUs that share the host's memory
            self._keep(GpuMoment(time, job, job))
        if self.first_looked is None:
            self.first_looked = time
            return  # what was going on before the job is not its own
        # busy, and not for other users' processes alone: perhaps for the job
        if reading.utilization and not self._are_others(reading.processes or (), tree):
            self.busy_for_nobody = True
        for name in _OF_READINGS:
            self._add(name, getattr(reading, name))
        if reading.utilization or (reading.utilization == 0 and not self.idle_since):
            self.idle_since = time
        if reading.slowed is not None:
            self.slowed_looks += 1
            self.slowed.update(reading.slowed)

    def take_counters(self, counters: GpuCounters) -> None:
        """Add what the driver has counted by now; the first time, before the job."""
        if self.first_counters is None:
            self.first_counters = counters
        else:
            self.counters = counters
        if counters.xids is not None:
            self.xids = [*(self.xids or []), *counters.xids]

    def take_bus(self, traffic: Sequence[Bytes | None]) -> None:
        """Add the bytes per second to and from the GPU at one moment."""
        for name, rate in zip(_OF_THE_BUS, traffic, strict=True):
            self._add(name, rate)

    def job_moments(self) -> list[tuple[Seconds, Bytes]]:
        """Return the job's memory over time, by the same rule as the peak."""
        if self._is_per_process():
            return [(one.time, one.job or 0) for one in self.moments]
        if self.mixed:
            return []
        before = self.before or 0
        return [(one.time, max(0, one.device - before)) for one in self.moments]

    def in_use(self) -> tuple[Bytes | None, Bytes | None]:
        """Return the job's memory on top of what was in use before it: now, and most.

        Without the driver's figures per process, that is all that is in use.
        """
        used = None if self.last is None else self.last.memory_used
        if not self._is_per_process():
            return used, self.device_peak
        before = self.before or 0
        if used is not None:  # it may not answer any more
            used = before + (self.moments[-1].job or 0)
        return used, before + (self.job_peak or 0)

    def usage(self) -> GpuUsage:
        """Return the usage so far."""
        device, looks = self.device, self.slowed_looks
        peak, source = self._peak()
        # what the driver has counted since the job began
        first = self.first_counters or GpuCounters()
        counted = {
            name: _increase(getattr(first, name), getattr(self.counters, name))
            for name in _COUNTED
        }
        xids, is_lost = tuple(self.xids or ()), self.lost_at is not None
        health = health_of(self.counters, xids, counted["ecc_errors"], lost=is_lost)
        return GpuUsage(
            uuid=device.uuid,
            name=device.name,
            memory_total=device.memory_total,
            memory_before=None if self.mixed and source is None else self.before,
            peak_memory=peak,
            process_peak_memory=self.job_peak or 0 if source == PER_PROCESS else None,
            source=source,
            xid_errors=None if self.xids is None else len(self.xids),
            index=device.index,
            memory_reserved=device.memory_reserved,
            device_peak_memory=self.device_peak,
            xids=xids,
            processes=tuple(
                GpuProcess(*one)
                for one in sorted(self.process_peaks.items())[:_MOST_PROCESSES]
            ),
            preallocated=preallocated(self.job_moments(), device.memory_total),
            slowed={name: 100 * count / looks for name, count in self.slowed.items()}
            if looks
            else None,
            other_memory=self.other_peak,
            health=health,
            **counted,
            **self._means_and_bounds(),
        )

    def _add(self, name: str, value: float | None) -> None:
        """Add a value to a figure, unless it was not measured."""
        if value is not None:
            count, total, least, most = self.figures.get(name, (0, 0.0, value, value))
            bounds = min(least, value), max(most, value)
            self.figures[name] = (count + 1, total + value, *bounds)

    def _means_and_bounds(self) -> dict[str, Any]:
        """Return mean, highest and lowest of each figure, by its field's name."""
        found: dict[str, Any] = {}
        for name, (count, total, least, most) in self.figures.items():
            mean = total / count
            # of the bus whole bytes, under its own name
            found |= (
                {name: round(mean)} if name in _OF_THE_BUS else {f"{name}_mean": mean}
            )
            found |= {f"{name}_max": most, f"{name}_min": least}
        return found

    def _keep(self, moment: GpuMoment) -> None:
        """Store a moment; if there are many, keep the larger one of each two."""
        self.moments.append(moment)
        if len(self.moments) >= _MOST_MOMENTS:
            pairs = zip(self.moments[::2], self.moments[1::2], strict=False)
            # the job's memory decides, or else the device's
            self.moments = [
                max(pair, key=lambda moment: (moment.job or 0, moment.device))
                for pair in pairs
            ]

    def _job_memory(self, reading: GpuReading, tree: Collection[int]) -> Bytes | None:
        """Add up the memory that the driver lists for the job's processes."""
        listed = reading.process_memory
        if listed is None:
            return None
        for pid in filter(tree.__contains__, listed):
            self.process_peaks[pid] = max(self.process_peaks.get(pid, 0), listed[pid])
        # one that ended may stay listed for a moment: it is still the job's
        others = {pid: listed[pid] for pid in listed.keys() - self.process_peaks.keys()}
        total = sum(listed.values()) - sum(others.values())
        self.job_peak = max(self.job_peak or 0, total)
        mine = [memory for pid, memory in others.items() if self.is_mine(pid)]
        if mine:
            self.other_peak = max(self.other_peak or 0, sum(mine))
        if reading.memory_used is not None:
            of_others = sum(others[pid] for pid in others if self.exists(pid))
            self._check(reading.memory_used, total, of_others)
        return total

    def _check(self, used: Bytes, own: Bytes, others: Bytes) -> None:
        """Check whether the listed processes explain what is in use.

        In a container the list is empty or has ids of elsewhere; some drivers list a
        process with 0 bytes, or as process 0. When a process ends, its memory may stay
        in use for a moment: only what exceeds the most explained before is a doubt.
        """
        unlisted = max(0, used - own - others)
        if self.unlisted is None:
            # of a job that was joined, the memory at the start may be its own
            self.unlisted = 0 if self.joined and not own else unlisted
        slack = max(UNTOUCHED, int(_UNLISTED_SHARE * (own + others)))
        # explained: within what contexts and the driver hold for themselves
        if unlisted <= self.unlisted + slack:
            self.explained = max(self.explained, used)
            if self.unexplained <= self.explained + slack:
                self.unexplained = 0
        elif used > self.explained + slack:
            self.unexplained = max(self.unexplained, used)

    def _is_per_process(self) -> bool:
        """Return whether the driver's list of processes explains the GPU's memory.

        An empty one explains nothing where that memory cannot be read.
        """
        is_seen = bool(self.job_peak) or self.unlisted is not None
        return self.job_peak is not None and is_seen and not self.unexplained

    def _are_others(self, processes: Collection[int], tree: Collection[int]) -> bool:
        """Return whether there are *processes*, and all of them are other users'."""
        own = {*tree, *self.process_peaks}
        return bool(processes) and all(
            self.exists(pid) and not self.is_mine(pid) and pid not in own
            for pid in processes
        )

    def _rise(self) -> Bytes:
        return (self.device_peak or 0) - (self.before or 0)

    def _peak(self) -> tuple[Bytes | None, str | None]:
        is_untouched = not self.job_peak and self._rise() <= UNTOUCHED
        if self.busy_for_nobody and is_untouched and not self.other_peak:
            return None, None  # at work, and nobody knows for whom
        if self._is_per_process():
            return self.job_peak, PER_PROCESS
        # without a baseline, or with jobs of others, a rise may be somebody else's
        if self.mixed or self.before is None or self.first_looked is None:
            return None, None
        late = self.first_looked - self.started
        words = f"; first looked {late:.1f} s after the start" if late > _LATE else ""
        return self._rise(), DEVICE_RISE + words


def health_of(
    wear: GpuCounters, xids: Sequence[int], ecc_errors: int | None, *, lost: bool
) -> str | None:
    """Return whether a GPU is healthy, or why not; None if nothing is reported."""
    faults = GPU_FAULTS.intersection(xids)
    # the worst first: only one is shown
    for is_so, words in (
        (lost, "failing: fell off the bus"),
        (wear.failed, "failing: no spare memory rows left"),
        (faults, f"failing: XID {min(faults, default=0)}"),
        (ecc_errors, f"failing: {ecc_errors} uncorrected memory errors"),
        (wear.pending, "needs a reset: memory to take out of use"),
    ):
        if is_so:
            return words
    worn = {"pages retired": wear.retired_pages, "rows remapped": wear.remapped_rows}
    if ecc_errors is None and all(number is None for number in worn.values()):
        return None
    taken_out = (f"{number} {what}" for what, number in worn.items() if number)
    return ", ".join([HEALTHY, *taken_out])


def idle_for(accounts: Collection[GpuAccount], current_time: Seconds) -> Seconds | None:
    """Return the seconds since any GPU was busy; None if unknown for one."""
    since = [account.idle_since for account in accounts]
    known = [moment for moment in since if moment is not None]
    return current_time - max(known) if known and len(known) == len(since) else None


def gpu_column(
    row: Sequence[tuple[Seconds, Bytes]], times: Sequence[Seconds]
) -> tuple[Bytes, ...]:
    """Return a GPU's memory at rising *times*, from (time, memory) pairs.

    It is, at a time, the most held since the time before; what was held after the last
    time counts there.
    """
    since: list[list[Bytes]] = [[] for _ in times]
    for time, size in row if times else ():
        since[min(bisect_left(times, time), len(times) - 1)].append(size)
    column: list[Bytes] = []
    held = 0
    for sizes in since:
        column.append(max(sizes, default=held))
        held = (sizes or [held])[-1]
    return tuple(column)


def _increase(before: Any, after: Any) -> Any:  # noqa: ANN401 - a whole number or not
    return None if before is None or after is None else max(0, after - before)


# shares of the GPU: taken at once, and held before; of the peak: what comes later is
# little. JAX takes 75 % with its first operation (its page on GPU memory)
_LEAST, _BEFORE, _KEPT = 0.7, 0.1, 0.97
_AT_ONCE: Seconds = 0.5  # some samples; the CUDA context comes just before


def preallocated(
    held: Sequence[tuple[Seconds, Bytes]], total: Bytes | None
) -> Bytes | None:
    """Return what a job took at once, if that is most of a GPU and of its peak.

    *held* is the job's memory on the GPU over time, *total* the GPU's. Such a peak is
    no measure of the need.
    """
    peak = max((size for _, size in held), default=0)
    if not total or peak < _LEAST * total:
        return None
    reached = next(at for at, (_, size) in enumerate(held) if size >= _KEPT * peak)
    time, size = held[reached]
    earlier = [size for at, size in held[:reached] if at < time - _AT_ONCE]
    before = (earlier or [held[0][1]])[-1]
    # memory that was held before shows that the GPU was filled in steps
    is_at_once = before <= _BEFORE * total and size - before >= _LEAST * total
    return size - before if is_at_once else None
