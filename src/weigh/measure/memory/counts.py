"""Count the pages that several processes hold together, at points of their memory.

Forks keep the addresses of what they share, so the same points are read in all of them
right after each other: at each point, the pages that only one process maps count each,
and the shared ones once. Of many processes only some are read; an exclusive page of
those stands for some in the others, a shared one does not.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from weigh.probe.pages import (
    ALONE,
    PAGE,
    SHARED,
    ProcessPages,
    anonymous_shares,
    merged_stretches,
    spread,
)
from weigh.units import Bytes

COUNT_ERROR = 0.015  # of a count of all processes, relative: of 60 counts of forks
_RUN = 4  # pages per read: a read costs as much as a dozen of pages
# points per count, over all its processes, which take it about 10 ms
_READS = 1200
_LEAST_READS = 60  # per process: fewer are off by more than 6 % on forks of 20 MiB
_MOST_PROCESSES = 17
_SPARSE = 4  # reads for each point that is expected to hold a page
# a bit of each page in a mask, for those shared and those of one process
_ONES = int.from_bytes(bytes([SHARED]) * _RUN, "little")
_TENS = int.from_bytes(bytes([ALONE]) * _RUN, "little")

_Place = TypeVar("_Place")


class PageCount(NamedTuple):
    """What a count shows of some processes' pages.

    ``distinct`` is the part of the sum of their sizes that remains if each page counts
    once, ``error`` how far that may be off, relative to it; ``own`` the part of each
    one's size that nobody else maps. The truth may be as little as ``least`` where some
    have moved shared pages to other addresses: a count does not show which those are.
    The kernel's shares (``is_by_shares``) show that, and several versions of a page;
    each process had ``sizes`` at that moment.
    """

    distinct: float
    error: float = COUNT_ERROR
    own: Mapping[int, float] = {}
    least: float = 1.0
    is_by_shares: bool = False
    sizes: Mapping[int, Bytes] = {}


def processes_to_count(sizes: Mapping[int, Bytes]) -> list[int]:
    """Return the processes to read: the largest and a random part of the others."""
    first, *others = sorted(sizes, key=lambda pid: -sizes[pid])
    shuffled = _spread_order(others, skip=_random_below(len(others)))
    return [first, *shuffled[: _MOST_PROCESSES - 1]]


def count_by_shares(folders: Mapping[int, str]) -> PageCount | None:
    """Count the anonymous memory of forks by the kernel's shares of each page.

    *folders* are those of all of them in /proc. None where that is not readable.
    """
    shares = {pid: anonymous_shares(folder) for pid, folder in folders.items()}
    distinct = 0
    own, sizes = {}, {}
    for pid, figures in shares.items():
        if figures is None:
            return None
        sizes[pid] = figures.anonymous
        distinct += figures.share
        # What is shared is in it by a half at most. What it alone has written may be
        # shared memory, too: forks that write some would seem to share nothing else
        least = 2 * figures.share - figures.anonymous
        private = min(figures.share, max(least, figures.private))
        own[pid] = private / max(1, figures.anonymous)
    part = distinct / max(1, sum(sizes.values()))
    return PageCount(part, 0.0, own, part, is_by_shares=True, sizes=sizes)


def count_family(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> PageCount | None:
    """Count the anonymous memory of forks of *sizes*, some of which are in *pages*.

    None if one of them ended, or nothing was found.
    """
    points = _points(pages, sizes)
    own, present, once = (dict.fromkeys(pages, 0) for _ in range(3))
    several = at_points = 0
    for at, length in points:
        masks = [one.anonymous(at, length) for one in pages.values()]
        # one process has ended in the middle of the count
        if None in masks:
            return None
        union = twice = alone = 0
        for pid, mask in zip(pages, masks, strict=True):
            if mask:
                alone |= mask & _TENS
                own[pid] += (mask & _TENS).bit_count()
                present[pid] += mask.bit_count()
                # pages that more than one process maps at that address
                twice |= union & mask
                union |= mask
        at_points += bool(alone)
        several += (twice & _ONES).bit_count()
        # shared pages that only one of the processes maps at that address: see below
        single = union & ~twice & _ONES
        if single:
            for pid, mask in zip(pages, masks, strict=True):
                once[pid] += ((mask or 0) & single).bit_count()
    if not any(present.values()):
        return None
    weights = _weights(pages, len(sizes))
    exclusive = sum(own[pid] * weights[pid] for pid in pages)
    # A shared page that one process maps there: one that is not read maps it too; or
    # another has moved it, and then there are at least two addresses for each
    is_whole = len(pages) == len(sizes)
    moved = sum(once.values())
    least = most = exclusive + several + moved
    if is_whole:
        least = exclusive + max(several, *once.values())
        most = max(least, most - moved / 2)
    error = COUNT_ERROR if is_whole else 1.5 * COUNT_ERROR
    # forks grow at the same addresses: a point finds the own pages of all, or of none
    varies = 2 * exclusive / math.sqrt(max(1, at_points)) / most
    error = max(error, varies)
    weighted = sum(present[pid] * weights[pid] for pid in pages)
    shares = {pid: own[pid] / present[pid] if present[pid] else 1.0 for pid in pages}
    return PageCount(most / weighted, error, shares, least / weighted)


def _weights(pages: Mapping[int, ProcessPages], processes: int) -> dict[int, float]:
    """Return how many processes each of *pages* stands for; the largest is first."""
    others = (processes - 1) / max(1, len(pages) - 1)
    return {pid: others if number else 1.0 for number, pid in enumerate(pages)}


def _points(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> list[tuple[int, int]]:
    """Spread points over all private memory, in an order of which any part is fair."""
    stretches = merged_stretches(
        stretch for one in pages.values() for stretch in one.layout.private
    )
    span = sum(end - start for start, end in stretches)
    # points as dense as resident memory needs, but not so many that most are empty
    resident = max((sizes[pid] for pid in pages), default=0) // PAGE
    reads = max(_LEAST_READS, _READS // max(1, len(pages)))
    step = max(_RUN, resident // reads, span // (_SPARSE * reads))
    return _spread_order(list(spread(stretches, step, _random_below(step), _RUN)))


def count_files(
    pages: Mapping[int, ProcessPages], processes: int, resident: Bytes
) -> dict[bool, PageCount]:
    """Count files (False) and shared memory (True) of *processes*, some in *pages*.

    *resident* is the sum of what they all map. Nothing if one of them ended; without a
    kind where no page of it was found.
    """
    mapped = sum(
        mapping.pages for one in pages.values() for mapping in one.layout.mappings
    )
    wanted = max(min(mapped, 8 * resident // PAGE), mapped // _SPARSE)
    step = max(1, wanted // _READS // _RUN) * _RUN
    # a random start, so that no page is always left out
    first = _random_below(step // _RUN) * _RUN
    weights = _weights(pages, processes)
    # of each place in a file, who maps which of its pages, and for how many it stands
    seen: dict[tuple[bool, bytes, int], list[tuple[int, float]]] = {}
    for pid, one in pages.items():
        for mapping in one.layout.mappings:
            start = mapping.offset + (first - mapping.offset) % step
            for at in range(start, mapping.offset + mapping.pages, step):
                left = mapping.offset + mapping.pages - at
                page = mapping.first_page + at - mapping.offset
                mask = one.mapped(page, min(_RUN, left))
                if mask is None:
                    return {}
                if mask:
                    place = mapping.is_shared_memory, mapping.file, at
                    seen.setdefault(place, []).append((mask, weights[pid]))
    total, distinct = {False: 0.0, True: 0.0}, {False: 0.0, True: 0.0}
    for (is_shared, _, _), masks in seen.items():
        union = twice = 0
        for mask, weight in masks:
            total[is_shared] += mask.bit_count() * weight
            twice |= union & mask
            union |= mask
        distinct[is_shared] += twice.bit_count() + sum(
            (mask & ~twice).bit_count() * weight for mask, weight in masks
        )
    return {
        kind: PageCount(distinct[kind] / whole)
        for kind, whole in total.items()
        if whole
    }


def _random_below(limit: int) -> int:
    return int.from_bytes(os.urandom(4), "little") % max(1, limit)


def _spread_order(places: Sequence[_Place], skip: int = 0) -> list[_Place]:
    """Order *places* so that any part from the start on is spread over all of them."""
    length = len(places)
    # multiples of the golden section are spread most evenly
    step = max(1, int(length * (math.sqrt(5) - 1) / 2))
    # without a common divisor the steps visit each place once
    while math.gcd(step, length) > 1:
        step += 1
    return [places[(skip + turn * step) % length] for turn in range(length)]
