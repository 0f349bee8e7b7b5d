"""Follow who holds the anonymous pages of forks; no access to the machine.

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

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from weigh.measure.memory.count import FamilyCount
from weigh.measure.memory.holding import PageEstimate, nearest_within
from weigh.probe.proc import ProcessReading
from weigh.units import MIB, Bytes

_FILES_PER_FAULT = 8  # pages of a file that one fault maps, on average
_CONFIRMED = 0.015  # a count that differs by less teaches nothing


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
            # one process alone shares nothing
            self._members = {group[0].pid: _ForkMember(group[0], group[0].anonymous)}
            self._begin_anew()
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
        for seen in group:
            if seen.pid in before:
                self._grow(self._members[seen.pid], seen)
        # of those that are met together, the eldest is the one without a parent here
        born.sort(key=lambda seen: (seen.parent in present, -seen.anonymous))
        for seen in born:
            self._join(seen, before, gone.get(seen.parent))

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
        if abs(union - estimate) <= _CONFIRMED * union:
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
