"""Pack items into bins by GPU memory, host memory and CPUs.

The items of one kind, the largest kind first, go into the bin whose room matches their
need best. This is done in three orders of size, and the fewest bins count. `most_work`
evaluates a probe of shared GPUs.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from weigh.model.plan import (
    RESOURCES,
    BinCapacity,
    PackedBin,
    PackedTasks,
    TaskNeed,
    TogetherRun,
    TooBig,
)

Need: TypeAlias = tuple[int, int, int]  # in the order of RESOURCES
Groups: TypeAlias = list[list[int]]  # the items' indices, by bin

# an integer, so that the rest of the code divides and compares without a special case
_UNLIMITED = 1 << 62
_COMPARED = 16  # bins that hold an item, of which the best match takes it
_AS_GOOD = 0.95  # share of the highest throughput that counts as equal


def pack_items(items: Sequence[TaskNeed], capacity: BinCapacity) -> PackedTasks:
    """Pack *items* into as few bins of *capacity* as are found.

    Raises:
        ValueError: an item's need is negative, or less than one CPU.
    """
    if any(min(item.gpu_memory, item.memory, item.cpus - 1) < 0 for item in items):
        raise ValueError("an item's memory must not be negative, its CPUs at least 1")
    full: Need = (
        _UNLIMITED if capacity.gpu_memory is None else capacity.gpu_memory,
        _UNLIMITED if capacity.memory is None else capacity.memory,
        _UNLIMITED if capacity.cpus is None else capacity.cpus,
    )
    most = len(items) if capacity.count is None else max(1, capacity.count)
    # equal needs are packed together: 100,000 tasks are mostly of a few kinds
    kinds: dict[Need, list[int]] = {}
    too_big = []
    for at, item in enumerate(items):
        need = (item.gpu_memory, item.memory, item.cpus)
        short = [d for d in range(len(RESOURCES)) if need[d] > full[d]]
        if short:
            d = short[0]
            too_big.append(TooBig(at, RESOURCES[d], need[d], full[d]))
        else:
            kinds.setdefault(need, []).append(at)
    # bins that each resource would fill by itself; the scarcest one is the lower bound
    loads = [
        sum(n[d] * len(k) for n, k in kinds.items()) / f for d, f in enumerate(full)
    ]
    orders: tuple[Callable[[Need], float], ...] = (
        # the size of a need: its shares added up, added up by how scarce each resource
        # is, and the largest of them. None of the three is the best on all inputs.
        lambda need: sum(n / f for n, f in zip(need, full, strict=True)),
        lambda need: sum(n / f * w for n, f, w in zip(need, full, loads, strict=True)),
        lambda need: max(n / f for n, f in zip(need, full, strict=True)),
    )
    groups = min((_fill_bins(kinds, order, full, most) for order in orders), key=len)
    bins = [_bin_of_group(sorted(group), items) for group in groups]
    return PackedTasks(
        bins=tuple(sorted(bins, key=lambda bin_: bin_.items)),
        too_big=tuple(too_big),
    )


def _fill_bins(
    kinds: dict[Need, list[int]],
    size_of_need: Callable[[Need], float],
    full: Need,
    most_items: int,
) -> Groups:
    """Return the bins that hold all items, the kind with the largest size first."""
    bins: list[_OpenBin] = []
    for need in sorted(kinds, key=size_of_need, reverse=True):
        # reversed, because items are taken from the end: the file's order stays within
        # a bin
        left = kinds[need][::-1]
        gpu_memory, memory, cpus = need
        holding = (  # compared one by one: 10,000 needs meet as many bins
            one
            for one in bins
            if one.room[0] >= gpu_memory
            and one.room[1] >= memory
            and one.room[2] >= cpus
            and len(one.items) < most_items
        )
        # the generator goes on where it stopped: a bin that was compared is full for
        # this need
        while left and (some := [*itertools.islice(holding, _COMPARED)]):
            some.sort(key=lambda one: _room_match(need, one.room, full), reverse=True)
            for one in some:
                one.take(need, left, most_items)
        while left:
            bins.append(_OpenBin(full, []))
            bins[-1].take(need, left, most_items)
    return [one.items for one in bins]


def _room_match(item_need: Need, bin_room: Need, full: Need) -> float:
    """Return how well a need points where a bin has room (Panigrahy et al. 2011)."""
    # shares, because bytes and CPUs cannot be added
    shares = [left / limit for left, limit in zip(bin_room, full, strict=True)]
    dot = sum(n / f * s for n, f, s in zip(item_need, full, shares, strict=True))
    # divided by the length of the room only: the need is the same for all bins
    return dot / (math.hypot(*shares) or 1.0)


class _OpenBin:
    """A bin that is being filled: the room that is left, and its items' places."""

    def __init__(self, bin_room: Need, items: list[int]) -> None:
        self.room, self.items = bin_room, items

    def take(self, item_need: Need, left: list[int], most_items: int) -> None:
        """Move as many items of one need as fit from the end of *left* into the bin."""
        # never empty, as each item needs a CPU at least
        fit = min(r // n for r, n in zip(self.room, item_need, strict=True) if n)
        count = min(len(left), most_items - len(self.items), fit)
        self.items += (left.pop() for _ in range(count))
        gpu_memory, memory, cpus = (
            r - n * count for r, n in zip(self.room, item_need, strict=True)
        )
        self.room = gpu_memory, memory, cpus


def _bin_of_group(group: Sequence[int], items: Sequence[TaskNeed]) -> PackedBin:
    ours = [items[at] for at in group]
    times = [item.time for item in ours]
    return PackedBin(
        items=tuple(group),
        gpu_memory=sum(item.gpu_memory for item in ours),
        memory=sum(item.memory for item in ours),
        cpus=sum(item.cpus for item in ours),
        time=None if None in times else max(t or 0.0 for t in times),
    )


def most_work(together_runs: Sequence[TogetherRun]) -> TogetherRun:
    """Return the probe with the highest throughput; of nearly equal ones the fewest."""
    most = max(one.speed_up for one in together_runs)
    # in the order of their number of tasks: fewer tasks leave more memory to each
    return next(one for one in together_runs if one.speed_up >= most * _AS_GOOD)
