"""Follow the anonymous memory of forks between two counts; no access to the machine.

The pages of a family are those that one member alone maps (its *private* ones) and
those that several map. A fork shares all of its parent's pages. What a process gets
later is its own, and so is a copy of a shared page: a copy leaves its size as it is,
but takes a page fault. So between counts

    pages of a family = sum of private + shared
    copies = page faults - growth - pages of files mapped meanwhile

Memory that is freed and taken anew faults too. Which part of the faults were copies is
learned from one count to the next; the bounds assume none, and all.

A parent that copies pages and then forks again leaves the old *versions* to its elder
forks. A count cannot see a version that several of them share: at its address, the page
of the parent and the youngest fork is shared too.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from weigh.measure.memory.count import FamilyCount
from weigh.probe.proc import ProcessReading
from weigh.units import MIB, Bytes

_FILES_PER_FAULT = 8  # pages of a file that one fault maps, on average
_MOST_VERSIONS = 32
_HUGE_PAGE = 512  # pages


class Seen(msgspec.Struct, frozen=True, gc=False):
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

    def grown_to(self, now: ProcessReading) -> "Seen":
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


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """Bytes of distinct pages, with bounds."""

    value: Bytes
    low: Bytes
    high: Bytes


class _Member:
    """What is known of one process.

    ``copied`` is what it may have copied since the count, ``above`` how much more than
    assumed, ``grown`` its growth since it forked last, ``passed`` what was its own
    before it forked.
    """

    __slots__ = ("above", "copied", "grown", "passed", "private", "seen")

    def __init__(self, seen: Seen, private: Bytes) -> None:
        self.seen = seen
        self.private = private
        self.copied = self.grown = self.above = self.passed = 0


class _Version:
    """Old pages of a parent, as bytes, which only these forks still hold."""

    __slots__ = ("holders", "size")

    def __init__(self, size: Bytes, holders: set[int]) -> None:
        self.size = size
        self.holders = holders


class _Family:
    """Forks of one another.

    ``shared`` are the bytes that several members map. ``below`` and ``above`` are how
    far the truth may lie from the estimate.
    """

    __slots__ = ("above", "below", "members", "shared", "sure", "versions")

    def __init__(self) -> None:
        self.members: dict[int, _Member] = {}
        self.shared: Bytes = 0
        self.below: Bytes = 0
        self.above: Bytes = 0
        self.sure: Bytes = 0  # private memory before any guess since the count
        self.versions: list[_Version] = []  # included in ``shared``

    def estimate(self) -> Estimate:
        sizes = [member.seen.anonymous for member in self.members.values()]
        most, least = sum(sizes), max(sizes, default=0)
        private = sum(member.private for member in self.members.values())
        value = min(most, max(least, private + self.shared))
        low = max(least, min(value, private + self.shared - self.below))
        above = self.above + sum(
            min(member.above, member.seen.anonymous - member.private)
            for member in self.members.values()
        )
        high = min(most, max(value, private + self.shared + above))
        return Estimate(value, low, high)


class ForkModel:
    """Estimates what forks hold; :meth:`advance` and :meth:`correct` keep it right."""

    def __init__(self, *, huge_copies: bool = False) -> None:
        """Start; with *huge_copies* one fault may copy a huge page."""
        self.copies = 1.0  # the part of the unexplained faults that were copies
        self._huge_copies = huge_copies
        self._families: dict[Hashable, _Family] = {}

    def families(self) -> Mapping[Hashable, Mapping[int, Bytes]]:
        """Return the sizes of the members of all families of several processes."""
        return {
            name: {pid: one.seen.anonymous for pid, one in family.members.items()}
            for name, family in self._families.items()
            if len(family.members) > 1
        }

    def private(self) -> dict[int, Bytes]:
        """Return what each process alone maps, by the estimate."""
        return {
            pid: member.private
            for family in self._families.values()
            for pid, member in family.members.items()
        }

    def advance(self, processes: Sequence[Seen]) -> Estimate:
        """Add one look at all processes; return what they hold together."""
        groups: dict[Hashable, list[Seen]] = {}
        for seen in processes:
            groups.setdefault(seen.family, []).append(seen)
        families = {name: self._families.get(name) or _Family() for name in groups}
        self._families = families
        for name, group in groups.items():
            self._advance(families[name], group)
        return self.estimate()

    def estimate(self) -> Estimate:
        """Return what all families hold together."""
        all_of_them = [family.estimate() for family in self._families.values()]
        return Estimate(
            sum(one.value for one in all_of_them),
            sum(one.low for one in all_of_them),
            sum(one.high for one in all_of_them),
        )

    def correct(self, name: Hashable, counted: FamilyCount) -> None:
        """Replace the guesses about a family by a count made since the last look."""
        family = self._families[name]
        sizes = {pid: one.seen.anonymous for pid, one in family.members.items()}
        most, least = sum(sizes.values()), max(sizes.values())
        lowest, highest = (
            min(most, max(least, round(part * most)))
            for part in (
                counted.least * (1 - counted.slack),
                counted.distinct * (1 + counted.slack),
            )
        )
        # within what the count leaves open, the model knows better
        estimate = family.estimate().value
        union = min(highest, max(lowest, estimate))
        below = union - lowest + round(union * counted.error)
        above = highest - union + round(union * counted.error)
        if abs(union - estimate) <= union * counted.error:
            self._confirm(family, below, above)
            return
        usual = sum(counted.private.values()) / max(1, len(counted.private))
        for pid, one in family.members.items():
            part = counted.private.get(pid, usual)
            one.private = round(part * sizes[pid])
        private = sum(one.private for one in family.members.values())
        sampled = min(counted.distinct * most, max(counted.least * most, union))
        if private and union != round(sampled):  # by as much, the sample was off
            part = max(0.0, 1 + (union - sampled) / private)
            for one in family.members.values():
                one.private = min(one.seen.anonymous, round(one.private * part))
            private = sum(one.private for one in family.members.values())
        self._learn(family, private)
        unseen = sum(_unseen_by_count(family))
        family.shared = max(0, union - private) + unseen
        family.above = above
        family.below = below + unseen
        family.sure = private
        for one in family.members.values():
            one.copied = one.above = 0
            one.grown = min(one.grown, one.private)

    def _confirm(self, family: _Family, below: Bytes, above: Bytes) -> None:
        """Keep the estimate: a count with these errors agrees with it."""
        family.below, family.above = below, above
        private = sum(one.private for one in family.members.values())
        self._learn(family, private)
        family.sure = private
        for one in family.members.values():
            one.copied = one.above = 0

    def _learn(self, family: _Family, private: Bytes) -> None:
        guessed = sum(one.copied for one in family.members.values())
        if guessed > MIB:
            found = (private - family.sure) / guessed
            self.copies = min(1.0, max(0.0, found))

    def _advance(self, family: _Family, group: Sequence[Seen]) -> None:
        if len(group) == 1:
            _settle(family, group[0])
            return
        before = family.members
        present = {seen.pid for seen in group}
        newborn = [seen for seen in group if seen.pid not in before]
        for version in family.versions:  # before its parent leaves, if it does
            version.holders.update(
                seen.pid for seen in newborn if seen.parent in version.holders
            )
        for pid in [pid for pid in before if pid not in present]:
            self._leave(family, pid)
        old_sizes = {pid: one.seen.anonymous for pid, one in before.items()}
        forked = {seen.parent for seen in newborn}
        for seen in group:
            if seen.pid in before:
                self._grow(family, before[seen.pid], seen, forked=seen.pid in forked)
        if not before:
            newborn.sort(key=lambda seen: (seen.parent in present, -seen.anonymous))
        for seen in newborn:
            self._join(family, seen, old_sizes, present)
        most = sum(seen.anonymous - before[seen.pid].private for seen in group)
        family.shared = min(family.shared, most)

    def _leave(self, family: _Family, pid: int) -> None:
        """Remove a member; what it shared stays with the others."""
        gone = family.members.pop(pid)
        family.sure -= gone.private
        for version in family.versions:
            version.holders.discard(pid)
            if not version.holders:
                family.shared = max(0, family.shared - version.size)
        family.versions = [one for one in family.versions if one.holders]
        # it may have been the last with pages that its parent has copied, or never had
        lost = gone.seen.anonymous - gone.private
        parent = family.members.get(gone.seen.parent)
        if parent is not None:
            copied = parent.private - parent.grown + parent.above + family.above
            old = sum(one.size for one in family.versions)
            lost = min(lost, copied + old + gone.passed)
        family.below += lost

    def _grow(
        self, family: _Family, member: _Member, seen: Seen, *, forked: bool
    ) -> None:
        """Add what a member got since the last look."""
        old = member.seen
        growth = seen.anonymous - old.anonymous
        copied = 0
        if growth < 0:
            # what was taken last is often given back first; it may have been shared
            lost = min(member.private, -growth)
            member.private -= lost
            member.copied = min(member.copied, member.private)
            member.grown = max(0, member.grown - lost)
            member.above += lost
            family.sure -= lost
            family.below += -growth - lost
        else:
            member.private += growth
            member.grown += growth
            family.sure += growth
        room = seen.anonymous - member.private
        unexplained = _unexplained(old, seen)
        if unexplained > 0 and room > 0:
            copied = min(room, unexplained)
        at_most = min(room, self._at_most(unexplained))
        if forked:
            # its faults came before the fork, or after
            _share_all(family, member)
            member.above = self._at_most(unexplained)
        else:
            self._copy(family, member, copied, at_most)
        member.seen = seen

    def _join(
        self,
        family: _Family,
        seen: Seen,
        old_sizes: Mapping[int, Bytes],
        present: Iterable[int],
    ) -> None:
        """Add a fork that was born since the last look, or an eldest member."""
        member = family.members[seen.pid] = _Member(seen, 0)
        if len(family.members) == 1:
            member.private = member.grown = seen.anonymous
            family.sure += seen.anonymous
            return
        if seen.parent not in old_sizes:  # which is done for those
            others = [one for pid, one in family.members.items() if pid != seen.pid]
            source = max(others, key=lambda one: one.seen.anonymous)
            _share_all(family, family.members.get(seen.parent, source), seen.pid)
        faulted = max(0, seen.faulted - seen.mapped // _FILES_PER_FAULT)
        growth, sure, most = _own_growth(family, seen, old_sizes, faulted)
        member.private = member.grown = growth
        family.sure += sure
        family.below += growth - sure
        room = seen.anonymous - growth
        member.above = most - growth
        if seen.parent not in present:
            # its parent has ended: what it does not share with others is its own
            member.above += room
            copied = min(room, max(0, faulted - growth))
            self._copy(family, member, copied, 0)
            return
        copied = min(room, max(0, faulted - growth))
        self._copy(
            family, member, copied, min(room, self._at_most(seen.faulted - growth))
        )

    def _copy(
        self, family: _Family, member: _Member, copied: Bytes, at_most: Bytes
    ) -> None:
        """Assume copies of shared pages: a learned part of *copied*."""
        guess = round(copied * self.copies)
        member.private += guess
        member.copied += copied
        family.below += guess
        member.above += max(0, at_most - guess)

    def _at_most(self, unexplained: Bytes) -> Bytes:
        """Return the bytes that some faults may have brought."""
        if unexplained <= 0:
            return 0
        return unexplained * _HUGE_PAGE if self._huge_copies else unexplained


def _own_growth(
    family: _Family, seen: Seen, old_sizes: Mapping[int, Bytes], faulted: Bytes
) -> tuple[Bytes, Bytes, Bytes]:
    """Return what a fork has beyond its parent's: probably, surely, and at most.

    The parent may have grown since the last look too, before or after the fork.
    """
    before = old_sizes.get(seen.parent)
    if before is None:
        return 0, 0, 0
    parent = family.members.get(seen.parent)
    now = before if parent is None else parent.seen.anonymous
    most = max(0, seen.anonymous - before)
    sure = max(0, seen.anonymous - max(before, now))
    return min(most, max(sure, faulted)), sure, most


def _settle(family: _Family, seen: Seen) -> None:
    """Note that one member is left: all it holds is its own."""
    family.members = {seen.pid: _Member(seen, seen.anonymous)}
    family.shared = family.below = family.above = 0
    family.sure = seen.anonymous
    family.versions = []


def _share_all(family: _Family, parent: _Member, newborn: int = 0) -> None:
    """Note that a member has forked: its own pages are the new fork's too.

    The elder forks keep the old versions of those that it had copied.
    """
    elders = set(family.members) - {parent.seen.pid, newborn}
    version = max(0, parent.private - parent.grown)
    if version and elders:
        family.versions.append(_Version(version, elders))
        del family.versions[:-_MOST_VERSIONS]
    family.shared += parent.private
    family.sure -= parent.private
    parent.passed += parent.private
    family.above += parent.above
    parent.private = parent.copied = parent.grown = parent.above = 0


def _unseen_by_count(family: _Family) -> Iterable[Bytes]:
    """Reduce the versions to those that a count cannot see; yield their sizes.

    No more than the second largest holder shares can be shared by two of them.
    """
    kept = []
    for version in family.versions:
        held = sorted(
            family.members[pid].seen.anonymous - family.members[pid].private
            for pid in version.holders
        )
        if len(held) > 1 and held[-2] > 0:
            version.size = min(version.size, held[-2])
            kept.append(version)
            yield version.size
    family.versions = kept


def _unexplained(old: Seen, seen: Seen) -> Bytes:
    """Return the bytes of faults that neither growth nor files explain."""
    growth = max(0, seen.anonymous - old.anonymous)
    files = max(0, seen.mapped - old.mapped) // _FILES_PER_FAULT
    return max(0, seen.faulted - old.faulted - growth - files)
