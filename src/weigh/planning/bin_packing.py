"""Pack items into bins by GPU memory, host memory and CPUs.

First-fit decreasing comes within two per cent of the optimum if one resource is short.
If several are, it is better to fill one bin after the other with the item that best
matches the space left (dot product, Panigrahy et al. 2011). Few items are packed
exactly. `most_work` and `sharing_notes` evaluate a probe of shared GPUs.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from weigh.model.plan import (
    RESOURCES,
    Bin,
    Capacity,
    Item,
    Packing,
    Together,
    TooBig,
)

Need: TypeAlias = tuple[int, int, int]
Groups: TypeAlias = list[list[int]]

_GOOD_ENOUGH = 1.03  # above this multiple of the lower bound another method is tried
_ENOUGH_TO_MATCH = 3  # items per bin: with fewer there is little to choose
_WINDOW, _LOOKED_AT = 64, 200  # candidates for a place, and items examined for them
_FEW = 48  # most items that are packed exactly
_STEPS = 10_000
_NO_ROOM = (-1, -1, -1)
_AS_GOOD = 0.95  # share of the highest throughput that counts as equal
_FELT, _HALF_BUSY = 1.3, 50  # slow-down factor; GPU utilisation in per cent


class _Problem(NamedTuple):
    """Needs and capacities in the same order; unlimited resources count as 0."""

    needs: list[Need]
    full: Need
    limit: int  # items per bin


def pack(items: Sequence[Item], capacity: Capacity) -> Packing:
    """Pack *items* into as few bins of *capacity* as can be found.

    Raises:
        ValueError: an item's need is negative, or less than one CPU.
    """
    if any(min(item.gpu_memory, item.memory, item.cpus - 1) < 0 for item in items):
        raise ValueError("an item's memory must not be negative, its CPUs at least 1")
    too_big = tuple(
        short for at, item in enumerate(items) if (short := _short(at, item, capacity))
    )
    left_out = {short.item for short in too_big}
    kept = [at for at in range(len(items)) if at not in left_out]
    problem = _problem([items[at] for at in kept], capacity)
    bound = _lower_bound(problem)
    groups = _alike(problem) or _best(problem, bound)
    bins = (_bin([kept[at] for at in sorted(group)], items) for group in groups)
    return Packing(
        bins=tuple(sorted(bins, key=lambda bin_: bin_.items)),
        too_big=too_big,
        lower_bound=bound,
    )


def _short(at: int, item: Item, capacity: Capacity) -> TooBig | None:
    for resource in RESOURCES:
        need, limit = getattr(item, resource), getattr(capacity, resource)
        if limit is not None and need > limit:
            return TooBig(at, resource, need, limit)
    return None


def _problem(items: Sequence[Item], capacity: Capacity) -> _Problem:
    needs = [(item.gpu_memory, item.memory, item.cpus) for item in items]
    limits = (capacity.gpu_memory, capacity.memory, capacity.cpus)
    sums = [sum(need[at] for need in needs) for at in range(len(RESOURCES))]
    full = [
        # a resource that cannot be short is ignored
        None if limit is None or limit >= total else limit
        for limit, total in zip(limits, sums, strict=True)
    ]
    a, b, c = (1 if limit is None else limit for limit in full)
    plain = [
        (
            0 if full[0] is None else need[0],
            0 if full[1] is None else need[1],
            0 if full[2] is None else need[2],
        )
        for need in needs
    ]
    limit = len(items) if capacity.count is None else max(1, capacity.count)
    return _Problem(plain, (a, b, c), max(1, limit))


def _lower_bound(problem: _Problem) -> int:
    """Return the bins that are needed by volume, by large items and by the limit."""
    needs, full, limit = problem
    if not needs:
        return 0
    least = -(-len(needs) // limit)
    for at, size in enumerate(full):
        volume = -(-sum(need[at] for need in needs) // size)
        large = sum(2 * need[at] > size for need in needs)
        least = max(least, volume, large)
    return least


def _alike(problem: _Problem) -> Groups:
    """Pack items of equal need in order; return no groups where needs differ."""
    needs, full, limit = problem
    if len(set(needs)) != 1:
        return []
    counts = [size // need for need, size in zip(needs[0], full, strict=True) if need]
    each = min([limit, *counts])
    everyone = list(range(len(needs)))
    return [everyone[at : at + each] for at in range(0, len(everyone), each)]


def _best(problem: _Problem, bound: int) -> Groups:
    """Try one method after the other until the packing is good enough."""
    found = _first_fit(problem)
    many = len(problem.needs) >= _ENOUGH_TO_MATCH * len(found)
    if many and len(found) > bound * _GOOD_ENOUGH:
        found = min(found, _by_match(problem), key=len)
    if len(problem.needs) <= _FEW and len(found) > bound:
        found = _Search(problem, found, bound).run()
    return found


def _weights(problem: _Problem) -> tuple[float, float, float]:
    a, b, c = problem.full
    return 1 / a, 1 / b, 1 / c


def _first_fit(problem: _Problem) -> Groups:
    """Put the largest remaining item into the first bin with enough space.

    The bins are the leaves of a tree. Each inner node holds the largest space below it,
    so the first bin with enough space is found in logarithmic time.
    """
    needs, full, limit = problem
    wa, wb, wc = _weights(problem)
    size = 1 << max(0, len(needs) - 1).bit_length()
    rooms = tuple([room] * (2 * size) for room in full)
    groups: Groups = [[] for _ in needs]
    keys = [-(a * wa + b * wb + c * wc) for a, b, c in needs]
    for at in sorted(range(len(needs)), key=keys.__getitem__):
        leaf = _first_with_room(rooms, needs[at], size)
        group = groups[leaf - size]
        group.append(at)
        room = (rooms[0][leaf], rooms[1][leaf], rooms[2][leaf])
        left = _less(room, needs[at]) if len(group) < limit else _NO_ROOM
        _set_room(rooms, leaf, left)
    return [group for group in groups if group]


def _first_with_room(rooms: tuple[list[int], ...], need: Need, size: int) -> int:
    room_a, room_b, room_c = rooms
    a, b, c = need
    node = 1
    while True:
        if room_a[node] >= a and room_b[node] >= b and room_c[node] >= c:
            if node >= size:
                return node
            node <<= 1
        else:  # a later bin is always empty
            while node & 1:
                node >>= 1
            node += 1


def _set_room(rooms: tuple[list[int], ...], leaf: int, left: tuple[int, ...]) -> None:
    for room, rest in zip(rooms, left, strict=True):
        room[leaf] = rest
        node = leaf >> 1
        while node:
            one, other = room[2 * node], room[2 * node + 1]
            most = max(other, one)
            if room[node] == most:
                break
            room[node] = most
            node >>= 1


class _Row:
    """Distinct needs from the largest to the smallest; used-up ones are skipped."""

    def __init__(self, problem: _Problem) -> None:
        """Sort the needs by size; scarce resources have a larger weight."""
        needs, full, _ = problem
        self.items: dict[Need, list[int]] = {}
        for at in range(len(needs) - 1, -1, -1):
            self.items.setdefault(needs[at], []).append(at)
        totals = [sum(need[at] for need in needs) for at in range(len(full))]
        loads = [total / size for total, size in zip(totals, full, strict=True)]
        most = max(loads) or 1.0
        self.weights = tuple(
            load / most / size for load, size in zip(loads, full, strict=True)
        )
        self.needs = sorted(self.items, key=self.weigh, reverse=True)
        self.keys = [-self.weigh(need) for need in self.needs]
        self.next = list(range(len(self.needs) + 1))

    def weigh(self, need: Need) -> float:
        """Return the weighted size of a need or of a free space."""
        a, b, c = self.weights
        return need[0] * a + need[1] * b + need[2] * c

    def alive(self, at: int) -> int:
        """Return the first need from index *at* on that has items, else the end."""
        following = self.next
        while following[at] != at:
            following[at] = following[following[at]]
            at = following[at]
        return at

    def take(self, at: int) -> int:
        """Remove an item of the need at *at*; return the item's index."""
        left = self.items[self.needs[at]]
        if len(left) == 1:
            self.next[at] = at + 1
        return left.pop()


