"""Count the pages that several processes hold together, and follow them in between.

Forks keep the addresses of what they share, so the same points are read in all of them
right after each other: at each point, the pages that only one process maps count each,
and the shared ones once. Of many processes only some are read; an exclusive page of
those stands for some in the others, a shared one does not.

Between two counts a model follows who holds the anonymous pages of forks.
The pages of a family are those that one member alone maps (its *own*) and those that
several map:

    pages of a family = sum of own + shared

A parent that copies pages and then forks again leaves the old ones to its elder forks.
A count cannot see those of them that several share: at their addresses, the pages of
the parent and the youngest fork are shared too.

A fork shares all of its parent's pages. What a process gets later is its own. A copy of
a shared page leaves the size as it is, but takes a page fault; so does memory that is
freed and taken anew. Which part of such faults were copies, each count teaches; until
the next one the bounds assume none, and all.
"""

import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from weigh.measure.memory.holding import COUNT_ERROR, PageEstimate, nearest_within
from weigh.probe.pages import (
    ALONE,
    PAGE,
    SHARED,
    MappedStretch,
    ProcessPages,
    merged_stretches,
    spread,
)
from weigh.probe.proc import ProcessReading
from weigh.units import MIB, Bytes

_RUN = 4  # pages per read
_READS = 1200  # per count, over all its processes
_LEAST_READS, _MOST_READS = 60, 500  # per process
_MOST_PROCESSES = 17
_SPARSE = 4  # reads for each point that is expected to hold a page
_ENOUGH = 0.6  # of the points, if a process ends during the count
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
    pages: Mapping[int, ProcessPages],
    sizes: Mapping[int, Bytes],
    size_now: Callable[[int], Bytes],
) -> FamilyCount | None:
    """Count the anonymous memory of forks of *sizes*, some of which are in *pages*.

    *size_now* returns the size of one now: what it has taken or freed since *sizes* is
    its own, and is left out. None if too much was not read, because one of them ended.
    """
    points, step = _points(pages, sizes)
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
    _leave_changes_out(own, present, _RUN / step, sizes, size_now)
    # too little was read for a figure
    if done < _ENOUGH * len(points) or not any(present.values()):
        return None
    exclusive = sum(own[pid] * weights[pid] for pid in pages)
    weighted = sum(present[pid] * weights[pid] for pid in pages)
    # A shared page that one process maps there: one that is not read maps it too; or
    # another has moved it, and then there are at least two addresses for each
    single, error = sum(moved.values()), 1.5 * COUNT_ERROR
    least = most = exclusive + several + single
    if len(pages) == len(sizes):
        least = exclusive + max(several, *moved.values())
        most, error = max(least, most - single / 2), COUNT_ERROR
    # the points not read add to the error
    if done < len(points):
        error += 3 / done
    # forks grow at the same addresses: a point finds the own pages of all, or of none
    varies = 2 * exclusive / math.sqrt(max(1, at_points)) / most
    error = max(error, varies, 1 / math.sqrt(sum(present.values())))
    shares = {pid: own[pid] / present[pid] if present[pid] else 1.0 for pid in pages}
    return FamilyCount(most / weighted, shares, error, least / weighted)


def _leave_changes_out(
    own: dict[int, int],
    present: dict[int, int],
    part: float,
    sizes: Mapping[int, Bytes],
    size_now: Callable[[int], Bytes],
) -> None:
    """Leave out what processes took since they were of *sizes*; add what they freed.

    *part* of their pages was looked at. A count takes 10 ms, on a busy machine 100, in
    which a fork may grow tenfold: what it shares is no such part of its size before.
    """
    for pid, found in present.items():
        # it may have changed before its points were read, or after
        seen = found - part * sizes[pid] / PAGE
        changed = part * (size_now(pid) - sizes[pid]) / PAGE
        late = round(min(seen, changed) if changed > 0 else max(seen, changed))
        if late * changed > 0:
            late = min(own[pid], late)
            own[pid] -= late
            present[pid] -= late


def _weights(pages: Mapping[int, ProcessPages], processes: int) -> dict[int, float]:
    """Return how many processes each of *pages* stands for; the largest is first."""
    others = (processes - 1) / max(1, len(pages) - 1)
    return {pid: others if number else 1.0 for number, pid in enumerate(pages)}


