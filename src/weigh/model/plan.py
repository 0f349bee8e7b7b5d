"""What runs where: items, the bins they go into, and the plan that is made of it.

Bytes, seconds and whole CPUs; ``None`` means not known, or no limit in a capacity.
"""

from typing import Literal

import msgspec

from weigh.units import Bytes, Seconds


class Task(msgspec.Struct, frozen=True):
    """One command line of a task file.

    ``seq`` counts the tasks from 1, as GNU parallel's joblog does; ``line`` is a
    line for a shell, without its newline; ``parameters`` is empty where no sweep
    wrote it.
    """

    seq: int
    line: str
    parameters: dict[str, int | float | str] = {}


SCHEMA = "weigh.plan/1"
PLAN_FILE = "plan.json"

Resource = Literal["gpu_memory", "memory", "cpus"]
Quantity = Literal["gpu_memory", "memory", "time"]
RESOURCES: tuple[Resource, ...] = ("gpu_memory", "memory", "cpus")


class Item(msgspec.Struct, frozen=True):
    """What one task needs while it runs, headroom and all; a task takes a CPU.

    ``gpus`` are cards of its own, ``gpu_memory`` what it holds on each; with 0 it
    shares one. Of a task on several nodes all this is for each node.
    """

    gpu_memory: Bytes = 0
    memory: Bytes = 0
    cpus: int = 1
    time: Seconds | None = None
    gpus: int = 0


class Capacity(msgspec.Struct, frozen=True):
    """What one bin holds: a GPU with its share of the node, or a node.

    ``count`` is the most items, whatever they need.
    """

    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    cpus: int | None = None
    count: int | None = None


class Bin(msgspec.Struct, frozen=True):
    """Items that run side by side, by their place in what was packed, and their sums.

    ``time`` is the longest item's, None where one's is not known.
    """

    items: tuple[int, ...]
    gpu_memory: Bytes
    memory: Bytes
    cpus: int
    time: Seconds | None = None


class TooBig(msgspec.Struct, frozen=True):
    """An item that no bin holds, and the first resource that is short."""

    item: int
    resource: Resource
    need: int
    capacity: int


class Packing(msgspec.Struct, frozen=True):
    """Every item in one bin, or among those too big for any.

    ``lower_bound`` is how many bins no packing can do without.
    """

    bins: tuple[Bin, ...]
    too_big: tuple[TooBig, ...] = ()
    lower_bound: int = 0


class Foretold(msgspec.Struct, frozen=True):
    """What a curve through other sizes says of one that nobody measured.

    ``by`` is the size's name, ``sizes`` those of the ``runs`` it rests on;
    ``expected`` is on the curve, ``bound`` what stays above with 95 %.
    """

    quantity: Quantity
    by: str
    size: float
    sizes: tuple[float, ...]
    runs: int
    expected: float
    bound: float

    @property
    def ratio(self) -> float:
        """Tell how far beyond the largest size measured it lies, 1 for not at all."""
        return max(1.0, self.size / max(self.sizes))


class Kind(msgspec.Struct, frozen=True):
    """Tasks that need the same: how many there are, and what their need rests on.

    ``item`` holds the headroom; ``used`` is as measured, foretold or given, without
    it. ``busy`` is the share of a GPU's time that one task alone takes, 0 to 1.
    """

    item: Item
    used: Item
    tasks: int
    example: str
    runs: int = 0
    records: tuple[str, ...] = ()
    busy: float | None = None
    notes: tuple[str, ...] = ()
    foretold: tuple[Foretold, ...] = ()


class Card(msgspec.Struct, frozen=True):
    """A GPU to plan for: its name and what programs can use of it."""

    name: str
    memory: Bytes


class Element(msgspec.Struct, frozen=True):
    """One element of the array job: its task file, and the tasks in it, from 1.

    ``kinds`` are the places of these tasks' kinds in the plan; empty: not known.
    """

    file: str
    tasks: tuple[int, ...]
    gpu_memory: Bytes
    memory: Bytes
    cpus: int
    time: Seconds | None = None
    kinds: tuple[int, ...] = ()


class LeftOut(msgspec.Struct, frozen=True):
    """A task that no element holds, and what it is short of."""

    task: int
    resource: Resource
    need: int
    capacity: int


class Ask(msgspec.Struct, frozen=True):
    """What to ask the scheduler for, for each element: the most that any needs.

    With several ``nodes`` the rest is for each of them.
    """

    cpus: int
    memory: Bytes | None = None
    time_limit: int | None = None
    gpus: int = 0
    gpu: str | None = None
    nodes: int = 1


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """So many tasks measured side by side: until the last ended, and the work done.

    ``slow_down`` is that time over one task's alone, ``speed_up`` the work an hour
    over one task's. ``gpu_busy`` is the card's mean utilisation in per cent.
    """

    count: int
    wall_time: Seconds
    slow_down: float = 1.0
    speed_up: float = 1.0
    memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    gpu_busy: float | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks run side by side, and what each element of the array job needs.

    ``fewest`` is how many elements no packing can do without, ``free_now`` how many
    cards of the kind nobody uses at this moment.
    """

    schema: str = SCHEMA
    name: str
    task_file: str
    tasks: int
    headroom: float
    card: Card | None
    capacity: Capacity
    ask: Ask
    kinds: tuple[Kind, ...]
    elements: tuple[Element, ...]
    left_out: tuple[LeftOut, ...] = ()
    fewest: int = 0
    probe: tuple[Together, ...] = ()
    notes: tuple[str, ...] = ()
    free_now: int | None = None
