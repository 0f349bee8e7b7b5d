"""One run: its samples, its usage, and its record.

Key names are an interface: people's scripts read them. Bytes are integers, times are
seconds, energies joules; ``None`` means not measured and never zero.
"""

from typing import Literal

import msgspec

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.units import Bytes, Seconds, record_time_text

SCHEMA = "weigh.record/1"
_LONGEST_STEP = 9  # digits of a number

State = Literal[
    "PENDING",
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "STUCK",
    "DIVERGED",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "NODE_FAIL",
    "PREEMPTED",
    "INTERRUPTED",
    "UNKNOWN",
]


class TreeSample(msgspec.Struct, frozen=True):
    """One sample of a process tree.

    ``memory`` is what the tree would hold if it ran alone (shared pages count once).
    ``cpu_time`` counts the live processes only.
    """

    time: Seconds
    memory: Bytes
    cpu_time: Seconds | None  # None: the system hides it
    processes: int  # alive at that moment


# exact: the kernel's figure; counted: from samples of pages, but for an error of some
# per cent; guessed: of what was assumed, or what nobody saw
Certainty = Literal["exact", "counted", "guessed"]


LAUNCHER_FLOOR = "launcher floor"  # the source of a peak that is weigh's own


class PeakMemory(msgspec.Struct, frozen=True, omit_defaults=False):
    """The peak memory of a job, as if it ran alone on a node.

    ``low`` and ``high`` follow from the ``certainty``: of an exact figure they are the
    figure, but for what the kernel counts late. ``anonymous + shared + file +
    kernel`` describe the moment of the peak; ``file`` are mapped files the kernel can
    drop, ``kernel`` are page tables, stacks and the like. ``source`` is where the
    figure comes from.
    """

    value: Bytes
    low: Bytes
    high: Bytes
    anonymous: Bytes | None
    shared: Bytes | None
    file: Bytes | None
    source: str
    time: Seconds | None = None  # of the peak, since the run began; None: not known
    kernel: Bytes | None = None
    certainty: Certainty | None = None

    @property
    def is_bound(self) -> bool:
        """Return whether the command was too short: this is what started it."""
        return self.source == LAUNCHER_FLOOR


class ProgramPhase(msgspec.Struct, frozen=True):
    """A named region of a program; the times of several calls add up, peaks do not.

    ``start`` (of the first call) and ``end`` (of the last) are seconds since the run
    began; ``depth`` 0 is outermost; ``calls`` is 0 for a region that started and never
    ended. ``source`` is where ``peak_memory``, of this one process, comes from.
    """

    name: str
    depth: int
    calls: int
    start: Seconds
    end: Seconds
    wall_time: Seconds
    cpu_time: Seconds | None = None  # None: not measured, as for all that follow
    memory_before: Bytes | None = None
    memory_after: Bytes | None = None
    peak_memory: Bytes | None = None
    gpus: tuple[GpuMemory, ...] = ()
    rank: int | None = None  # of its process; None: there are no ranks
    source: str | None = None


class LengthPeak(msgspec.Struct, frozen=True):
    """The peak of a loop by the end of the first batch whose longest sample is so long.

    ``length`` is in tokens, characters or numbers; ``gpu_memory`` is torch's own, or
    that in use on the fullest GPU.
    """

    length: int
    memory: Bytes | None  # of the process that runs the loop
    gpu_memory: Bytes | None = None


class WholeLoopForecast(msgspec.Struct, frozen=True):
    """What all batches of a loop take, of which the longest and a few others ran.

    ``batches`` are all, ``longest`` is the longest sample in them. ``left_out`` is the
    time that is missing from the run, also of other loops of it.
    """

    batches: int
    longest: int
    time: Seconds
    left_out: Seconds

    def joined(self, other: "WholeLoopForecast") -> "WholeLoopForecast":
        """Return the forecast of another pass over the same batches added."""
        return WholeLoopForecast(
            self.batches + other.batches,
            max(self.longest, other.longest),
            self.time + other.time,
            self.left_out + other.left_out,
        )


# longest over shortest sample, from which lengths are taken to vary
_LONGER = 1.5


