"""Turn the readings of one GPU into the job's usage of it.

Neither clock nor driver is touched here, so that each rule can be tried on readings
made up for it.
"""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf
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


class _BoundedMean(msgspec.Struct):
    """Sum and bounds of a figure over the samples that had it."""

    count: int = 0
    total: float = 0.0
    least: float = inf
    most: float = -inf

    def add(self, value: float | None) -> None:
        """Add a value, unless it was not measured."""
        if value is not None:
            self.count += 1
            self.total += value
            self.least, self.most = min(self.least, value), max(self.most, value)


def is_process_of_mine(pid: int) -> bool:
    """Return whether *pid* is a process of this user here."""
    try:
        return pid > 0 and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except (OSError, AttributeError):  # gone, hidden, or no such system
        return False


class GpuAccount:
    """The usage of one GPU so far; *started* is when the job could first use it.

    *exists* returns whether a process id is valid here: in a container, the driver's
    ids may not be. *is_mine*: whether it is this user's. *joined*: the job was running
    before the first reading, so the memory in use then may be its own. ``mixed``: jobs
    with other accounts used the GPU too, so a rise of its memory may be theirs.
    """

    def __init__(
        self,
        device: GpuDevice,
        started: Seconds,
        exists: Callable[[int], bool] = is_process_id_in_use,
        *,
        is_mine: Callable[[int], bool] = is_process_of_mine,
        joined: bool = False,
    ) -> None:
        self.device = device
        self.moments: list[GpuMoment] = []
        self.last: GpuReading | None = None
        self.mixed = joined
        self._joined = joined
        self.lost_at: Seconds | None = None
        self.idle_since: Seconds | None = None  # None: unknown
        self._started = started
        self._exists = exists
        self._is_mine = is_mine
        self._other: Bytes | None = None  # of this user's other processes, the most
        self._busy_for_nobody = False  # that is known to be another user's
        # bytes in use at the first reading, without the job's own
        self.before: Bytes | None = None
        self._first: Seconds | None = None  # time of the first reading
        self.device_peak: Bytes | None = None  # the most in use, of all users
        self._job_peak: Bytes | None = None  # by the driver's list; None: it has none
        self._peaks: dict[int, Bytes] = {}  # of each process of the job
        # in use by nobody listed, at the start; None: no list was checked
        self._unlisted: Bytes | None = None
        self._explained: Bytes = 0  # the most in use that the lists explained
        self._unexplained: Bytes = 0  # the most in use that no list has explained since
        self._figures = {name: _BoundedMean() for name in (*_OF_READINGS, *_OF_THE_BUS)}
        # at the start, and the last ones
        self._first_counters: GpuCounters | None = None
        self._counters = GpuCounters()
        self._xids: list[int] | None = None
        self._slowed: Counter[str] = Counter()  # looks at which each reason held
        self._slowed_looks = 0

    def take(self, time: Seconds, reading: GpuReading, tree: Collection[int]) -> None:
        """Add one reading; *tree* are the job's processes at that time."""
        if reading.lost and self.lost_at is None:
            self.lost_at = time - self._started
        self.last = reading
        job, used = self._job_memory(reading, tree), reading.memory_used
        if used is not None:
            if self.before is None:
                self.before = max(0, used - (job or 0))
            self.device_peak = max(self.device_peak or 0, used)
            self._keep(GpuMoment(time, used, job))
        elif job is not None:  # for GPUs that share the host's memory
            self._keep(GpuMoment(time, job, job))
        if self._first is None:
            self._first = time
            return  # what was going on before the job is not its own
        # busy, and not for other users' processes alone: perhaps for the job
        if reading.utilization and not self._is_others(reading.processes, tree):
            self._busy_for_nobody = True
        for name in _OF_READINGS:
            self._figures[name].add(getattr(reading, name))
        is_known = reading.utilization is not None
        if reading.utilization or (is_known and self.idle_since is None):
            self.idle_since = time
        if reading.slowed is not None:
            self._slowed_looks += 1
            self._slowed.update(reading.slowed)

    def take_counters(self, counters: GpuCounters) -> None:
        """Add what the driver has counted by now; the first time, before the job."""
        if self._first_counters is None:
            self._first_counters = counters
        else:
            self._counters = counters
        if counters.xids is not None:
            self._xids = [*(self._xids or []), *counters.xids]

    def take_bus(self, traffic: Sequence[Bytes | None]) -> None:
        """Add the bytes per second to and from the GPU at one moment."""
        for name, rate in zip(_OF_THE_BUS, traffic, strict=True):
            self._figures[name].add(rate)

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
        return used, before + (self._job_peak or 0)

    def usage(self) -> GpuUsage:
        """Return the usage so far."""
        device, looks = self.device, self._slowed_looks
        peak, source = self._peak()
        # what the driver has counted since the job began
        first = self._first_counters or GpuCounters()
        counted = {
            name: _increase(getattr(first, name), getattr(self._counters, name))
            for name in _COUNTED
        }
        xids, is_lost = tuple(self._xids or ()), self.lost_at is not None
        health = health_of(self._counters, xids, counted["ecc_errors"], lost=is_lost)
        return GpuUsage(
            uuid=device.uuid,
            name=device.name,
            memory_total=device.memory_total,
            memory_before=None if self.mixed and source is None else self.before,
            peak_memory=peak,
            process_peak_memory=self._job_peak or 0 if source == PER_PROCESS else None,
            source=source,
            xid_errors=None if self._xids is None else len(self._xids),
            index=device.index,
            memory_reserved=device.memory_reserved,
            device_peak_memory=self.device_peak,
            xids=xids,
            processes=tuple(
                GpuProcess(*one)
                for one in sorted(self._peaks.items())[:_MOST_PROCESSES]
            ),
            preallocated=preallocated(self.job_moments(), device.memory_total),
            slowed={name: 100 * count / looks for name, count in self._slowed.items()}
            if looks
            else None,
            other_memory=self._other,
            health=health,
            **counted,
            **self._means_and_bounds(),
        )

    def _means_and_bounds(self) -> dict[str, Any]:
        """Return mean, highest and lowest of each figure, by its field's name."""
        found: dict[str, Any] = {}
        for name, figure in self._figures.items():
            if figure.count:
                mean = figure.total / figure.count
                if name in _OF_THE_BUS:
                    found[name] = round(mean)
                else:
                    found[f"{name}_mean"] = mean
                found |= {f"{name}_max": figure.most, f"{name}_min": figure.least}
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
        for pid, memory in listed.items():
            if pid in tree:
                self._peaks[pid] = max(self._peaks.get(pid, 0), memory)
        # one that ended may stay listed for a moment: it is still the job's
        others = {pid: listed[pid] for pid in listed if pid not in self._peaks}
        total = sum(listed.values()) - sum(others.values())
        self._job_peak = max(self._job_peak or 0, total)
        also = [memory for pid, memory in others.items() if self._is_mine(pid)]
        if also:
            self._other = max(self._other or 0, sum(also))
        if reading.memory_used is not None:
            of_others = sum(others[pid] for pid in others if self._exists(pid))
            self._check(reading.memory_used, total, of_others)
        return total

    def _check(self, used: Bytes, own: Bytes, others: Bytes) -> None:
        """Check whether the listed processes explain what is in use.

        In a container the list is empty or has ids of elsewhere; some drivers list a
        process with 0 bytes, or as process 0. When a process ends, its memory may stay
        in use for a moment: only what exceeds the most explained before is a doubt.
        """
        unlisted = max(0, used - own - others)
        if self._unlisted is None:
            # of a job that was joined, the memory at the start may be its own
            self._unlisted = 0 if self._joined and not own else unlisted
        slack = max(UNTOUCHED, int(_UNLISTED_SHARE * (own + others)))
        # explained: within what contexts and the driver hold for themselves
        if unlisted <= self._unlisted + slack:
            self._explained = max(self._explained, used)
            if self._unexplained <= self._explained + slack:
                self._unexplained = 0
        elif used > self._explained + slack:
            self._unexplained = max(self._unexplained, used)

    def _is_per_process(self) -> bool:
        """Return whether the driver's list of processes explains the GPU's memory.

        An empty one explains nothing where that memory cannot be read.
        """
        is_seen = bool(self._job_peak) or self._unlisted is not None
        return self._job_peak is not None and is_seen and not self._unexplained

    def _is_others(
        self, processes: Sequence[int] | None, tree: Collection[int]
    ) -> bool:
        """Return whether all *processes*, of which there are some, are other users'."""
        return bool(processes) and not any(
            pid in tree
            or pid in self._peaks
            or self._is_mine(pid)
            or not self._exists(pid)
            for pid in processes or ()
        )

    def _rise(self) -> Bytes:
        return (self.device_peak or 0) - (self.before or 0)

    def _peak(self) -> tuple[Bytes | None, str | None]:
        is_untouched = not self._job_peak and self._rise() <= UNTOUCHED
        if self._busy_for_nobody and is_untouched and not self._other:
            return None, None  # at work, and nobody knows for whom
        if self._is_per_process():
            return self._job_peak, PER_PROCESS
        # without a baseline, or with jobs of others, a rise may be somebody else's
        if self.mixed or self.before is None or self._first is None:
            return None, None
        late = self._first - self._started
        words = f"; first looked {late:.1f} s after the start" if late > _LATE else ""
        return self._rise(), DEVICE_RISE + words


