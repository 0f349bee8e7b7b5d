"""Make a plan from the needs of tasks: the elements, their time and the request."""

import posixpath
from collections.abc import Sequence

from weigh.errors import UsageError
from weigh.model.plan import (
    Ask,
    Bin,
    Capacity,
    Card,
    Element,
    LeftOut,
    Packing,
    Plan,
)
from weigh.planning.needs import Needs
from weigh.planning.notes import plan_notes
from weigh.planning.options import Wishes, size
from weigh.planning.pack import pack
from weigh.planning.targets import Target
from weigh.request import round_memory, round_time

_NOISE = 1.05  # slow-down that equal runs show by chance


def planned(
    wishes: Wishes,
    needs: Needs,
    target: Target,
    headroom: float,
    *,
    slow_down: float | None = None,
) -> Plan:
    """Pack the tasks for *target*; *slow_down* is the factor measured by a probe.

    Raises:
        UsageError: tasks use different numbers of whole GPUs; a node has fewer; or
            the name cannot be the name of a directory.
        FormatError: a size does not parse.
    """
    whole = _whole_gpus(needs)
    capacity = _capacity(wishes, target.card, whole)
    packing = pack([needs.kinds[place].item for place in needs.places], capacity)
    elements = tuple(
        Element(
            file=f"tasks_{number}.txt",
            tasks=tuple(at + 1 for at in bin_.items),
            gpu_memory=bin_.gpu_memory,
            memory=bin_.memory,
            cpus=bin_.cpus,
            time=_time(bin_, needs, slow_down),
            kinds=tuple(needs.places[at] for at in bin_.items),
        )
        for number, bin_ in enumerate(packing.bins)
    )
    return Plan(
        name=_name(wishes),
        task_file=wishes.task_file,
        tasks=len(needs.places),
        headroom=headroom,
        card=target.card,
        capacity=capacity,
        ask=_request(elements, capacity, target, whole=whole, nodes=wishes.nodes or 1),
        kinds=needs.kinds,
        elements=elements,
        left_out=_left_out(packing),
        fewest=packing.lower_bound,
        notes=tuple(
            plan_notes(
                needs,
                elements,
                target,
                has_time_option=wishes.time is not None,
                slow_down=slow_down,
                nodes=wishes.nodes or 1,
            )
        ),
    )


def _name(wishes: Wishes) -> str:
    stem = posixpath.splitext(posixpath.basename(wishes.task_file))[0]
    name = wishes.name or (stem if stem.strip("-.") else "tasks")
    if posixpath.sep in name or name.strip(".") == "" or not name.isprintable():
        raise UsageError(f"not a directory name: {name!r} (choose another --name)")
    return name


def _whole_gpus(needs: Needs) -> int:
    """Return how many whole GPUs each task uses; 0 where tasks share one.

    Raises:
        UsageError: tasks differ: all elements of an array have the same request.
    """
    counts = {kind.item.gpus: place for place, kind in enumerate(needs.kinds)}
    if len(counts) > 1:
        uses = " and ".join(
            f"task {needs.places.index(place) + 1} {_gpu_use(count)}"
            for count, place in sorted(counts.items())[:2]
        )
        raise UsageError(
            f"{uses}: plan them from separate task files (or --gpus-per-task N)"
        )
    return next(iter(counts))


def _gpu_use(count: int) -> str:
    if count:
        return f"uses {count} GPU{'s' if count > 1 else ''}"
    return "shares one"


def _capacity(wishes: Wishes, card: Card | None, whole: int) -> Capacity:
    """Return what one element may hold: its GPUs' share of the node."""
    has_gpus = card is not None or whole > 0
    if whole and wishes.node_gpus and whole > wishes.node_gpus:
        raise UsageError(
            f"a task uses {whole} GPUs and a node has {wishes.node_gpus}: "
            "--nodes N --gpus-per-task G spreads a task over nodes, G on each"
        )
    shares = (wishes.node_gpus or 1) // (whole or 1) if has_gpus else 1
    memory, cpus = size("--node-memory", wishes.node_memory), wishes.node_cpus
    count = wishes.per_gpu
    if whole or (wishes.nodes or 1) > 1:
        count = 1
    elif card is None and memory is None and cpus is None:
        count = count or 1  # the node's size is not known: one task per element
    return Capacity(
        gpu_memory=card.memory if card else None,
        memory=None if memory is None else memory // max(1, shares),
        cpus=None if cpus is None else cpus // max(1, shares),
        count=count,
    )


def _time(bin_: Bin, needs: Needs, slow_down: float | None) -> float | None:
    """Return an upper bound of a bin's time: as measured together, or by GPU use.

    At any moment the slowest task either does not use the GPU, or waits while the GPU
    works for one of the tasks.
    """
    if bin_.time is None:
        return None
    if slow_down is not None:
        return bin_.time * (slow_down if slow_down > _NOISE else 1.0)
    kinds = [needs.kinds[needs.places[at]] for at in bin_.items]
    parts = [(kind.item.time or 0.0, kind.busy or 0.0) for kind in kinds]
    on_gpu = sum(time * busy for time, busy in parts)
    return max(bin_.time, max(time * (1 - busy) for time, busy in parts) + on_gpu)


def _request(
    elements: Sequence[Element],
    capacity: Capacity,
    target: Target,
    *,
    whole: int,
    nodes: int,
) -> Ask:
    memory = max((element.memory for element in elements), default=0)
    rounded = round_memory(memory)
    if capacity.memory is not None:
        rounded = max(memory, min(rounded, capacity.memory))
    times = [element.time for element in elements]
    known = [time for time in times if time is not None]
    return Ask(
        cpus=max((element.cpus for element in elements), default=1),
        memory=rounded or None,
        time_limit=round_time(max(known))
        if known and len(known) == len(times)
        else None,
        gpus=whole or (1 if target.card else 0),
        gpu=target.word,
        nodes=nodes,
    )


def _left_out(packing: Packing) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(short.item + 1, short.resource, short.need, short.capacity)
        for short in packing.too_big
    )