class BatchTimes(msgspec.Struct, frozen=True):
    """A timed loop over batches. ``size`` is nominal, ``samples`` were counted.

    ``total`` is how many batches were expected, if known. ``start`` of the first and
    ``end`` of the last are seconds since the run began. ``shortest`` is the least that
    the longest sample of a batch measured; ``lengths`` rise from batch to batch.
    """

    size: int | None  # samples in a batch; None: not stated
    count: int
    samples: int | None  # None: they cannot be counted
    time_min: Seconds | None = None
    time_mean: Seconds | None = None
    time_median: Seconds | None = None
    time_max: Seconds | None = None
    time_per_sample: Seconds | None = None  # None: the samples were not counted
    peak_memory: Bytes | None = None
    gpus: tuple[GpuMemory, ...] = ()
    total: int | None = None
    start: Seconds | None = None
    end: Seconds | None = None
    shortest: int | None = None
    lengths: tuple[LengthPeak, ...] = ()
    forecast: WholeLoopForecast | None = None  # None: all batches were to run

    @property
    def lengths_vary(self) -> bool:
        """Whether the longest sample is at least 1.5 times as long as the shortest."""
        longest = self.lengths[-1].length if self.lengths else 0
        return longest >= _LONGER * max(1, self.shortest or 1)


class ProgramEvent(msgspec.Struct, frozen=True):
    """Something that the program reported: ``weigh.event("epoch", 3)``."""

    name: str
    time: Seconds  # since the run began
    value: int | float | str | None = None


