"""What many jobs held and used, by user, account, queue and name, from accounting.

All of it is one pass over the jobs, none of which is kept: sums for each combination of
user, account, queue and name, and a few numbers for each kind of job, from which a
better request follows.
"""

import math
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from weigh.estimate.history import ENOUGH, MOST_SEEN, Prediction, Replay
from weigh.estimate.sampled import Accounts, Seen
from weigh.model.record import State
from weigh.model.report import Accounted, PastJob
from weigh.render.report_group import BY, Better, Grouped, Sums
from weigh.render.report_waste import Hours
from weigh.request import COMPLETED, LEAST_MEMORY, round_memory
from weigh.schedulers.protocol import Kind
from weigh.units import GIB, HOUR, Bytes, Seconds

OUT_OF_MEMORY, TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_DOUBLED = 2
_TIME_MARGIN = 0.1
_ENDED: frozenset[State] = frozenset(
    (
        *("COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"),
        *("CANCELLED", "NODE_FAIL", "PREEMPTED"),
    )
)
_FAILED = frozenset(("FAILED", "NODE_FAIL"))
_KILLED = frozenset((OUT_OF_MEMORY, TIMEOUT))
_FEW = 3  # completed jobs from which a better request follows
_WORTH = 0.8  # of the request: a change that saves less is not proposed
_IDLE = 0.15  # of a GPU's time
_VARIED, _VARIED_UNNAMED = 1.0, 0.5  # standard deviation of the logarithms of memory
_CPU_TOLERANCE = 0.1  # as `weigh request` rounds CPUs
_MOST_KINDS = 50_000  # of which requests are worked out
_MOST_BETTER = 10


class Jobs:
    """Jobs of one kind, in a few numbers: enough to work out their request."""

    def __init__(self, name: str, *, replays: bool = True) -> None:
        self.name = name
        self.memory = Accounts(replays=replays)
        self.states: Counter[str] = Counter()
        self.longest: Seconds = 0.0
        self.stopped: Seconds = 0.0  # by the time limit
        self.time_limit = self.gpus = self.cpus = 0
        self.requested: Bytes = 0
        self.most: Bytes = 0
        self.elapsed: Seconds = 0.0  # of those that completed
        self.busiest: float | None = 0.0  # CPUs, None if unknown for one of them
        self.gpu_held: Seconds = 0.0
        self.gpu_busy: Seconds | None = 0.0  # None if accounting does not show it

    def add(self, job: PastJob, every: Seconds, *, by_addresses: bool) -> None:
        """Learn from one more job, sampled *every* so many seconds."""
        figures = job.accounted
        wall_time = figures.wall_time or 0.0
        self.states[figures.state] += 1
        size = figures.virtual_memory if by_addresses else figures.max_rss
        if figures.state == COMPLETED:
            looks = int(wall_time / every)
            self.memory.add(Seen(size or 0, looks, figures.memory_asked, wall_time))
            self.most = max(self.most, size or 0)
            self.longest = max(self.longest, wall_time)
            self.time_limit = max(self.time_limit, figures.time_limit or 0)
            self.elapsed += wall_time
            self._use_cpus(figures.cpu_time, wall_time)
        elif figures.state == OUT_OF_MEMORY:
            self.memory.add_kill(max(size or 0, figures.memory_asked or 0))
        elif figures.state == TIMEOUT:
            self.stopped = max(self.stopped, wall_time)
        self.cpus = max(self.cpus, figures.cpus or 1)
        self.requested = max(self.requested, figures.memory_asked or 0)
        if figures.gpus:
            self.gpus = max(self.gpus, figures.gpus)
            self._use_gpus(figures.gpus * wall_time, figures.gpu_utilization)

    def _use_cpus(self, cpu_time: Seconds | None, wall_time: Seconds) -> None:
        if cpu_time is None or not wall_time or self.busiest is None:
            self.busiest = None
        else:
            self.busiest = max(self.busiest, cpu_time / wall_time)

    def _use_gpus(self, held: Seconds, busy: float | None) -> None:
        self.gpu_held += held
        if busy is None or self.gpu_busy is None:
            self.gpu_busy = None
        else:
            self.gpu_busy += held * busy

    def time(self) -> Prediction:
        """Return the time to request: elapsed times are exact."""
        value = self.longest * (1 + _TIME_MARGIN)
        is_cut = self.stopped > self.longest
        if is_cut:
            value = self.stopped * _DOUBLED
        is_proven = not is_cut and 0 < self.time_limit < value
        return Prediction(
            value=float(self.time_limit) if is_proven else value,
            risk="low",
            by=MOST_SEEN,
            margin=_TIME_MARGIN,
            runs=self.states[COMPLETED],
            replay=Replay(),
            after_kill=value if is_cut else None,
            is_proven=is_proven,
        )

    def memory_request(self) -> Bytes | None:
        """Return the memory to request in bytes, rounded; None if nothing is known."""
        said = self.memory.predict()
        proven = self.memory.proven
        if said is None or said.runs < ENOUGH:
            return None if proven is None else round(proven)
        rounded = max(LEAST_MEMORY, round_memory(said.value))
        return rounded if proven is None else min(rounded, round(proven))

    def enough_memory(self, varied: float) -> Bytes | None:
        """Return a much smaller request for memory; None if there is none.

        *varied* is the most spread with which the jobs count as alike.
        """
        said = self.memory.predict()
        if said is None or said.runs < _FEW or self.states[OUT_OF_MEMORY]:
            return None
        new = self.memory_request()
        if new is None or self.memory.spread > varied:
            return None
        return new if new <= _WORTH * self.requested else None

    def enough_cpus(self) -> int | None:
        """Return a much smaller number of CPUs; None if there is none."""
        if self.busiest is None or self.states[COMPLETED] < _FEW:
            return None
        new = max(1, math.ceil(self.busiest - _CPU_TOLERANCE))
        return new if new <= _WORTH * self.cpus else None


