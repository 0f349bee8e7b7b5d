"""One run: its samples, what it used, and the record that is kept of it.

Key names are an interface: people's scripts read them. Bytes are integers, times are
seconds, energies joules; ``None`` means not measured and never zero.
"""

from typing import Literal

import msgspec

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.units import Bytes, Seconds

SCHEMA = "weigh.record/1"

State = Literal[
    "PENDING",
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "NODE_FAIL",
    "PREEMPTED",
    "INTERRUPTED",
    "UNKNOWN",
]


class Sample(msgspec.Struct, frozen=True):
    """One look at a process tree.

    ``memory`` is what the tree would hold if it ran alone (shared pages once);
    ``memory_high`` bounds what it may have held since the sample before.
    ``cpu_time`` counts the live processes only.
    """

    time: Seconds
    memory: Bytes
    memory_high: Bytes
    cpu_time: Seconds | None
    processes: int


class PeakMemory(msgspec.Struct, frozen=True, omit_defaults=False):
    """The most memory a job held at once, as if it ran alone on a node.

    ``low`` and ``high`` hold the truth between them. ``anonymous + shared + file``
    describe the moment of the peak; ``file`` are mapped files the kernel can drop.
    """

    value: Bytes
    low: Bytes
    high: Bytes
    anonymous: Bytes | None
    shared: Bytes | None
    file: Bytes | None
    source: str
    time: Seconds | None = None


class Phase(msgspec.Struct, frozen=True):
    """A named region of a program; of several calls, times add up and peaks do not.

    ``start`` (of the first call) and ``end`` (of the last) are seconds since the run
    began; ``depth`` 0 is outermost; ``calls`` 0 was begun and never ended. ``source``
    says where ``peak_memory``, of this one process, is from.
    """

    name: str
    depth: int
    calls: int
    start: Seconds
    end: Seconds
    wall_time: Seconds
    cpu_time: Seconds | None = None
    memory_before: Bytes | None = None
    memory_after: Bytes | None = None
    peak_memory: Bytes | None = None
    gpus: tuple[GpuMemory, ...] = ()
    rank: int | None = None
    source: str | None = None


class Batches(msgspec.Struct, frozen=True):
    """A timed loop over batches. ``size`` is nominal, ``samples`` were counted.

    ``total`` is how many batches were expected, if known.
    """

    size: int | None
    count: int
    samples: int | None
    time_min: Seconds | None = None
    time_mean: Seconds | None = None
    time_median: Seconds | None = None
    time_max: Seconds | None = None
    time_per_sample: Seconds | None = None
    peak_memory: Bytes | None = None
    gpus: tuple[GpuMemory, ...] = ()
    total: int | None = None


class Event(msgspec.Struct, frozen=True):
    """Something the program said of itself: ``weigh.event("epoch", 3)``."""

    name: str
    time: Seconds
    value: int | float | str | None = None


