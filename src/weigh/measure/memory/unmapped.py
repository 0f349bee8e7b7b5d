"""What a job holds in tmpfs and memfd files that none of its processes maps.

Without the kernel's account, a change of the machine's shared memory shows that there
may be some. Only then are the files looked for. What no process of the job has mapped,
opened or can have written is another's.
"""

import time
from collections.abc import Callable, Sequence

from weigh.probe.tmpfs import JobFiles, MachineSharedMemory, TmpfsFiles, find_files
from weigh.units import MIB, Bytes, Seconds

_MATERIAL = 0.02  # of what is mapped: counts are no more exact
_REST = 20  # times the CPU time of the last search, before the next one
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds after a search that found nothing


class UnmappedMemory:
    """Follows the machine's shared memory since the job began."""

    def __init__(
        self,
        clock: Callable[[], Seconds],
        shmem: MachineSharedMemory | None = None,
        find: Callable[[Sequence[str], float, JobFiles], TmpfsFiles] = find_files,
    ) -> None:
        self._clock = clock
        self._shmem = shmem or MachineSharedMemory()
        self._find = find
        self._files = JobFiles()
        self._found = TmpfsFiles(0)
        self._checked = self._shmem.level or 0  # without what was mapped, at the search
        self._search_at = clock()
        self._pause = _SHORTEST_PAUSE
        self._mapped: Bytes = 0  # at the last search
        self._is_doubtful = self._is_settled = False

    def rise(self) -> Bytes | None:
        """Return how far the machine's shared memory has risen; None if unknown."""
        return self._shmem.rise()

    def may_hold(self, mapped: Bytes, rise: Bytes) -> bool:
        """Return whether the job may hold more than the *mapped* bytes."""
        # a rise beyond what the job maps may be its files, or another user's
        is_beyond = rise - mapped > _material(mapped)
        return is_beyond or self._own > 0 or self._has_news(mapped)

    def beyond(
        self, mapped: Bytes, rise: Bytes, folders: Sequence[str], *, may_look: bool
    ) -> Bytes:
        """Return what the job holds beyond the *mapped* bytes.

        *folders* are those of its processes in /proc.
        """
        if may_look and self._has_news(mapped) and self._clock() >= self._search_at:
            self._search(mapped, folders)
        found = self._found
        # what has gone since was a file, or a file that is mapped now
        gone = max(0, self._checked - self._outside(mapped))
        held = max(0, self._own - gone) + max(0, mapped - found.mapped)
        # A file that was mapped at the look, and no more at the search, is in both:
        # the next search shows it. Or others have given memory back
        limit = max(mapped, rise)
        self._is_doubtful = held > limit + _material(mapped) and not self._is_settled
        if self._is_doubtful:
            held = limit
        return max(0, held - mapped)

    @property
    def _own(self) -> Bytes:
        return self._found.own + self._found.closed

    def _search(self, mapped: Bytes, folders: Sequence[str]) -> None:
        began, before = time.thread_time(), self._own
        self._found = self._find(folders, self._shmem.started, self._files)
        self._checked = self._outside(mapped)
        # two searches that agree settle a doubt
        is_same = abs(self._own - before) <= MIB
        self._is_settled = is_same and abs(mapped - self._mapped) <= _material(mapped)
        self._mapped = mapped
        if not is_same:
            self._pause = _SHORTEST_PAUSE
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        cost = time.thread_time() - began
        self._search_at = self._clock() + max(self._pause, _REST * cost)

    def _outside(self, mapped: Bytes) -> Bytes:
        return (self._shmem.level or 0) - mapped

    def _has_news(self, mapped: Bytes) -> bool:
        """Return whether shared memory outside the job's mappings has changed."""
        changed = abs(self._outside(mapped) - self._checked)
        return self._is_doubtful or changed > _material(mapped)


def _material(mapped: Bytes) -> Bytes:
    return MIB + round(mapped * _MATERIAL)