def _points(
    pages: Mapping[int, ProcessPages], sizes: Mapping[int, Bytes]
) -> tuple[list[tuple[int, int]], int]:
    """Spread points over all private memory, in an order of which any part is fair.

    Returns:
        The points, and the pages from one to the next.
    """
    stretches = merged_stretches(
        s for one in pages.values() for s in one.layout.private
    )
    span = sum(end - start for start, end in stretches)
    # points as dense as resident memory needs, but not so many that most are empty
    resident = max((sizes[pid] for pid in pages), default=0) // PAGE
    reads = min(_MOST_READS, max(_LEAST_READS, _READS // max(1, len(pages))))
    step = max(_RUN, resident // reads, span // (_SPARSE * reads))
    points = list(spread(stretches, step, _random_below(step), _RUN))
    return _spread_order(points), step


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


_FILES_PER_FAULT = 8  # pages of a file that one fault maps, on average


class MemberReading(msgspec.Struct, frozen=True, gc=False):
    """One process at a look.

    ``anonymous`` and ``mapped`` (files and shared memory) are its resident bytes,
    ``faulted`` the bytes of all its page faults.
    """

    pid: int
    parent: int
    family: Hashable
    anonymous: Bytes
    mapped: Bytes
    faulted: Bytes

    def grown_to(self, now: ProcessReading) -> "MemberReading":
        """Return the process as it is in a reading: it has faulted as it grew."""
        mapped = now.file + now.shared
        growth = max(0, now.anonymous - self.anonymous)
        files = max(0, mapped - self.mapped) // _FILES_PER_FAULT
        return msgspec.structs.replace(
            self,
            anonymous=now.anonymous,
            mapped=mapped,
            faulted=self.faulted + growth + files,
        )

    def faults_since(self, old: "MemberReading") -> Bytes:
        """Return the bytes of faults that neither growth nor files explain."""
        growth = max(0, self.anonymous - old.anonymous)
        files = max(0, self.mapped - old.mapped) // _FILES_PER_FAULT
        return max(0, self.faulted - old.faulted - growth - files)


class _ForkMember:
    """One process: ``copied`` is the part of its ``own`` pages that are copies.

    ``born`` is how many copies its family had passed on to forks by its birth.
    """

    __slots__ = ("born", "copied", "own", "seen")

    def __init__(
        self, seen: MemberReading, own: Bytes, born: Bytes | None = None
    ) -> None:
        self.seen = seen
        self.own = own
        self.born = born
        self.copied = 0


class ForkFamily:
    """Forks of one another; ``copies`` is the part of unexplained faults that copied.

    ``guess`` is what the members are assumed to have copied since the last count.
    """

    def __init__(self) -> None:
        self.copies = 1.0
        self._off = 0.0  # at the last counts, relative to the sample
        self._members: dict[int, _ForkMember] = {}
        self._passed: Bytes = 0  # of copies, from parents to their forks
        self._begin_anew()

    def _begin_anew(self, shared: Bytes = 0, error: Bytes = 0) -> None:
        self._shared = shared
        self._below = self._above = error
        self._faults = self.guess = 0

    def sizes(self) -> dict[int, Bytes]:
        """Return the anonymous memory of each member."""
        return {pid: one.seen.anonymous for pid, one in self._members.items()}

    def own_of(self, pid: int) -> Bytes:
        """Return what a member alone holds, as far as it is known."""
        return self._members[pid].own

    def estimate(self) -> PageEstimate:
        """Return what they hold together."""
        sizes = self.sizes().values()
        most, least = sum(sizes), max(sizes, default=0)
        own = sum(one.own for one in self._members.values())
        # what is shared cannot be more than the members hold in all
        union = own + min(self._shared, most - own)
        value = nearest_within(union, least, most)
        return PageEstimate(
            value,
            nearest_within(union - self._below, least, value),
            nearest_within(union + self._above, value, most),
        )

    def _old_versions(self) -> Bytes:
        """Return what was copied and passed on since the eldest fork was born."""
        born = [one.born for one in self._members.values() if one.born is not None]
        return self._passed - min(born, default=self._passed)

    def advance(self, group: Sequence[MemberReading]) -> None:
        """Add one look at all members."""
        if len(group) == 1:
            self._go_on_alone(group[0])
            return
        present = {seen.pid for seen in group}
        before = self.sizes()
        old = self._old_versions()
        gone = {pid: self._members.pop(pid) for pid in before.keys() - present}
        # of what an ended member shared, it is unknown who still holds it
        self._below += sum(one.seen.anonymous - one.own for one in gone.values())
        born = [seen for seen in group if seen.pid not in before]
        if not any(seen.parent in gone for seen in born):
            self._shared = max(0, self._shared - old + self._old_versions())
        stayed = [seen for seen in group if seen.pid in before]
        # All with whom it shared pages have ended, and left none to a fork of theirs:
        # the old versions of what it copied have gone with them
        if len(stayed) == 1 and all(seen.parent in present for seen in born):
            self._go_on_alone(stayed[0])
        for seen in stayed:
            self._grow(self._members[seen.pid], seen)
        # of those that are met together, the eldest is the one without a parent here
        born.sort(key=lambda seen: (seen.parent in present, -seen.anonymous))
        for seen in born:
            self._join(seen, before, gone.get(seen.parent))

    def _go_on_alone(self, seen: MemberReading) -> None:
        """Begin anew with one process: alone, it shares nothing."""
        self._members = {seen.pid: _ForkMember(seen, seen.anonymous)}
        self._begin_anew()

    def _grow(self, member: _ForkMember, seen: MemberReading) -> None:
        old, member.seen = member.seen, seen
        growth = seen.anonymous - old.anonymous
        lost = min(member.own, max(0, -growth))  # what was taken last goes first
        member.own += growth if growth > 0 else -lost
        self._above += lost
        self._below += max(0, -growth - lost)
        self._copy(member, seen.faults_since(old))

    def _join(
        self,
        seen: MemberReading,
        before: Mapping[int, Bytes],
        ended_parent: _ForkMember | None,
    ) -> None:
        """Add a fork that was born since the last look, or the eldest member."""
        if not self._members:
            self._members[seen.pid] = _ForkMember(seen, seen.anonymous)
            return
        eldest = max(self._members.values(), key=lambda one: one.seen.anonymous)
        parent = ended_parent or self._members.get(seen.parent, eldest)
        # what was the parent's alone is shared from the fork on
        self._shared += parent.own
        self._passed += min(parent.own, parent.copied)
        parent.own = parent.copied = 0
        # a fork starts without page faults: all of them are its own
        faults = max(0, seen.faulted - seen.mapped // _FILES_PER_FAULT)
        size = before.get(seen.parent, parent.seen.anonymous)
        grown = min(max(0, seen.anonymous - size), faults)
        member = self._members[seen.pid] = _ForkMember(
            seen, grown, self._passed if parent.born is None else parent.born
        )
        self._below += grown
        self._copy(member, faults - grown)

    def _copy(self, member: _ForkMember, faults: Bytes) -> None:
        """Assume that a learned part of *faults* copied shared pages."""
        room = member.seen.anonymous - member.own
        most = min(room, faults)
        guess = round(most * self.copies)
        member.own += guess
        member.copied += guess
        self._faults += most
        self.guess += guess
        self._below += guess
        self._above += most - guess

    def correct(self, count: FamilyCount) -> None:
        """Replace the guesses by a count made since the last look."""
        sizes = self.sizes()
        most, least = sum(sizes.values()), max(sizes.values())
        estimate = self.estimate().value
        error = round(count.distinct * most * count.error)
        # within what the count leaves open, the model knows better, as far as it did
        nearest = min(count.distinct * most, max(count.least * most, estimate))
        off = abs(nearest - estimate) / max(1.0, nearest)
        self._off = max(off, self._off / 2)
        # the more often the model was off, the more the count decides
        part = self._off**2 / max(1e-9, self._off**2 + count.error**2)
        union = estimate + part * (nearest - estimate)
        union = nearest_within(
            min(nearest + error, max(nearest - error, union)), least, most
        )
        # the count agrees: keep what is known of each member
        if abs(union - estimate) <= COUNT_ERROR * union:
            self._begin_anew(self._shared, error)
            return
        sampled = min(count.distinct * most, max(count.least * most, union))
        usual = sum(count.own.values()) / max(1, len(count.own))
        # members that were not read are like the others on average
        own = {pid: count.own.get(pid, usual) * size for pid, size in sizes.items()}
        # by as much, the sample was off
        part = max(0.0, 1 + (union - sampled) / max(1.0, sum(own.values())))
        rounded = {pid: min(sizes[pid], round(one * part)) for pid, one in own.items()}
        # few faults since the last count show nothing about the part that copied
        if self._faults > MIB:
            before = sum(one.own for one in self._members.values())
            sure = max(0, before - self.guess)  # some of it was given back
            found = (sum(rounded.values()) - sure) / self._faults
            self.copies = min(1.0, max(0.0, found))
        for pid, one in self._members.items():
            one.own = rounded[pid]
        own_of_all = sum(rounded.values())
        shared = union - own_of_all + self._old_versions()
        # at least two members hold each shared page
        self._begin_anew(min(max(0, shared), (most - own_of_all) // 2), error)