def _by_match(problem: _Problem) -> Groups:
    """Fill one bin after the other with the item that best matches its free space."""
    row = _Row(problem)
    groups: Groups = []
    end = len(row.needs)
    while row.alive(0) < end:
        room = problem.full
        group: list[int] = []
        while len(group) < problem.limit:
            at = _best_match(row, room)
            if at is None:
                break
            room = _less(room, row.needs[at])
            group.append(row.take(at))
        groups.append(group)
    return groups


def _best_match(row: _Row, room: Need) -> int | None:
    """Return the need most similar to *room*, among the largest that fit."""
    a, b, c = room
    wa, wb, wc = (w * w * r for w, r in zip(row.weights, room, strict=True))
    slack = 1e-9 * row.weigh(room)
    at = row.alive(bisect_left(row.keys, -row.weigh(room) - slack))
    needs, alive, end = row.needs, row.next, len(row.needs)
    best, best_score, fitting, seen = None, -1.0, 0, 0
    while at < end and fitting < _WINDOW and (best is None or seen < _LOOKED_AT):
        x, y, z = needs[at]
        if x <= a and y <= b and z <= c:
            fitting += 1
            score = x * wa + y * wb + z * wc
            if score > best_score:
                best, best_score = at, score
        seen += 1
        at += 1
        if alive[at] != at:
            at = row.alive(at)
    return best