class Group:
    """Adds up jobs; `summary` is what the report shows.

    *every* are the seconds between samples of memory. At sites that want memory
    *per_cpu*, lines to write have it so.
    """

    def __init__(self, kind: Kind, every: Seconds, *, per_cpu: bool = False) -> None:
        self._kind = kind
        self._every = every
        self._per_cpu = per_cpu
        self._by_addresses = kind.traits.address_space is not None
        self._cells: dict[tuple[str, str, str, str], _Cell] = {}
        self._kinds: dict[tuple[object, ...], tuple[Jobs, int, bool]] = {}
        self._waits: dict[str, array[float]] = {}
        self.running = self.dropped = self.unsampled = 0

    def add(self, job: PastJob, name: str, *, is_named: bool) -> None:
        """Count a job; *name* is what such jobs are called, if it *is_named*."""
        figures = job.accounted
        if figures.state not in _ENDED:
            self.running += 1
            return
        key = (job.user or "", job.account or "", job.queue or "", name)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        self._count_wait(job, key[2])
        is_sampled = cell.add(figures, by_addresses=self._by_addresses)
        if figures.wall_time:
            self.unsampled += not is_sampled
            self._learn(job, name, is_named=is_named)

    def _learn(self, job: PastJob, name: str, *, is_named: bool) -> None:
        """Learn what such jobs need: those of one user with one constant request."""
        figures = job.accounted
        nodes = figures.nodes or 1
        asked = (figures.cpus, figures.memory_asked, nodes, figures.gpus)
        place = (job.user or "", name, *asked)
        known = self._kinds.get(place)
        if known is None:
            if len(self._kinds) >= _MOST_KINDS:
                return
            jobs = Jobs(name, replays=False)
            known = self._kinds[place] = (jobs, nodes, is_named)
        known[0].add(job, self._every, by_addresses=self._by_addresses)

    def _count_wait(self, job: PastJob, queue: str) -> None:
        since = job.submitted if job.eligible is None else job.eligible
        if since is not None and job.started is not None and job.started >= since:
            self._waits.setdefault(queue, array("d")).append(job.started - since)

    def summary(self) -> Grouped:
        """Return the sums, the most first, and what would free most."""
        total = _Cell()
        by: dict[str, tuple[Sums, ...]] = {}
        for place, what in enumerate(BY):
            folded: dict[str, _Cell] = {}
            for key, cell in self._cells.items():
                if key[place]:
                    folded.setdefault(key[place], _Cell()).fold(cell)
            sums = (cell.sums(name) for name, cell in folded.items())
            by[what] = tuple(sorted(sums, key=lambda one: -one.held.weight))
        for cell in self._cells.values():
            total.fold(cell)
        by["queue"] = tuple(self._with_wait(one) for one in by["queue"])
        better = sorted(self._better(), key=lambda one: -one.frees.weight)
        return Grouped(
            total=total.sums(""),
            by=by,
            better=tuple(better[:_MOST_BETTER]),
            running=self.running,
            dropped=self.dropped,
            unsampled=self.unsampled,
            sampled=None if math.isinf(self._every) else self._every,
            counts_addresses=self._by_addresses,
        )

    def _with_wait(self, sums: Sums) -> Sums:
        waits = self._waits.get(sums.name)
        if not waits:
            return sums
        most = sorted(waits)[min(len(waits) - 1, round(0.9 * len(waits)))]
        return msgspec.structs.replace(
            sums, wait=statistics.median(waits), wait_long=most
        )

    def _better(self) -> Iterator[Better]:
        for place, (jobs, nodes, is_named) in self._kinds.items():
            memory = jobs.enough_memory(_VARIED if is_named else _VARIED_UNNAMED)
            cpus = jobs.enough_cpus() if nodes == 1 else None
            hours = jobs.elapsed / HOUR
            frees = Hours(
                cpu=0.0 if cpus is None else (jobs.cpus - cpus) * hours,
                memory=0.0
                if memory is None
                else (jobs.requested - memory) / GIB * nodes * hours,
                gpu=_idle_hours(jobs),
            )
            if not frees.weight:
                continue
            yield Better(
                user=str(place[0]),
                name=jobs.name,
                jobs=jobs.states.total(),
                requested=jobs.requested or None,
                most=jobs.most or None,
                cpus=jobs.cpus,
                busiest=jobs.busiest,
                gpus=jobs.gpus,
                gpu_busy=None
                if jobs.gpu_busy is None or not jobs.gpu_held
                else jobs.gpu_busy / jobs.gpu_held,
                frees=frees,
                line=line_of(
                    self._kind, jobs, memory, cpus, per_cpu=self._per_cpu, nodes=nodes
                ),
            )


