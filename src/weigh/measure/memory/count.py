"""Count the pages that several processes hold together, from samples of pagemap.

Forks keep the addresses of what they share, so the same points are read in all of them
right after each other: at each point, the pages that only one process maps count each,
and the shared ones once. Of many processes only some are read; an exclusive page of
those stands for some in the others, a shared one does not.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from weigh.probe.pages import ALONE, PAGE, SHARED, ProcessPages, merged, spread
from weigh.probe.pages import Mapping as FileMapping
from weigh.units import Bytes

_RUN = 4  # pages per read
_READS = 1200  # per count, over all its processes
_LEAST_READS, _MOST_READS = 60, 500  # per process
_MOST_PROCESSES = 17
_SPARSE = 4  # reads for each point that is expected to hold a page
_ENOUGH = 0.6  # of the points, if a process ends during the count
_ERROR = 0.015
_GOLDEN = (math.sqrt(5) - 1) / 2
_ONES = int.from_bytes(bytes([SHARED]) * _RUN, "little")
_TENS = int.from_bytes(bytes([ALONE]) * _RUN, "little")


class FamilyCount(msgspec.Struct, frozen=True):
    """The anonymous memory of some forks.

    ``distinct`` is the part of the sum of their sizes that remains if each page counts
    once, ``private`` the part of each one's size that nobody else maps, and ``error``
    the relative error of the first. The truth may be as little as ``least`` where some
    have moved shared pages to other addresses: a count does not show which those are.
    ``slack`` is how far the sample of private pages may be off, relative to the first.
    """

    distinct: float
    private: Mapping[int, float]
    error: float
    least: float
    slack: float = 0.0


class FileCount(msgspec.Struct, frozen=True):
    """What remains of the sum of all processes' sizes if each page counts once.

    None for a kind of which no page was found.
    """

    file: float | None
    shared: float | None


def chosen(sizes: Mapping[int, Bytes]) -> list[int]:
    """Return the processes to read: the largest and a random part of the others."""
    pids = sorted(sizes, key=lambda pid: -sizes[pid])
    if len(pids) <= _MOST_PROCESSES:
        return pids
    others = pids[1:]
    step = _golden_step(len(others))
    at = _below(len(others))
    taken = [
        others[(at + turn * step) % len(others)] for turn in range(_MOST_PROCESSES)
    ]
    return [pids[0], *taken[1:]]


def count_family(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> FamilyCount | None:
    """Count the anonymous memory of forks of *sizes*, some of which are in *pages*.

    None if too much of it was not read, because one of them ended.
    """
    points = _points(pages, sizes)
    weights = _weights(pages, len(sizes))
    shared_pages = moved_pages = points_alone = 0
    moved = dict.fromkeys(pages, 0)
    alone = dict.fromkeys(pages, 0)
    present = dict.fromkeys(pages, 0)
    done = 0
    for at, length in points:
        masks = [one.anonymous(at, length) for one in pages.values()]
        if None in masks:
            break
        done += 1
        union = several = 0
        points_alone += any(mask and mask & _TENS for mask in masks)
        for pid, mask in zip(pages, masks, strict=True):
            if mask:
                own = (mask & _TENS).bit_count()
                alone[pid] += own
                present[pid] += own + (mask & _ONES).bit_count()
                several |= union & mask
                union |= mask
        shared_pages += (several & _ONES).bit_count()
        once = union & ~several & _ONES
        moved_pages += once.bit_count()
        if once:
            for pid, mask in zip(pages, masks, strict=True):
                moved[pid] += ((mask or 0) & once).bit_count()
    total = sum(present.values())
    if not total or done < _ENOUGH * len(points):
        return None
    error = _ERROR if done == len(points) else _ERROR + 3 / done
    if len(pages) < len(sizes):
        error += 0.5 * _ERROR
    exclusive = sum(alone[pid] * weights[pid] for pid in pages)
    weighted = sum(present[pid] * weights[pid] for pid in pages)
    if len(pages) == len(sizes):
        # who else maps these pages has moved them: at least two addresses for each
        least = exclusive + max(shared_pages, *moved.values())
        most = max(least, exclusive + shared_pages + moved_pages / 2)
    else:
        least = most = exclusive + shared_pages + moved_pages
    # Forks grow at the same addresses: a point finds the private pages of all or none,
    # and the number of such points varies as that of any sample
    varies = 2 * exclusive / math.sqrt(max(1, points_alone)) / most
    return FamilyCount(
        most / weighted,
        {pid: alone[pid] / present[pid] if present[pid] else 1.0 for pid in pages},
        _ERROR,
        least / weighted,
        max(error, varies, 1 / math.sqrt(total)) - _ERROR,
    )


def _weights(pages: Mapping[int, ProcessPages], processes: int) -> dict[int, float]:
    """Return how many processes each of *pages* stands for; the largest is first."""
    others = (processes - 1) / (len(pages) - 1) if len(pages) > 1 else 1.0
    return {pid: others if number else 1.0 for number, pid in enumerate(pages)}


def _points(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> list[tuple[int, int]]:
    """Spread points over all private memory, in an order of which any part is fair.

    Steps of a golden section fill a stretch evenly from the first on.
    """
    stretches = merged(s for one in pages.values() for s in one.layout.private)
    span = sum(end - start for start, end in stretches)
    resident = max((sizes[pid] for pid in pages), default=0) // PAGE
    reads = min(_MOST_READS, max(_LEAST_READS, _READS // max(1, len(pages))))
    step = max(_RUN, resident // reads, span // (_SPARSE * reads))
    at_all = list(spread(stretches, step, _below(step), _RUN))
    golden = _golden_step(len(at_all))
    return [at_all[turn * golden % len(at_all)] for turn in range(len(at_all))]


def count_files(
    pages: Mapping[int, ProcessPages], processes: int, resident: Bytes
) -> FileCount | None:
    """Count files and shared memory of *processes*, some of which are in *pages*.

    *resident* is the sum of what they all map. None if one of them ended.
    """
    weights = _weights(pages, processes)
    by_file: dict[tuple[bool, bytes], list[_Place]] = {}
    mapped = 0
    for pid, one in pages.items():
        for mapping in one.layout.mappings:
            key = (mapping.is_shared_memory, mapping.file)
            place = _Place(one, mapping, weights[pid])
            by_file.setdefault(key, []).append(place)
            mapped += mapping.pages
    wanted = min(mapped, 8 * resident // PAGE)
    step = max(1, wanted // _READS // _RUN, mapped // _SPARSE // _READS // _RUN) * _RUN
    distinct = {False: 0.0, True: 0.0}
    total = {False: 0.0, True: 0.0}
    for (is_shared_memory, _), places in by_file.items():
        found = _count_file(places, step)
        if found is None:
            return None
        distinct[is_shared_memory] += found[0]
        total[is_shared_memory] += found[1]
    file, shared = (
        distinct[kind] / total[kind] if total[kind] else None for kind in (False, True)
    )
    return FileCount(file, shared)


class _Place(NamedTuple):
    """Where one process, which stands for *weight* of them, maps a file."""

    pages: ProcessPages
    mapping: FileMapping
    weight: float


def _count_file(places: Sequence[_Place], step: int) -> tuple[float, float] | None:
    """Return the pages of one file that are mapped: each once, and by every process.

    They are read where the offset in the file is one of the same points for all. None
    if a process ended.
    """
    first = _below(step // _RUN) * _RUN
    seen: dict[int, int] = {}  # by offset in the file: pages mapped, by anyone
    several: dict[int, int] = {}
    total = distinct = 0.0
    owned: list[tuple[int, int, float]] = []
    for place in places:
        mapping = place.mapping
        end = mapping.offset + mapping.pages
        at = mapping.offset + (first - mapping.offset) % step
        while at < end:
            page = mapping.first_page + at - mapping.offset
            mask = place.pages.mapped(page, min(_RUN, end - at))
            if mask is None:
                return None
            if mask:
                total += mask.bit_count() * place.weight
                before = seen.get(at, 0)
                several[at] = several.get(at, 0) | (before & mask)
                seen[at] = before | mask
                owned.append((at, mask, place.weight))
            at += step
    for at, mask, weight in owned:
        distinct += (mask & ~several[at]).bit_count() * weight
    return distinct + sum(mask.bit_count() for mask in several.values()), total


def _below(limit: int) -> int:
    return int.from_bytes(os.urandom(4), "little") % max(1, limit)


def _golden_step(length: int) -> int:
    """Return a step near the golden section that visits all of *length* places."""
    step = max(1, int(length * _GOLDEN))
    while math.gcd(step, length) > 1:
        step += 1
    return step
