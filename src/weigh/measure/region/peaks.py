"""Join peaks of memory: over two periods, and over the time since any earlier edge."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from weigh.model.gpu import GpuMemory
from weigh.units import Bytes

_OF_GPU = ("peak", "torch_allocated", "torch_reserved")


def most(one: Bytes | None, other: Bytes | None) -> Bytes | None:
    """Return the larger of two figures, ignoring one that is None."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def joined_gpu_memory(
    first: Iterable[GpuMemory], later: Iterable[GpuMemory]
) -> tuple[GpuMemory, ...]:
    """Join the GPUs' memory over two periods: the later's end, the higher peaks."""
    joined = {gpu.uuid: gpu for gpu in first}
    for gpu in later:
        known = joined.get(gpu.uuid, gpu)
        peaks = {
            name: most(getattr(known, name), getattr(gpu, name)) for name in _OF_GPU
        }
        joined[gpu.uuid] = msgspec.structs.replace(gpu, before=known.before, **peaks)
    return tuple(joined.values())


class PeaksSince:
    """The most of each figure since any earlier edge.

    Of each figure a stack that falls: one that a later, higher one hides is dropped.
    So an edge costs the same with thousands of open regions, as of asyncio's tasks, and
    what is kept of a long run are the falls of its memory.
    """

    def __init__(self) -> None:
        self.edges = 0
        self._stacks: defaultdict[str, list[tuple[int, Bytes]]] = defaultdict(list)

    def add(self, memory: Bytes | None, gpus: Iterable[GpuMemory]) -> None:
        """Add what was seen at an edge: the process's mark, and the GPUs' memory."""
        self.edges += 1
        self._push("", memory)
        for gpu in gpus:
            for name in _OF_GPU:
                self._push(f"{gpu.uuid} {name}", getattr(gpu, name))

    def memory(self, edge: int) -> Bytes | None:
        """Return the process's highest mark after *edge*; None if none was read."""
        return self._most("", edge)

    def on_gpu(self, gpu: GpuMemory, edge: int) -> GpuMemory:
        """Return *gpu* with its highest peaks after *edge*."""
        peaks = {name: self._most(f"{gpu.uuid} {name}", edge) for name in _OF_GPU}
        return msgspec.structs.replace(gpu, **peaks)

    def _push(self, figure: str, size: Bytes | None) -> None:
        if size is None:
            return
        stack = self._stacks[figure]
        while stack and stack[-1][1] <= size:
            stack.pop()
        stack.append((self.edges, size))

    def _most(self, figure: str, edge: int) -> Bytes | None:
        stack = self._stacks[figure]
        place = bisect_right(stack, edge, key=lambda seen: seen[0])
        return stack[place][1] if place < len(stack) else None
