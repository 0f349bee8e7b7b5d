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
    MappedStretch,
    ProcessPages,
    merged_stretches,
    spread,
)
from weigh.units import Bytes

_RUN = 4  # pages per read
_READS = 1200  # per count, over all its processes
_LEAST_READS, _MOST_READS = 60, 500  # per process
_MOST_PROCESSES = 17
_SPARSE = 4  # reads for each point that is expected to hold a page
_ENOUGH = 0.6  # of the points, if a process ends during the count
_ERROR = 0.015  # relative error of a count of all processes
# the golden section: multiples of it are spread most evenly
_GOLDEN = (math.sqrt(5) - 1) / 2
# a bit of each page in a mask, for those shared and those of one process
_ONES = int.from_bytes(bytes([SHARED]) * _RUN, "little")
_TENS = int.from_bytes(bytes([ALONE]) * _RUN, "little")


_Place = TypeVar("_Place")


class FamilyCount(NamedTuple):
    """The anonymous memory of some forks.

    ``distinct`` is the part of the sum of their sizes that remains if each page counts
    once, ``error`` how far that may be off, relative to it; ``own`` the part of each
    one's size that nobody else maps. The truth may be as little as ``least`` where some
    have moved shared pages to other addresses: a count does not show which those are.
    """

    distinct: float
    own: Mapping[int, float]
    error: float
    least: float


class FileCount(NamedTuple):
    """What remains of the sum if each page of files, and of shared memory, counts once.

    None where no page was found.
    """

    file: float | None
    shared: float | None


def processes_to_count(sizes: Mapping[int, Bytes]) -> list[int]:
    """Return the processes to read: the largest and a random part of the others."""
    first, *others = sorted(sizes, key=lambda pid: -sizes[pid])
    shuffled = _spread_order(others, skip=_random_below(len(others)))
    return [first, *shuffled[: _MOST_PROCESSES - 1]]


def count_family(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> FamilyCount | None:
    """Count the anonymous memory of forks of *sizes*, some of which are in *pages*.

    None if too much of it was not read, because one of them ended.
    """
    points = _points(pages, sizes)
    weights = _weights(pages, len(sizes))
    own = dict.fromkeys(pages, 0)
    present = dict.fromkeys(pages, 0)
    moved = dict.fromkeys(pages, 0)
    several = at_points = done = 0
    for at, length in points:
        masks = [one.anonymous(at, length) for one in pages.values()]
        # one process has ended in the middle of the count
        if None in masks:
            break
        done += 1
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
        once = union & ~twice & _ONES
        if once:
            for pid, mask in zip(pages, masks, strict=True):
                moved[pid] += ((mask or 0) & once).bit_count()
    # too little was read for a figure
    if done < _ENOUGH * len(points) or not any(present.values()):
        return None
    exclusive = sum(own[pid] * weights[pid] for pid in pages)
    weighted = sum(present[pid] * weights[pid] for pid in pages)
    # A shared page that one process maps there: one that is not read maps it too; or
    # another has moved it, and then there are at least two addresses for each
    single, error = sum(moved.values()), 1.5 * _ERROR
    least = most = exclusive + several + single
    if len(pages) == len(sizes):
        least = exclusive + max(several, *moved.values())
        most, error = max(least, most - single / 2), _ERROR
    # the points not read add to the error
    if done < len(points):
        error += 3 / done
    # forks grow at the same addresses: a point finds the own pages of all, or of none
    varies = 2 * exclusive / math.sqrt(max(1, at_points)) / most
    error = max(error, varies, 1 / math.sqrt(sum(present.values())))
    shares = {pid: own[pid] / present[pid] if present[pid] else 1.0 for pid in pages}
    return FamilyCount(most / weighted, shares, error, least / weighted)


def _weights(pages: Mapping[int, ProcessPages], processes: int) -> dict[int, float]:
    """Return how many processes each of *pages* stands for; the largest is first."""
    others = (processes - 1) / max(1, len(pages) - 1)
    return {pid: others if number else 1.0 for number, pid in enumerate(pages)}


def _points(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> list[tuple[int, int]]:
    """Spread points over all private memory, in an order of which any part is fair."""
    stretches = merged_stretches(
        s for one in pages.values() for s in one.layout.private
    )
    span = sum(end - start for start, end in stretches)
    # points as dense as resident memory needs, but not so many that most are empty
    resident = max((sizes[pid] for pid in pages), default=0) // PAGE
    reads = min(_MOST_READS, max(_LEAST_READS, _READS // max(1, len(pages))))
    step = max(_RUN, resident // reads, span // (_SPARSE * reads))
    return _spread_order(list(spread(stretches, step, _random_below(step), _RUN)))


def count_files(
    pages: Mapping[int, ProcessPages], processes: int, resident: Bytes
) -> FileCount | None:
    """Count files and shared memory of *processes*, some of which are in *pages*.

    *resident* is the sum of what they all map. None if one of them ended.
    """
    weights = _weights(pages, processes)
    places: dict[tuple[bool, bytes], list[_MappedPlace]] = {}
    mapped = 0
    for pid, one in pages.items():
        for mapping in one.layout.mappings:
            place = _MappedPlace(one, mapping, weights[pid])
            key = mapping.is_shared_memory, mapping.file
            places.setdefault(key, []).append(place)
            mapped += mapping.pages
    wanted = max(min(mapped, 8 * resident // PAGE), mapped // _SPARSE)
    step = max(1, wanted // _READS // _RUN) * _RUN
    found = {False: (0.0, 0.0), True: (0.0, 0.0)}
    for (kind, _), of_file in places.items():
        count = _count_file(of_file, step)
        if count is None:
            return None
        found[kind] = found[kind][0] + count[0], found[kind][1] + count[1]
    parts = (
        distinct / total if total else None
        for distinct, total in (found[False], found[True])
    )
    return FileCount(*parts)


class _MappedPlace(NamedTuple):
    """Where one process, which stands for *weight* of them, maps a file."""

    pages: ProcessPages
    mapping: MappedStretch
    weight: float


def _count_file(
    places: Sequence[_MappedPlace], step: int
) -> tuple[float, float] | None:
    """Return the pages of one file that are mapped: each once, and by every process."""
    # a random start, so that no page is always left out
    first = _random_below(step // _RUN) * _RUN
    seen: dict[int, list[tuple[int, float]]] = {}  # by offset: masks and weights
    for pages, mapping, weight in places:
        start = mapping.offset + (first - mapping.offset) % step
        for at in range(start, mapping.offset + mapping.pages, step):
            left = mapping.offset + mapping.pages - at
            page = mapping.first_page + at - mapping.offset
            mask = pages.mapped(page, min(_RUN, left))
            if mask is None:
                return None
            if mask:
                seen.setdefault(at, []).append((mask, weight))
    total = distinct = 0.0
    for masks in seen.values():
        union = twice = 0
        for mask, weight in masks:
            total += mask.bit_count() * weight
            twice |= union & mask
            union |= mask
        distinct += twice.bit_count()
        distinct += sum((mask & ~twice).bit_count() * weight for mask, weight in masks)
    return distinct, total


def _random_below(limit: int) -> int:
    return int.from_bytes(os.urandom(4), "little") % max(1, limit)


def _spread_order(places: Sequence[_Place], skip: int = 0) -> list[_Place]:
    """Order *places* so that any part from the start on is spread over all of them."""
    length = len(places)
    step = max(1, int(length * _GOLDEN))
    # without a common divisor the steps visit each place once
    while math.gcd(step, length) > 1:
        step += 1
    return [places[(skip + turn * step) % length] for turn in range(length)]
