"""What a job holds in tmpfs and memfd files that none of its processes maps.

Without the kernel's account, the machine's shared memory shows that there may be some:
it has risen by more than the job maps. Only then are the files looked for.
"""

from collections.abc import Callable, Sequence

from weigh.probe.tmpfs import Shmem, TmpfsFiles, find_files
from weigh.units import MIB, Bytes, Seconds

_MATERIAL = 0.01  # of the rise
_REST = 20  # times as long as the last search took, before the next one


class Unmapped:
    """Follows the machine's shared memory since the job began."""

    def __init__(
        self,
        clock: Callable[[], Seconds],
        shmem: Shmem | None = None,
        find: Callable[[Sequence[str], float], TmpfsFiles] = find_files,
    ) -> None:
        self._clock = clock
        self._shmem = shmem or Shmem()
        self._find = find
        self._found = TmpfsFiles(0, 0)
        self._found_rise: Bytes | None = None
        self._search_at = clock()

    def rise(self) -> Bytes | None:
        """Return how far the machine's shared memory has risen; None if unknown."""
        return self._shmem.rise()

    def beyond(
        self, mapped: Bytes, rise: Bytes, folders: Sequence[str], *, may_look: bool
    ) -> tuple[Bytes, Bytes]:
        """Return (probably, at most) what the job holds beyond the *mapped* bytes.

        *folders* are those of its processes in /proc.
        """
        if rise - mapped <= MIB + rise * _MATERIAL:
            return 0, 0
        before = self._found_rise
        is_news = before is None or abs(rise - before) > rise * _MATERIAL
        if may_look and is_news and self._clock() >= self._search_at:
            began = self._clock()
            self._found = self._find(folders, self._shmem.started)
            self._found_rise = rise
            self._search_at = self._clock() + _REST * (self._clock() - began)
        found = self._found.own
        if found and self._found_rise is not None:
            # what has come since is the job's, as far as what was found is
            share = found / (found + self._found.others)
            found = max(0, found + round((rise - self._found_rise) * share))
        # mapped memory may be in files too, but no page is in the rise twice
        most = max(mapped, rise - self._found.others)
        held = max(mapped, min(most, found + mapped))
        return held - mapped, most - mapped
