"""A plan: the tasks' needs, how they are packed, and the request of each element.

Bytes, seconds and whole CPUs; ``None`` means not known, or no limit in a capacity.
"""

from typing import Annotated, Literal

import msgspec

from weigh.units import Bytes, Seconds


class Task(msgspec.Struct, frozen=True):
    """One command line of a task file.

    ``seq`` counts the tasks from 1, as GNU parallel's joblog does; ``line`` is a
    shell command without the newline; ``parameters`` is empty if no sweep wrote it.
    """

    seq: int
    line: str
    parameters: dict[str, int | float | str] = {}


SCHEMA = "weigh.plan/1"
SCHEMA_OF_QUEUES = "weigh.plan/2"  # its elements pull their tasks from one queue
PLAN_FILE = "plan.json"
QUEUE_TASKS = "tasks.txt"
HIDES_FAILURES = "hides failures"  # in a note on a task with such a line

# plan.json is edited by hand, too: an amount below 0 is an error there
Amount = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]

Resource = Literal["gpu_memory", "memory", "cpus"]
Quantity = Literal["gpu_memory", "memory", "time"]
RESOURCES: tuple[Resource, ...] = ("gpu_memory", "memory", "cpus")


class TaskNeed(msgspec.Struct, frozen=True):
    """What one task needs while it runs, headroom included; at least one CPU.

    ``gpus`` is the number of whole GPUs, ``gpu_memory`` what it holds on each; with 0
    GPUs it shares one. For a task on several nodes all figures are per node. ``ntasks``
    is the number of its ranks on all nodes; 0 for one that starts none.
    """

    gpu_memory: Amount = 0  # bytes
    memory: Amount = 0
    cpus: Amount = 1
    time: Seconds | None = None  # None: not known
    gpus: Amount = 0
    nodes: Count = 1
    ntasks: Amount = 0

    @property
    def per_node(self) -> int:
        """Return the number of ranks on the node that has most of them."""
        # rounded up
        return -(-self.ntasks // self.nodes)


class BinCapacity(msgspec.Struct, frozen=True):
    """The size of one bin: a GPU with its share of the node, or a node.

    ``count`` is the maximum number of items.
    """

    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    cpus: int | None = None
    count: int | None = None


class PackedBin(msgspec.Struct, frozen=True):
    """Items that run together, by index, and the sums of their needs.

    ``time`` is that of the longest item, None if one is not known.
    """

    items: tuple[int, ...]
    gpu_memory: Bytes
    memory: Bytes
    cpus: int
    time: Seconds | None = None


class TooBig(msgspec.Struct, frozen=True):
    """An item that fits into no bin, and the first resource that is short."""

    item: int
    resource: Resource
    need: int  # bytes or CPUs, as the capacity
    capacity: int


class PackedTasks(msgspec.Struct, frozen=True):
    """The bins of a packing, and the items that are too big for any bin."""

    bins: tuple[PackedBin, ...]
    too_big: tuple[TooBig, ...] = ()


class NeedPrediction(msgspec.Struct, frozen=True):
    """A quantity predicted for a size that was not measured, by a curve through others.

    ``by`` is the name of the size, ``sizes`` are those of the ``runs`` measured;
    ``expected`` lies on the curve, ``bound`` is the 95 % upper bound.
    """

    quantity: Quantity
    by: str
    size: float  # in the unit of the parameter, as the others
    sizes: tuple[float, ...]
    runs: int
    expected: float  # bytes or seconds, as the bound
    bound: float

    @property
    def ratio(self) -> float:
        """Return the size over the largest measured size, at least 1."""
        # below the largest size nothing is extrapolated
        return max(1.0, self.size / max(self.sizes))


class TaskKind(msgspec.Struct, frozen=True):
    """Tasks with equal needs: how many there are, and the source of the figures.

    ``item`` includes the headroom; ``used`` is the measured, predicted or stated usage
    without it. ``busy`` is the share of a GPU's time that one task uses, 0 to 1.
    ``virtual_memory`` is its address space, headroom included; None: not measured.
    """

    item: TaskNeed
    used: TaskNeed
    tasks: int
    example: str  # the command of one of them
    runs: int = 0  # that the figures come from
    records: tuple[str, ...] = ()  # their ids
    busy: float | None = None  # None: not measured
    notes: tuple[str, ...] = ()
    predictions: tuple[NeedPrediction, ...] = msgspec.field(name="foretold", default=())
    virtual_memory: Bytes | None = None


class TargetGpu(msgspec.Struct, frozen=True):
    """A GPU to plan for: its name and the memory that programs can use."""

    name: str
    memory: Bytes


class PlannedElement(msgspec.Struct, frozen=True):
    """One element of the array job: its task file and the numbers of its tasks, from 1.

    ``kinds`` are the indices of the tasks' kinds in the plan; empty: not known.
    ``digest`` is that of the task file as it was written, empty in older plans.
    """

    file: str
    tasks: tuple[int, ...]
    gpu_memory: Bytes
    memory: Bytes
    cpus: int
    time: Seconds | None = None  # of its longest task; None: not known
    kinds: tuple[int, ...] = ()
    digest: str = ""


class PlannedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that all elements of a plan pull from one queue.

    ``folder`` is the directory of the queue in that of the plan. ``tasks`` are the
    numbers of the tasks in the order of its task file, ``kinds`` the indices of their
    kinds. An element runs up to ``slots`` of them at once. ``expected`` is the
    predicted time of an element, ``digest`` that of the task file as it was written.
    """

    folder: str
    tasks: tuple[int, ...]
    kinds: tuple[int, ...]
    slots: int
    expected: Seconds | None = None
    digest: str = ""

    @property
    def file(self) -> str:
        """Return the path of the task file in the plan's directory."""
        return f"{self.folder}/{QUEUE_TASKS}"


class LeftOut(msgspec.Struct, frozen=True):
    """A task that fits into no element, and the resource that is short."""

    task: int
    resource: Resource
    need: int
    capacity: int


class PlanRequest(msgspec.Struct, frozen=True):
    """The request for each element: the maximum over all elements.

    With several ``nodes`` the other figures are per node, except ``ntasks``, the number
    of all ranks; 0 where the tasks start none.
    """

    cpus: Amount
    memory: Amount | None = None  # bytes
    time_limit: Amount | None = None  # seconds
    gpus: Amount = 0  # per node
    gpu: str | None = None
    nodes: Count = 1
    ntasks: Amount = 0


class TogetherRun(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement of *count* tasks that ran together.

    ``wall_time`` is that of the slowest task, ``slow_down`` its ratio to a task alone,
    ``speed_up`` the throughput relative to one task.
    """

    count: int
    wall_time: Seconds
    slow_down: float = 1.0  # times
    speed_up: float = 1.0
    memory: Bytes | None = None  # peak of all of them together
    gpu_memory: Bytes | None = None


class KindForecast(msgspec.Struct, frozen=True, kw_only=True):
    """When the tasks of a plan would be done on one kind of the cluster's GPUs.

    ``gpu`` is the scheduler's name of the kind, of which ``free`` of ``total`` can be
    had now. ``wait`` is the time until the first element starts, ``makespan`` from
    then until all tasks are done; None: not known, or not measured on that kind.
    """

    gpu: str
    total: int
    free: int
    wait: Seconds | None
    makespan: Seconds | None

    @property
    def done_in(self) -> Seconds | None:
        """Return the time from now until all tasks are done; None if not known."""
        if self.wait is None or self.makespan is None:
            return None
        return self.wait + self.makespan


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks run together, and the request of each element of the array job.

    With a ``queue`` the elements have no tasks of their own.
    """

    schema: str = SCHEMA
    name: str
    task_file: str
    tasks: int
    headroom: float  # 0.2 is 20 %
    gpu: TargetGpu | None = msgspec.field(name="card")
    capacity: BinCapacity
    request: PlanRequest = msgspec.field(name="ask")
    kinds: tuple[TaskKind, ...]
    elements: tuple[PlannedElement, ...]
    left_out: tuple[LeftOut, ...] = ()  # tasks that no element has room for
    probe: tuple[TogetherRun, ...] = ()  # what tasks needed that were tried together
    notes: tuple[str, ...] = ()
    queue: PlannedQueue | None = None
    then: str | None = None  # the command when all tasks are done

    @property
    def together(self) -> int:
        """Return the most tasks that one element runs at once."""
        if self.queue is not None:
            return self.queue.slots
        return max(len(element.tasks) for element in self.elements)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files of the plan, relative to its directory."""
        if self.queue is not None:
            return (PLAN_FILE, f"{self.queue.folder}/{PLAN_FILE}", self.queue.file)
        return (PLAN_FILE, *(element.file for element in self.elements))
