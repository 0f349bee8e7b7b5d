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
        """Return the leader's own children; none once it has ended.

        Those of a leader with open descriptors are found through these like all
        others: its number may be another process's by now.
        """
        known = self._known.get(self.top)
        if known is None or known.children_fd is not None:
            return []
        return super().children()