def health_of(
    wear: GpuCounters, xids: Sequence[int], ecc_errors: int | None, *, lost: bool
) -> str | None:
    """Return whether a GPU is healthy, or why not; None if nothing is reported."""
    faults = sorted(GPU_FAULTS.intersection(xids))
    # the worst first: only one is shown
    wrong = (
        (lost, "failing: fell off the bus"),
        (wear.failed, "failing: no spare memory rows left"),
        (faults, f"failing: XID {faults[0] if faults else ''}"),
        (ecc_errors, f"failing: {ecc_errors} uncorrected memory errors"),
        (wear.pending, "needs a reset: memory to take out of use"),
    )
    for is_so, words in wrong:
        if is_so:
            return words
    worn = (
        (wear.retired_pages, "pages retired"),
        (wear.remapped_rows, "rows remapped"),
    )
    if ecc_errors is None and all(number is None for number, _ in worn):
        return None
    return ", ".join(
        [HEALTHY, *(f"{number} {what}" for number, what in worn if number)]
    )


def idle_for(accounts: Collection[GpuAccount], current_time: Seconds) -> Seconds | None:
    """Return the seconds since any GPU was busy; None if unknown for one."""
    since = [account.idle_since for account in accounts]
    known = [moment for moment in since if moment is not None]
    return current_time - max(known) if known and len(known) == len(since) else None


def gpu_columns(
    rows: Sequence[Sequence[tuple[Seconds, Bytes]]], times: Sequence[Seconds]
) -> tuple[tuple[Bytes, ...], ...]:
    """Return each GPU's memory at *times*, from (time, memory) pairs, with all peaks.

    Each column has, at a time, the most held since the time before; what was held
    after the last time counts there. *times* rise.
    """
    columns: list[tuple[Bytes, ...]] = []
    for row in rows:
        since: list[list[Bytes]] = [[] for _ in times]
        for time, size in row if times else ():
            since[min(bisect_left(times, time), len(times) - 1)].append(size)
        held = 0
        column: list[Bytes] = []
        for sizes in since:
            column.append(max(sizes, default=held))
            held = (sizes or [held])[-1]
        columns.append(tuple(column))
    return tuple(columns)


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
