"""Requested vs. used: the data of a report, independent of its renderers.

Bytes, seconds, CPUs and shares from 0 to 1; ``None`` means not requested, or not
measured.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from weigh.model.record import Record, State
from weigh.units import Bytes, Seconds, format_duration, format_size

SCHEMA = "weigh.report/1"
# begins the reason of a task that no process is left to start; then how to run it
NOT_RUN = "not run"

Unit = Literal["bytes", "seconds", "cpus", "share"]
Name = Literal["memory", "gpu_memory", "cpus", "time", "gpu_utilization"]


class OtherFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Another source's figure of the same measure.

    ``source`` is a field of sacct or qacct, or the scheduler's GPU table; ``word`` is
    one line on which of the two figures to trust and why.
    """

    source: str
    value: float  # in the unit of the measure
    word: str | None = None


class ReportMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One resource: what an element requested, and what the elements used.

    ``median`` and ``most`` are over elements (over runs without a job), each the sum
    of its simultaneous tasks. ``efficiency`` is ``most / requested``, for CPUs
    ``median / requested``. ``values`` are the figures of the elements. A figure up to
    ``bound`` is an upper bound: the runs were too short to measure more exactly.
    """

    name: Name
    unit: Unit
    requested: float | None = None
    median: float | None = None
    most: float | None = None
    efficiency: float | None = None
    source: str = ""
    others: tuple[OtherFigure, ...] = ()
    values: tuple[float, ...] = ()  # in the unit of the measure
    bound: float | None = None  # None: no figure is one


MetricTrend = Literal["improving", "standing still", "getting worse", "diverged"]


class MetricSummary(msgspec.Struct, frozen=True):
    """What became of a metric that a task prints: its ``values`` counts them."""

    values: int
    last: float
    best: float | None
    """None if no value is finite."""
    best_at: int | None
    """The place of the best among the values, from 1."""
    trend: MetricTrend | None
    """None: too few values."""


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task, or one run: where it ran, how it ended, what it used.

    ``gpu_utilization`` is a share, ``energy`` joules of the GPUs; ``attempts`` counts
    starts of the task, in ``job`` and the jobs it resumed, and the figures are of the
    last. ``error`` is the line of a failed task's output that states why, ``metric``
    what became of the requested metric.
    """

    job: str | None = None
    task: int | None = None
    element: int | None = None
    attempt: int | None = None
    record: str | None = None
    label: str = ""
    parameters: dict[str, int | float | str] = {}
    state: State = "UNKNOWN"
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    node: str | None = None
    started: Seconds | None = None
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None
    cpus: float | None = None  # busy on average
    memory: int | None = None  # bytes, peak
    memory_is_bound: bool = False  # too short a run to measure it more exactly
    gpu_memory: int | None = None  # bytes, peak
    gpu_utilization: float | None = None
    output: str | None = None
    command: str = ""
    attempts: int = 1  # starts of the task
    gpus: int | None = None  # that were held; None: not known
    energy: float | None = None
    growing: bool | None = None
    error: str | None = None
    metric: MetricSummary | None = None

    @property
    def is_not_run(self) -> bool:
        """Return whether the task was never started, and nothing will start it."""
        return self.state == "PENDING" and (self.reason or "").startswith(NOT_RUN)


class ReportNote(msgspec.Struct, frozen=True, kw_only=True):
    """One note of a report; those with the highest ``weight`` come first.

    ``about`` is the resource or subject; ``flag`` the option to use; of a
    finding something should be changed.
    """

    about: str
    words: str
    flag: str | None = None
    weight: float = 0.0  # 0 to 100
    is_finding: bool = False