class Headway(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run came by its own count: ``done`` of ``total`` steps.

    ``time`` is when it said so, in seconds since it began; ``source`` says how it was
    counted: tqdm, a pattern, weigh.batches. ``step_time`` is its pace of late. Of one
    that goes on, ``remaining`` seconds lie between ``low`` and ``high`` at 90 %.
    """

    done: float
    total: float | None = None
    source: str
    time: Seconds
    step_time: Seconds | None = None
    remaining: Seconds | None = None
    low: Seconds | None = None
    high: Seconds | None = None


class Rank(msgspec.Struct, frozen=True):
    """One rank of a distributed run: where it ran, and what its processes held.

    ``peak_memory`` adds resident sets up, so what ranks share counts in each.
    """

    rank: int
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    peak_memory: Bytes | None = None
    cpu_time: Seconds | None = None
    gpus: tuple[GpuMemory, ...] = ()


class Regions(msgspec.Struct, frozen=True):
    """All that a program measured of itself.

    ``phases`` each behind the one it lies in, ``batches`` the longest loop first;
    ``peak_memory`` is the most that a single process held; ``gpus`` give the cards'
    totals and what was in use before; ``wall_time`` is since the first region.
    """

    phases: tuple[Phase, ...] = ()
    batches: tuple[Batches, ...] = ()
    events: tuple[Event, ...] = ()
    ranks: tuple[Rank, ...] = ()
    peak_memory: Bytes | None = None
    wall_time: Seconds | None = None
    gpus: tuple[GpuUsage, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """What one run used.

    ``max_process_memory`` is the largest single process; ``virtual_memory`` the most
    address space mapped at once (what Grid Engine's h_vmem counts); ``cgroup_peak``
    includes page cache; ``memory_limit`` is the tightest limit of a control group, read
    of a run that failed; ``read_bytes`` and ``write_bytes`` are the kernel's count of
    storage traffic; ``processes`` how many different ones were seen.
    """

    wall_time: Seconds
    cpu_time: Seconds | None = None
    user_time: Seconds | None = None
    system_time: Seconds | None = None
    cpus_used: float | None = None
    peak_memory: PeakMemory | None = None
    max_process_memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    cgroup_peak: Bytes | None = None
    read_bytes: Bytes | None = None
    write_bytes: Bytes | None = None
    processes: int | None = None
    growing: bool | None = None
    gpus: tuple[GpuUsage, ...] = ()
    memory_limit: Bytes | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Why a run ended as it did, with the evidence in words."""

    reason: str
    evidence: tuple[str, ...] = ()


class Series(msgspec.Struct, frozen=True):
    """Samples over time, thinned to a bounded length that keeps every peak.

    Columns are of equal length; ``t`` in seconds since the start, ``memory`` in
    bytes, ``cpu`` in CPUs busy since the sample before.
    """

    t: tuple[float, ...] = ()
    memory: tuple[Bytes, ...] = ()
    cpu: tuple[float | None, ...] = ()
    gpu_memory: tuple[tuple[Bytes, ...], ...] = ()


class Host(msgspec.Struct, frozen=True):
    """The machine a run was made on. ``cpus`` are those this process may use."""

    name: str
    system: str
    kernel: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    cpus: int | None = None
    memory: Bytes | None = None


class Allocation(msgspec.Struct, frozen=True):
    """What a scheduler granted, read from the environment of the job."""

    scheduler: Literal["slurm", "gridengine"]
    cpus: int | None = None
    memory: Bytes | None = None
    nodes: int | None = None
    gpus: int | None = None
    queue: str | None = None


class Job(msgspec.Struct, frozen=True):
    """The scheduler's names for what ran: job, array element, task, attempt."""

    id: str
    element: int | None = None
    task: int | None = None
    attempt: int | None = None


class Provenance(msgspec.Struct, frozen=True):
    """Which code ran, under which Python and weigh."""

    git_commit: str | None = None
    git_dirty: bool | None = None
    python: str | None = None
    weigh: str | None = None


class Monitor(msgspec.Struct, frozen=True):
    """What the measuring itself cost, so that nobody has to take it on trust."""

    cpu_time: Seconds | None = None
    memory: Bytes | None = None
    samples: int = 0
    interval: Seconds | None = None
    warnings: tuple[str, ...] = ()


class Measurement(msgspec.Struct, frozen=True):
    """One run under probes: how it ended and what it used, before it is a record.

    ``started`` and ``ended`` are seconds since the epoch; ``ended`` is None while it
    runs. ``oom_kills`` is how many processes the kernel killed for memory in the
    job's own cgroup meanwhile; ``end_signal`` the signal that weigh was sent and
    passed on, if any.
    """

    started: float
    ended: float | None
    exit_code: int | None
    signal: int | None
    usage: Usage
    series: Series
    monitor: Monitor
    oom_kills: int | None = None
    end_signal: int | None = None
    regions: "Regions | None" = None
    ranks: tuple["Rank", ...] = ()
    progress: "Headway | None" = None


class Request(msgspec.Struct, frozen=True):
    """What to ask a scheduler for, before any scheduler's syntax.

    ``memory`` and ``virtual_memory`` are for the whole job, not a CPU or slot.
    ``runs`` is how many records it rests on; ``notes`` say why, and what to doubt.
    """

    cpus: int
    memory: Bytes | None
    virtual_memory: Bytes | None
    time_limit: int | None
    headroom: float
    runs: int
    gpus: int = 0
    gpu_type: str | None = None
    notes: tuple[str, ...] = ()


class Repeat(msgspec.Struct, frozen=True):
    """One of several runs of the same command; the record's usage is the biggest."""

    usage: Usage
    exit_code: int | None
    signal: int | None
    warmup: bool = False


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run, as ``weigh run -o FILE`` writes it.

    ``started`` and ``ended`` are UTC in ISO 8601. ``exit_code`` is None when a
    signal ended the command, and then ``signal`` is its number.
    """

    schema: str = SCHEMA
    id: str
    label: str | None = None
    command: tuple[str, ...]
    cwd: str | None = None
    parameters: dict[str, int | float | str] = {}
    host: Host | None = None
    started: str
    ended: str | None = None
    state: str = "UNKNOWN"
    exit_code: int | None = None
    signal: int | None = None
    outcome: Outcome | None = None
    usage: Usage | None = None
    phases: tuple[Phase, ...] = ()
    batches: Batches | None = None
    events: tuple[Event, ...] = ()
    progress: Headway | None = None
    ranks: tuple[Rank, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    series: Series | None = None
    request: Request | None = None
    allocation: Allocation | None = None
    job: Job | None = None
    provenance: Provenance | None = None
    monitor: Monitor | None = None