class ReportedProgress(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends, according to the steps that it prints or reports.

    ``done`` of ``total`` steps were known at ``time``, in seconds since the run began;
    the current step counts as a fraction. ``source`` is what counted: tqdm, rich,
    Keras, Trainer, epoch lines, step lines, percentages, figures (of an unknown
    program), its own estimate (the remaining time that it prints), your pattern, or
    what reported it (weigh.batches).
    """

    done: float
    total: float | None = None  # None: not printed, or of a counter that starts over
    source: str
    time: Seconds
    step_time: Seconds | None = None  # the recent time per step
    # seconds from ``time`` on, and their interval of 90 %; None while the total is
    # unknown, or until enough steps were counted
    remaining: Seconds | None = None
    low: Seconds | None = None
    high: Seconds | None = None

    @property
    def whole_time(self) -> Seconds | None:
        """Return how long a run that was stopped would have taken; None if unknown."""
        if self.remaining is None:
            return None
        return round(self.time + self.remaining, 1)


class RecordedRank(msgspec.Struct, frozen=True):
    """One rank of a distributed run: where it ran, and the memory of its processes.

    ``peak_memory`` is a sum of resident sets, so shared memory counts in each rank.
    ``step`` is the job's step that it belongs to, if it has several: ranks are numbered
    in each. ``size`` is how many ranks its ``launcher`` started; ``start`` is when it
    was first seen, in seconds since the run began, and ``wall_time`` the seconds until
    it was last seen.
    """

    rank: int
    host: str | None = None
    pid: int | None = None
    peak_memory: Bytes | None = None
    cpu_time: Seconds | None = None
    gpus: tuple[GpuMemory, ...] = ()
    step: str | None = None
    size: int | None = None
    launcher: str | None = None
    start: Seconds | None = None
    wall_time: Seconds | None = None


def step_order(step_id: str | None) -> tuple[bool, int, str]:
    """Return a key that sorts steps: none, then by number, then by name."""
    # a longer number is a name: it comes from outside, and int() is slow on it
    is_number = (
        step_id is not None and step_id.isdecimal() and len(step_id) <= _LONGEST_STEP
    )
    return step_id is not None, int(step_id or 0) if is_number else -1, step_id or ""


class ProgramRegions(msgspec.Struct, frozen=True):
    """All that a program measured of itself.

    In ``phases``, each region follows the one that contains it; in ``batches`` the
    longest loop comes first. ``peak_memory`` is the peak of a single process; ``gpus``
    has the memory of each GPU and what was in use before; ``wall_time`` is since the
    first region.
    """

    phases: tuple[ProgramPhase, ...] = ()
    batches: tuple[BatchTimes, ...] = ()
    events: tuple[ProgramEvent, ...] = ()
    ranks: tuple[RecordedRank, ...] = ()
    peak_memory: Bytes | None = None
    wall_time: Seconds | None = None
    gpus: tuple[GpuUsage, ...] = ()


class CpuWait(msgspec.Struct, frozen=True):
    """How long the threads of a run were ready to run, and waited for a CPU.

    ``time`` adds up over threads, as CPU time does. ``alone`` is the wall time
    without what they held up the run, and ``wanted`` the mean number of CPUs that it
    would use then: in both it sleeps as long as it slept. ``threads`` is the largest
    number that used a CPU at once, of the ``cpus`` that the run may use, ``others`` how
    many of those other programs kept busy on average, and ``throttled`` how long the
    CPU limit of a control group held the run.
    """

    time: Seconds
    wanted: float
    alone: Seconds
    threads: int = 0
    cpus: int | None = None  # None: not known
    others: float | None = None
    throttled: Seconds | None = None


class JvmHeap(msgspec.Struct, frozen=True):
    """The heap of a run's largest Java virtual machine, in bytes.

    ``live`` is what the old generation held after the last collection, which includes
    some garbage; None without a collection. ``paused`` is the share of its time in
    which collections and other safepoints stopped the program. ``flags`` are the
    options that set the limit of the heap, none where it is a share of the machine.
    """

    heap_limit: Bytes
    live: Bytes | None = None
    paused: float | None = None  # 0 to 1
    flags: tuple[str, ...] = ()
    metaspace: Bytes | None = None  # of classes, outside the heap


class ProgramSign(msgspec.Struct, frozen=True):
    """What the largest program of a run is known to do with the memory it is given.

    ``knob`` is the option or variable that limits it, ``value`` what that was set to.
    A client (``is_client``) has others do its work.
    """

    name: str
    advice: str
    knob: str | None = None
    value: str | None = None
    is_client: bool = False


class PageCache(msgspec.Struct, frozen=True):
    """Bytes that the largest process had read, and the size of the files it had open.

    It read them several times, so it needs them in the page cache.
    """

    read: Bytes
    files: Bytes


class FileCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that read and write, of all processes also that ended, and their bytes.

    They count files, read from the page cache too, pipes and sockets. ``folder`` is
    what most of the looks at open files saw read, of which ``files`` were different.
    """

    reads: int
    writes: int
    read: Bytes
    written: Bytes
    folder: str | None = None  # in the working folder relative to it; None: none seen
    files: int | None = None
    mount: str | None = None  # where the folder's file system is mounted
    file_system: str | None = None  # its type, such as nfs4
    is_shared: bool | None = None  # over a network


class Usage(msgspec.Struct, frozen=True):
    """The usage of one run.

    Of a run on several nodes, ``peak_memory`` is the peak of the node with the largest,
    which is what a request per node must cover, and ``total_memory`` the sum of the
    nodes' peaks; on one node there is no ``total_memory``.

    ``max_process_memory`` is the peak of the largest process; ``virtual_memory`` is the
    largest address space mapped at once (what Grid Engine's h_vmem counts);
    ``cgroup_peak`` includes page cache; ``memory_limit`` is the tightest limit of a
    cgroup, read if the run failed; ``read_bytes`` and ``write_bytes`` are the kernel's
    count of storage traffic, ``file_calls`` that of calls; ``processes`` is the number
    of different processes. ``cpu_wait`` is None if less than half of the CPU time could
    be observed.
    """

    wall_time: Seconds
    cpu_time: Seconds | None = None
    user_time: Seconds | None = None
    system_time: Seconds | None = None
    cpus_used: float | None = None  # on average; None: the run was too short for a mean
    peak_memory: PeakMemory | None = None
    max_process_memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    cgroup_peak: Bytes | None = None
    read_bytes: Bytes | None = None
    write_bytes: Bytes | None = None
    processes: int | None = None
    growing: bool | None = None  # at its end; None: too short a run to see it
    gpus: tuple[GpuUsage, ...] = ()
    memory_limit: Bytes | None = None
    total_memory: Bytes | None = None
    cpu_wait: CpuWait | None = None
    jvm: JvmHeap | None = None
    sign: ProgramSign | None = None
    cache: PageCache | None = None
    file_calls: FileCalls | None = None


_SHORTEST_MEAN = 0.1  # seconds; a mean over a shorter run is meaningless


def mean_cpus(cpu_time: Seconds | None, wall_time: Seconds) -> float | None:
    """Return how many CPUs were busy on average; None for a short run."""
    is_known = cpu_time is not None and wall_time >= _SHORTEST_MEAN
    return (cpu_time or 0.0) / wall_time if is_known else None


class RunOutcome(msgspec.Struct, frozen=True):
    """Why a run ended, with the evidence in words."""

    reason: str
    evidence: tuple[str, ...] = ()


class SampleSeries(msgspec.Struct, frozen=True):
    """Samples over time, thinned to a bounded length that keeps every peak.

    Columns have equal lengths; ``t`` is in seconds since the start, ``memory`` in
    bytes, ``cpu`` in CPUs busy since the previous sample.
    """

    t: tuple[float, ...] = ()
    memory: tuple[Bytes, ...] = ()
    cpu: tuple[float | None, ...] = ()
    gpu_memory: tuple[tuple[Bytes, ...], ...] = ()  # one column per GPU


class RecordedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a run: the memory of all the job's processes there.

    ``ranks`` and ``cpus`` are how many of them the job has there. ``heard`` is when its
    figures last arrived, in seconds since the run began; unless ``final``, the
    node may have used more after that. Memory that its ranks share counts once.
    """

    name: str
    peak_memory: PeakMemory | None = None
    series: SampleSeries | None = None
    ranks: int = 0
    cpus: int | None = None
    final: bool = False
    heard: Seconds | None = None
    gpus: tuple[GpuUsage, ...] = ()


class RecordedHost(msgspec.Struct, frozen=True):
    """The machine of a run. ``cpus`` is the number that this process may use."""

    name: str
    system: str
    cpus: int | None = None
    memory: Bytes | None = None  # of the whole machine


class Allocation(msgspec.Struct, frozen=True):
    """What a scheduler allocated, read from the environment of the job.

    ``scheduler`` may be one that only another version of weigh knows.
    """

    scheduler: str
    cpus: int | None = None
    memory: Bytes | None = None
    nodes: int | None = None
    gpus: int | None = None
    queue: str | None = None  # Slurm: the partition


class RecordedJob(msgspec.Struct, frozen=True):
    """What ran, in the scheduler's terms: job, array element, task, attempt."""

    id: str
    element: int | None = None  # index in the array; None: no array
    task: int | None = None  # number in its task file, from 1; None: no task
    attempt: int | None = None  # from 1


class CodeProvenance(msgspec.Struct, frozen=True):
    """Which code ran, with which Python and weigh."""

    git_commit: str | None = None
    python: str | None = None
    weigh: str | None = None


class MeasuringCost(msgspec.Struct, frozen=True):
    """The cost of the measurement itself: ``samples`` looks, ``interval`` apart.

    ``rank_memory`` is that of the weigh of each rank, where each runs under its own.
    """

    cpu_time: Seconds | None = None  # of weigh itself
    memory: Bytes | None = None  # also of weigh itself
    samples: int = 0
    interval: Seconds | None = None
    rank_memory: Bytes | None = None
    warnings: tuple[str, ...] = ()  # last: the store knows a torn line by its end


class RunMeasurement(msgspec.Struct, frozen=True):
    """One measured run, from which a record is made: how it ended, and its usage.

    ``started`` and ``ended`` are seconds since the epoch; ``ended`` is None while it
    runs. ``oom_kills`` is how many processes the kernel killed for memory in the
    job's own cgroup meanwhile; ``end_signal`` the signal that weigh was sent and
    passed on, if any. ``nodes`` and ``missing`` are those of the record.
    """

    started: float
    ended: float | None
    exit_code: int | None
    signal: int | None
    usage: Usage
    series: SampleSeries = SampleSeries()
    monitor: MeasuringCost = MeasuringCost()
    oom_kills: int | None = None
    end_signal: int | None = None
    regions: "ProgramRegions | None" = None
    ranks: tuple["RecordedRank", ...] = ()
    progress: "ReportedProgress | None" = None
    nodes: tuple["RecordedNode", ...] = ()
    missing: tuple[str, ...] = ()


class SiteFlags(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a site wants in each request, besides amounts.

    ``per_cpu``: memory is requested per CPU, not per node. ``exclusive``: whole nodes.
    ``constraint`` is a feature of nodes.
    """

    per_cpu: bool = False
    exclusive: bool = False
    constraint: str | None = None
    account: str | None = None
    qos: str | None = None


class Request(msgspec.Struct, frozen=True):
    """A request to a scheduler, independent of any scheduler's syntax.

    ``memory`` is for each node, ``virtual_memory`` for the whole job, not per CPU or
    slot. ``runs`` is the number of runs it is based on; ``notes`` are reasons and
    caveats. With ``lower_bound`` the job may need more: a part was not measured.

    A run of several ranks has ``ntasks``, with ``cpus`` for each: ``memory`` holds for
    the measured layout, ``ntasks_per_node`` on each of ``nodes``, and
    ``memory_per_cpu`` for any.

    Where there is a ``knob``, ``memory`` is enough together with it: the option that
    limits what a program takes that takes what it is given.
    """

    cpus: int
    memory: Bytes | None
    virtual_memory: Bytes | None
    time_limit: int | None  # seconds; None: not known how long the run takes
    headroom: float  # added to the usage: 0.2 is 20 %
    runs: int
    gpus: int = 0
    gpu_type: str | None = None
    notes: tuple[str, ...] = ()
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    memory_per_cpu: Bytes | None = None
    lower_bound: bool = False
    knob: str | None = None
    site: SiteFlags | None = None


class SiteComplexes(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A Grid Engine site's names for GPUs, their type, their CPUs and a node.

    ``parallel`` is the parallel environment whose slots are all on one node, ``mpi``
    the one whose slots may be on several. ``exclusive`` is a whole node, which not each
    site has a name for.
    """

    gpus: str = "ngpus"
    gpu_type: str = "gpu_type"
    cpus: str = "ncpus"
    parallel: str = "smp"
    mpi: str = "mpi"
    exclusive: str = ""


class RepeatedRun(msgspec.Struct, frozen=True):
    """One of several runs of a command; the record's usage is that of the largest."""

    usage: Usage
    exit_code: int | None
    signal: int | None
    warmup: bool = False  # shown, but left out of all figures


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run, as ``weigh run -o FILE`` writes it.

    ``started`` and ``ended`` are UTC in ISO 8601. ``exit_code`` is None if a signal
    killed the command; ``signal`` is then its number. ``nodes`` are those of a job
    whose ranks a scheduler started. ``missing`` describes the parts of the job that
    were not measured: where there are any, the usage is a lower bound. ``part`` is set
    in the store only: each rank that ran under its own weigh leaves a line with the
    number of the rank, and the lines of one id are joined when they are read.
    """

    schema: str = SCHEMA
    id: str
    label: str | None = None  # as the user named it
    command: tuple[str, ...]
    cwd: str | None = None
    parameters: dict[str, int | float | str] = {}
    host: RecordedHost | None = None
    started: str
    ended: str | None = None
    state: str = "UNKNOWN"
    exit_code: int | None = None
    signal: int | None = None
    part: int | None = None
    outcome: RunOutcome | None = None
    usage: Usage | None = None
    phases: tuple[ProgramPhase, ...] = ()
    batches: BatchTimes | None = None
    events: tuple[ProgramEvent, ...] = ()
    progress: ReportedProgress | None = None
    ranks: tuple[RecordedRank, ...] = ()
    nodes: tuple[RecordedNode, ...] = ()
    missing: tuple[str, ...] = ()
    repeats: tuple[RepeatedRun, ...] = ()
    series: SampleSeries | None = None
    requested: Request | None = msgspec.field(default=None, name="request")
    allocation: Allocation | None = None  # None: not in a job
    job: RecordedJob | None = None
    provenance: CodeProvenance | None = None
    monitor: MeasuringCost | None = None

    def with_measurement(self, measured: RunMeasurement) -> "Record":
        """Return the record with what was measured of its run, so far or to its end."""
        regions = measured.regions or ProgramRegions()
        ended = measured.ended
        return msgspec.structs.replace(
            self,
            started=record_time_text(measured.started),
            ended=None if ended is None else record_time_text(ended),
            exit_code=measured.exit_code,
            signal=measured.signal,
            usage=measured.usage,
            series=measured.series,
            monitor=measured.monitor,
            phases=regions.phases,
            # the longest loop; a record has room for one
            batches=regions.batches[0] if regions.batches else None,
            events=regions.events,
            progress=measured.progress,
            ranks=measured.ranks or regions.ranks,
            nodes=measured.nodes,
            missing=measured.missing,
        )

    @property
    def left_out_time(self) -> Seconds:
        """The time of the batches that ``weigh run --worst-batch`` left out."""
        forecast = None if self.batches is None else self.batches.forecast
        return 0.0 if forecast is None else forecast.left_out

    @property
    def peak_memory(self) -> Bytes | None:
        """The peak memory in bytes; None if it was not measured."""
        peak = None if self.usage is None else self.usage.peak_memory
        return None if peak is None else peak.value

    @property
    def peak_is_bound(self) -> bool:
        """Whether the peak memory is only an upper bound."""
        peak = None if self.usage is None else self.usage.peak_memory
        return peak is not None and peak.is_bound