class AccountedElement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a scheduler's accounting reports on one element.

    ``max_rss`` is the memory of all steps that ran side by side, or of the largest
    process where accounting knows no other; ``virtual_memory`` is address space. These
    and ``memory_asked`` are of one of its ``nodes``, the fullest; ``sampled`` are the
    seconds between samples of ``max_rss`` (0: one at the end only). None is not
    reported; ``doubts`` name what was reported and cannot be.
    """

    element: int
    state: State = "UNKNOWN"
    node: str | None = None
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None
    max_rss: Bytes | None = None
    virtual_memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    gpu_utilization: float | None = None  # 0 to 1
    cpus: int | None = None
    gpus: int | None = None
    memory_asked: Bytes | None = None
    time_limit: int | None = None  # seconds
    sampled: Seconds | None = None
    nodes: int | None = None
    doubts: tuple[str, ...] = ()


_MOST_MEMORY: Bytes = 256 << 40  # no node has as much
_CPU_SLACK, _CPU_LEAST = (
    1.5,
    120.0,
)  # clocks differ, and tasks outlive their job a little


def without_impossible(accounted: AccountedElement) -> AccountedElement:
    """Return the figures without those that cannot be, each named in ``doubts``.

    Counters overflow, and accounting adds up what never belonged to a job: 51 hours of
    CPU on two CPUs in half an hour. Such a figure would enter averages and requests.
    """
    doubts = [*accounted.doubts]
    cpu_time, max_rss = accounted.cpu_time, accounted.max_rss
    if cpu_time is not None and accounted.cpus and accounted.wall_time is not None:
        most = accounted.cpus * accounted.wall_time * _CPU_SLACK + _CPU_LEAST
        if cpu_time > most:
            doubts.append(
                f"accounting reports {format_duration(cpu_time)} of CPU time in "
                f"{format_duration(accounted.wall_time)} on {accounted.cpus} CPUs: "
                "not believed"
            )
            cpu_time = None
    if max_rss is not None and max_rss > _MOST_MEMORY:
        doubts.append(
            f"accounting reports {format_size(max_rss)} of memory: not believed"
        )
        max_rss = None
    # the usual case: the same object, as there may be thousands
    if len(doubts) == len(accounted.doubts):
        return accounted
    return msgspec.structs.replace(
        accounted, cpu_time=cpu_time, max_rss=max_rss, doubts=tuple(doubts)
    )


def without_unseen_nodes(accounted: AccountedElement, seen: int) -> AccountedElement:
    """Return the figures without those of a part of the job's nodes.

    What mpirun or ssh starts on the other nodes, and no step of the scheduler, is in
    no account: 22 GiB on the first node show nothing of the 117 on the second.
    """
    nodes = accounted.nodes or 1
    # nothing to doubt: all nodes were seen, or no figure is there
    if seen >= nodes or (accounted.max_rss is None and accounted.cpu_time is None):
        return accounted
    doubt = (
        f"accounting saw {seen} of {nodes} nodes, as no step started the processes on "
        "the others: memory and CPU time are not known"
    )
    return msgspec.structs.replace(
        accounted, cpu_time=None, max_rss=None, doubts=(*accounted.doubts, doubt)
    )


class PastJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job, or one element or attempt of it, as accounting lists it.

    ``id`` is the scheduler's, with the index of an element (``12_3``).
    """

    id: str
    name: str
    accounted: AccountedElement


class ListedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One of the user's jobs: how it stands, and how much of its request it used.

    ``states`` counts tasks or elements. ``elapsed`` is the time of the longest element;
    the shares of time and memory are those of the element that used most, that of CPUs
    of all. None is not known.
    """

    id: str
    name: str = ""
    scheduler: str
    states: Mapping[State, int]
    elapsed: Seconds | None = None
    time_share: float | None = None
    memory_share: float | None = None
    cpu_share: float | None = None


class ListedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The user's jobs since a date, the oldest first."""

    schema: str = "weigh.jobs/1"
    since: str  # date
    jobs: tuple[ListedJob, ...]


class GpuTable(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in the scheduler's own table in a job's log.

    Utilisations are shares from 0 to 1; ``one_look``: mean, maximum and minimum are the
    same, so there was one sample.
    """

    gpu: str
    gpu_memory: Bytes | None = None
    utilization: float | None = None
    process_utilization: float | None = None
    one_look: bool = False


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Requested vs. used, of a run, a job with its tasks, or a plan with its jobs.

    ``states`` counts the rows; ``gpu_hours`` and ``cpu_hours`` are what was held.
    ``records`` are a few with a series to draw; ``rows`` are all. ``energy`` (joules)
    is over all attempts. ``accounted`` is accounting's data on the elements,
    ``gpu_tables`` those of the tables in their logs.
    ``unit`` is what a row is: a task, an element of a script's job, a run. ``metric``
    is the name of the metric in the rows, None without one.
    """

    schema: str = SCHEMA
    title: str
    unit: str = "run"
    scheduler: str | None = None
    job: str | None = None
    elements: int | None = None
    started: Seconds | None = None
    ended: Seconds | None = None
    states: dict[str, int] = {}
    measures: tuple[ReportMeasure, ...] = ()
    rows: tuple[ReportRow, ...] = ()
    notes: tuple[ReportNote, ...] = ()
    records: tuple[Record, ...] = ()
    gpu_hours: float | None = None
    cpu_hours: float | None = None
    energy: float | None = None
    accounted: tuple[AccountedElement, ...] = ()
    gpu_tables: tuple[GpuTable, ...] = ()
    metric: str | None = None
    lower_is_better: bool = False
