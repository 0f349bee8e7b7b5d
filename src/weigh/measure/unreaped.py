"""The storage traffic of processes that nobody waits for.

A parent that ignores SIGCHLD gets no account of its children: the kernel drops it. Of
these, what was last read while they lived is counted.
"""

from collections.abc import Sequence

from weigh.probe.proc import IoReading, ProcessReading, ProcTree

_NOTHING = IoReading(0, 0)


class UnreapedIo:
    """Follows the children of parents that ignore SIGCHLD."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._known: set[int] = set()
        self._live: dict[int, IoReading] = {}
        self._ended = _NOTHING

    def look(self, readings: Sequence[ProcessReading]) -> None:
        """Add one look at all processes of the tree."""
        present = {reading.pid for reading in readings}
        ignoring: dict[int, bool] = {}
        unread: set[int] = set()
        for pid in present - self._known:
            times = self._tree.times(pid)
            if times is None:
                unread.add(pid)  # looked at again, if it is still there
                continue
            parent = times.parent
            if parent not in ignoring:
                ignoring[parent] = self._tree.ignores_children(parent)
            # weigh's own children are accounted for when they are reaped
            if ignoring[parent] and parent != self._tree.top:
                self._live[pid] = _NOTHING
        for pid in list(self._live):
            # what was read before it ended is all that is left of it
            now = self._tree.io(pid) if pid in present else None
            if now is not None:
                self._live[pid] = now
            elif pid not in present:
                self._ended += self._live.pop(pid)
        self._known = present - unread

    def total(self) -> IoReading:
        """Return their traffic so far, as last read."""
        return sum(self._live.values(), start=self._ended)