class _Search:
    """Search for fewer bins: try every bin for each item, the largest item first."""

    def __init__(self, problem: _Problem, found: Groups, bound: int) -> None:
        """Start from *found*; stop at *bound* bins or after a number of steps."""
        self.problem = problem
        self.best = found
        self.bound = bound
        self.steps = _STEPS
        a, b, c = _weights(problem)
        sizes = [x * a + y * b + z * c for x, y, z in problem.needs]
        self.order = sorted(range(len(sizes)), key=lambda at: -sizes[at])
        self.volumes, self.smallest = self._of_rest()
        self.rooms: list[Need] = []
        self.groups: Groups = []

    def run(self) -> Groups:
        """Return the best packing found."""
        self._place(0)
        return self.best

    def _place(self, depth: int) -> None:
        self.steps -= 1
        if self.steps < 0 or len(self.best) <= self.bound:
            return
        if depth == len(self.order):
            self.best = [list(group) for group in self.groups]
            return
        if self._needed(depth) >= len(self.best):
            return
        at = self.order[depth]
        tried: set[tuple[Need, int]] = set()
        for place, room in enumerate(self.rooms):
            inside = len(self.groups[place])
            if inside < self.problem.limit and (room, inside) not in tried:
                tried.add((room, inside))
                self._try(depth, at, place)
        if len(self.rooms) + 1 < len(self.best):
            self.rooms.append(self.problem.full)
            self.groups.append([])
            self._try(depth, at, len(self.rooms) - 1)
            self.rooms.pop()
            self.groups.pop()

    def _try(self, depth: int, at: int, place: int) -> None:
        room, need = self.rooms[place], self.problem.needs[at]
        if any(n > r for n, r in zip(need, room, strict=True)):
            return
        self.rooms[place] = _less(room, need)
        self.groups[place].append(at)
        self._place(depth + 1)
        self.groups[place].pop()
        self.rooms[place] = room

    def _of_rest(self) -> tuple[list[Need], list[Need]]:
        """Return, per depth, the sum and the minimum of the remaining items' needs."""
        volumes: list[Need] = [(0, 0, 0)]
        smallest: list[Need] = [self.problem.full]
        for at in reversed(self.order):
            need, volume, least = self.problem.needs[at], volumes[-1], smallest[-1]
            volumes.append(_each(int.__add__, need, volume))
            smallest.append(_each(min, need, least))
        return volumes[::-1], smallest[::-1]

    def _needed(self, depth: int) -> int:
        """Return a lower bound of the bins; unusable free space is not counted."""
        volume, (a, b, c) = self.volumes[depth], self.smallest[depth]
        useful = [r for r in self.rooms if r[0] >= a and r[1] >= b and r[2] >= c]
        more = 0
        for dim, size in enumerate(self.problem.full):
            room = sum(left[dim] for left in useful)
            more = max(more, -(-(volume[dim] - room) // size))
        return len(self.rooms) + more


def _each(apply: Callable[[int, int], int], one: Need, other: Need) -> Need:
    return (apply(one[0], other[0]), apply(one[1], other[1]), apply(one[2], other[2]))


def _less(room: Need, need: Need) -> Need:
    return (room[0] - need[0], room[1] - need[1], room[2] - need[2])


def _bin(group: Sequence[int], items: Sequence[Item]) -> Bin:
    inside = [items[at] for at in group]
    times = [item.time for item in inside]
    known = [time for time in times if time is not None]
    return Bin(
        items=tuple(group),
        gpu_memory=sum(item.gpu_memory for item in inside),
        memory=sum(item.memory for item in inside),
        cpus=sum(item.cpus for item in inside),
        time=max(known) if len(known) == len(times) else None,
    )


def most_work(found: Sequence[Together]) -> Together:
    """Return the probe with the highest throughput; of nearly equal ones the fewest."""
    most = max(one.speed_up for one in found)
    return next(one for one in found if one.speed_up >= most * _AS_GOOD)


def sharing_notes(found: Sequence[Together]) -> tuple[str, ...]:
    """Return what makes the probe doubtful, and what may let tasks share a GPU."""
    return (*_full_machine(found), *_mps(found))


def _full_machine(found: Sequence[Together]) -> Iterator[str]:
    others = found[0].others
    if others:
        yield (
            f"the probe waited for CPUs, of which other programs used {others:.1f}: "
            "probe again on a free machine"
        )


def mps_may_help(found: Sequence[Together]) -> bool:
    """Return whether tasks wait for one another on a GPU that is not busy.

    Without MPS the processes on a GPU take turns. A GPU that one task uses for less
    than half of the time could run kernels of several processes at once.
    """
    alone, pair = found[0], next((one for one in found if one.count == 2), None)  # noqa: PLR2004
    if pair is None or alone.gpu_busy is None:
        return False
    return pair.slow_down >= _FELT and alone.gpu_busy < _HALF_BUSY


def _mps(found: Sequence[Together]) -> tuple[str, ...]:
    """Return what NVIDIA's MPS gained, or where it may help and was not tried."""
    if not mps_may_help(found):
        return ()
    best = most_work(found)
    before = max(one.speed_up for one in found if not one.mps)
    after = max((one.speed_up for one in found if one.mps), default=None)
    if after is None:
        alone, pair = found[0], next(one for one in found if one.count == 2)  # noqa: PLR2004
        advice = (
            f"a second task makes a task {pair.slow_down:.1f} times as long, although "
            f"the GPU is {alone.gpu_busy:.0f} % busy: NVIDIA's MPS may help; probe "
            "where nvidia-cuda-mps-control is installed"
        )
        return (advice,)
    gain = f"{after:.2f} times the throughput of one task, {before:.2f} without"
    if best.mps:
        return (f"NVIDIA's MPS: {gain}; each element starts it",)
    return (f"NVIDIA's MPS does not pay: {gain}",)