def _idle_hours(jobs: Jobs) -> float:
    """Return the hours of GPUs that were nearly idle all of the time."""
    if jobs.gpu_busy is None or not jobs.gpu_held:
        return 0.0
    is_idle = jobs.gpu_busy / jobs.gpu_held < _IDLE
    return (jobs.gpu_held - jobs.gpu_busy) / HOUR if is_idle else 0.0


def line_of(  # noqa: PLR0913 - keyword-only past the fourth
    kind: Kind,
    jobs: Jobs,
    memory: Bytes | None,
    cpus: int | None,
    *,
    per_cpu: bool,
    nodes: int,
) -> str:
    """Return the flags to write for less *memory* and fewer *cpus*, if any of both.

    Memory that is requested per CPU or slot has to grow when these become fewer.
    """
    options, flags = kind.text.OPTIONS, []
    if cpus is not None:
        one = options.one_cpu if cpus == 1 else None
        flags.append(one or options.cpus.format(cpus))
    form = options.memory_per_cpu if per_cpu else None
    is_each = form is not None or kind.traits.address_space is not None
    if memory is None and cpus is not None and is_each and jobs.requested:
        memory = jobs.requested
    if memory is not None:
        share = max(1, (cpus or jobs.cpus) // nodes) if is_each else 1
        size = kind.text.format_memory(-(-memory // share))
        flags.append((form or options.memory).format(size))
    return " ".join(flags)


class _Cell:
    """Sums over jobs: seconds of CPUs and GPUs, byte-seconds of memory."""

    __slots__ = (
        *("jobs", "failed", "killed", "cpu_held", "cpu_known", "cpu_used"),
        *("memory_held", "memory_known", "memory_used", "gpu_held", "gpu_known"),
        *("gpu_used", "cpu_lost", "memory_lost", "gpu_lost"),
    )

    def __init__(self) -> None:
        self.jobs = self.failed = self.killed = 0
        self.cpu_held = self.cpu_known = self.cpu_used = 0.0
        self.memory_held = self.memory_known = self.memory_used = 0.0
        self.gpu_held = self.gpu_known = self.gpu_used = 0.0
        self.cpu_lost = self.memory_lost = self.gpu_lost = 0.0

    def add(self, one: Accounted, *, by_addresses: bool) -> bool:
        """Add a job; return whether its memory was sampled."""
        wall_time, nodes = one.wall_time or 0.0, one.nodes or 1
        asked = one.memory_asked or 0
        cpus, gpus = (one.cpus or 1) * wall_time, (one.gpus or 0) * wall_time
        memory = asked * nodes * wall_time
        self.jobs += 1
        self.cpu_held += cpus
        self.memory_held += memory
        self.gpu_held += gpus
        if one.state in _FAILED or one.state in _KILLED:
            self.failed += one.state in _FAILED
            self.killed += one.state in _KILLED
            self.cpu_lost += cpus
            self.memory_lost += memory
            self.gpu_lost += gpus
        if one.cpu_time is not None:
            self.cpu_known += cpus
            self.cpu_used += one.cpu_time
        if gpus and one.gpu_utilization is not None:
            self.gpu_known += gpus
            self.gpu_used += gpus * one.gpu_utilization
        size = one.virtual_memory if by_addresses else one.max_rss
        if size and asked:
            self.memory_known += memory
            self.memory_used += memory if size > asked else size * nodes * wall_time
        return bool(size)

    def fold(self, other: "_Cell") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def sums(self, name: str) -> Sums:
        return Sums(
            name=name,
            jobs=self.jobs,
            failed=self.failed,
            killed=self.killed,
            held=_hours(self.cpu_held, self.memory_held, self.gpu_held),
            known=_hours(self.cpu_known, self.memory_known, self.gpu_known),
            used=_hours(self.cpu_used, self.memory_used, self.gpu_used),
            lost=_hours(self.cpu_lost, self.memory_lost, self.gpu_lost),
        )


def _hours(cpu: float, memory: float, gpu: float) -> Hours:
    return Hours(cpu=cpu / HOUR, memory=memory / GIB / HOUR, gpu=gpu / HOUR)


def masked(found: Grouped, parts: Sequence[str] = ("user", "account")) -> Grouped:
    """Return *found* with numbers instead of the names of users and accounts."""
    names = {
        part: {one.name: f"{part} {n}" for n, one in enumerate(found.by[part], 1)}
        for part in parts
    }
    by = {
        part: tuple(
            msgspec.structs.replace(one, name=names[part][one.name])
            if part in parts
            else one
            for one in rows
        )
        for part, rows in found.by.items()
    }
    users = names.get("user", {})
    better = tuple(
        msgspec.structs.replace(one, user=users.get(one.user, one.user))
        for one in found.better
    )
    return msgspec.structs.replace(found, by=by, better=better)
