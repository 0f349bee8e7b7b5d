"""The processes of one task: its leader and all below, and daemons it left behind."""

import os

from weigh.probe.proc import ProcTree

_MOST_OPEN = 200
_FILES_EACH = 3
_SHARE = 2  # of the descriptors weigh may have


class TaskTree(ProcTree):
    """A process tree with its top in it, one of *trees* that are watched at once."""

    def __init__(self, leader: int, trees: int) -> None:
        super().__init__(leader)
        allowed = os.sysconf("SC_OPEN_MAX") // (_SHARE * _FILES_EACH * trees)
        self._most_open = max(1, min(_MOST_OPEN, allowed))
        self.adopt(leader)

    def children(self) -> list[int] | None:
        """Give the leader's own children; none once it has ended."""
        found = super().children()
        if found is None and not os.path.exists(f"{self._root}/{self.top}"):
            return []
        return found
