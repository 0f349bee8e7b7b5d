"""Follow who holds the pages of several processes between counts; pure.

The anonymous pages of a family of forks are those that one member alone maps (its
*own*) and those that several map:

    pages of a family = sum of own + shared

A fork shares all of its parent's pages. What a process gets later is its own. A copy of
a shared page leaves the size as it is, but takes a page fault; so does memory that is
freed and taken anew. Which part of such faults were copies, each count teaches; until
the first one the bounds assume none, and all.

There is one account: a count corrects it by how sure the two are, and a look without a
count reads the same account, with wider bounds.
"""

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from weigh.measure.memory.counts import COUNT_ERROR, PageCount
from weigh.measure.memory.holding import PageEstimate, nearest_within
from weigh.units import MIB, Bytes

# pages of a file that one fault maps: at most 16 (fault_around_bytes), on average
FILES_PER_FAULT = 8


class MemberReading(msgspec.Struct, frozen=True, gc=False):
    """One process at a look.

    ``anonymous`` are its resident bytes, ``mapped`` those of the faults that it took to
    map its files and shared memory. ``faulted`` and ``faulted_by_reaped`` are the bytes
    of its page faults and those of children that it waited for, ``room`` is by how much
    it was larger once, and
    ``image`` is as in its reading.
    """

    pid: int
    parent: int
    family: Hashable
    anonymous: Bytes
    mapped: Bytes
    faulted: Bytes
    faulted_by_reaped: Bytes = 0
    room: Bytes = MIB
    image: bytes = b""

    def faults_since(self, old: "MemberReading") -> Bytes:
        """Return the bytes of faults that neither growth nor files explain."""
        growth = max(0, self.anonymous - old.anonymous)
        files = max(0, self.mapped - old.mapped)
        return max(0, self.faulted - old.faulted - growth - files)


def corrected_estimate(
    estimate: PageEstimate, counted: float, error: float
) -> PageEstimate:
    """Return what an *estimate* and a count with an *error* show together.

    Both bounds hold. Of an estimate that the count contradicts, those of the count do.
    The value is the surer the closer it is to what was counted.
    """
    spread = (estimate.high - estimate.low) / 2
    low, high = max(estimate.low, counted - error), min(estimate.high, counted + error)
    if low > high:
        low, high, spread = counted - error, counted + error, abs(counted)
    # bounds allow for what a count may just have ruled out
    found = min(spread, abs(counted - estimate.value))
    part = found**2 / max(1.0, found**2 + error**2)
    value = estimate.value + part * (counted - estimate.value)
    value = min(high, max(low, value))
    # where the two hardly meet, neither is as sure as it seems
    unsure = min(spread, error) / 2
    low, high = min(low, value - unsure), max(high, value + unsure)
    return PageEstimate(round(value), round(low), round(high))


class GuessDoubt:
    """By which ``part`` of what they might be off, guesses were off at the last counts.

    Before any, they may be off by all of it.
    """

    def __init__(self) -> None:
        self.part = 1.0
        self._off = 0.0

    def learn(self, estimate: PageEstimate, counted: float) -> None:
        """Note a count of what had an *estimate*; what earlier ones show fades."""
        spread = max(MIB, (estimate.high - estimate.low) / 2)
        off = abs(counted - estimate.value) / spread
        self._off = self.part = min(1.0, max(off, self._off / 2))


class ForkMember:
    """One process of a family, and which of its bytes nobody else maps.

    Of ``own``, ``grown`` is by how much it has grown: the others are copies. Of its
    unexplained faults since the last count, ``faults``, so many as are ``trusted``,
    for counts have shown what they were before, are taken to be like those.

    ``passed`` is what its forks have of its own pages. A later fork has those of each
    earlier one too: ``inherited`` is what its *parent* had passed on with this one.
    """

    __slots__ = (
        "faults",
        "grown",
        "inherited",
        "own",
        "parent",
        "passed",
        "room",
        "seen",
        "trusted",
    )

    def __init__(
        self, seen: MemberReading, own: Bytes, parent: "ForkMember | None" = None
    ) -> None:
        self.seen = seen
        self.parent = parent
        self.inherited = 0 if parent is None else parent.passed
        self.passed: Bytes = 0
        self.own = own
        self.grown = own
        self.room = seen.room
        self.faults: Bytes = 0
        self.trusted: Bytes = 0


class ForkFamily:
    """Forks of one another.

    ``copies`` is the part of unexplained faults that copied; ``guess`` is what the
    members are assumed to have copied since the last count.
    """

    def __init__(self) -> None:
        self.copies = 1.0
        self.members: dict[int, ForkMember] = {}
        self._doubt = GuessDoubt()
        self._copied: Bytes = 0  # at most, by all members that there were
        self.passed: Bytes = 0  # at most, that ended members copied since the last look
        self._versions: Bytes = 0  # of copies that forks have shared since
        self._begin_anew()

    def _begin_anew(
        self, shared: Bytes = 0, below: Bytes = 0, above: Bytes = 0
    ) -> None:
        self._shared = shared
        self._below, self._above = float(below), float(above)
        self._faults = self.guess = 0

    def sizes(self) -> dict[int, Bytes]:
        """Return the anonymous memory of each member."""
        return {pid: member.seen.anonymous for pid, member in self.members.items()}

    def estimate(self) -> PageEstimate:
        """Return what they hold together."""
        sizes = self.sizes().values()
        most, least = sum(sizes), max(sizes, default=0)
        own = self._own_of_all()
        # what is shared cannot be more than the members hold in all
        union = own + min(self._shared, most - own)
        value = nearest_within(union, least, most)
        return PageEstimate(
            value,
            nearest_within(union - self._below, least, value),
            nearest_within(union + self._above, value, most),
        )

    def advance(self, group: Sequence[MemberReading]) -> None:
        """Add one look at all members."""
        present = {seen.pid for seen in group}
        before = self.sizes()
        # What an ended member shared, another one still holds: but for the old versions
        # of what others copied, which it may have been the last to hold
        self.passed = self._copied_at_the_end(group)
        stayed = [seen for seen in group if seen.pid in before]
        born = [seen for seen in group if seen.pid not in before]
        # an orphan may be a fork of a member that has ended, and has its pages
        has_orphan = any(seen.parent not in present for seen in born)
        gone = [self.members.pop(pid) for pid in before if pid not in present]
        for ended in gone:
            shared = ended.seen.anonymous - ended.own
            self._below += self._doubt.part * min(shared, self._copied)
            self._shared += ended.own if has_orphan else 0
        # All with whom it shared pages have ended, and left none to a fork of theirs:
        # alone it shares nothing, also not the old versions of what it copied
        if len(group) == 1 or (
            len(stayed) == 1 and all(seen.parent in present for seen in born)
        ):
            alone = (stayed or group)[0]
            self.members = {alone.pid: ForkMember(alone, alone.anonymous)}
            self._copied = self._versions = 0
            self._begin_anew()
            gone = []
        for seen in stayed:
            self._grow(self.members[seen.pid], seen)
        # what all have copied is shared no more, whatever is forked from now on
        if all(seen.parent in self.members for seen in born):
            rest = sum(self.sizes().values()) - self._own_of_all()
            self._shared = min(self._shared, rest)
        # of those that are met together, the eldest is the one without a parent here
        born.sort(key=lambda seen: (seen.parent in present, -seen.anonymous))
        for seen in born:
            if seen.pid not in self.members:
                self._join(seen, before)
        # after the forks of this look, which have all that their parents passed on
        if gone:
            self._give_back(gone, has_orphan=has_orphan)

    def _give_back(self, gone: Sequence[ForkMember], *, has_orphan: bool) -> None:
        """Let pages be a member's own that only those *gone* have shared with it.

        The last fork of one that has ended takes its place. An orphan may have those
        pages as well.
        """
        parents = {fork.parent for fork in self.members.values()}
        for ended in reversed(gone):
            if ended not in parents:
                continue
            forks = [one for one in self.members.values() if one.parent is ended]
            keeper = max(forks, key=lambda one: one.inherited)
            for fork in self.members.values():
                if fork.parent is keeper:
                    fork.inherited += keeper.inherited
                elif fork.parent is ended:
                    fork.parent = keeper
            keeper.passed += keeper.inherited
            keeper.parent, keeper.inherited = ended.parent, ended.inherited
            parents.add(ended.parent)
        passed: dict[ForkMember | None, Bytes] = {}
        for fork in self.members.values():
            passed[fork.parent] = max(passed.get(fork.parent, 0), fork.inherited)
        for member in self.members.values():
            again = member.passed - passed.get(member, 0)
            member.passed -= again
            again = min(again, member.seen.anonymous - member.own, self._shared)
            if not has_orphan:
                member.own += again
                member.grown += again
                self._shared -= again

    def _copied_at_the_end(self, group: Sequence[MemberReading]) -> Bytes:
        """Return what ended members may have copied after the last look at them.

        The faults of a child are added to its parent's when that has waited for it.
        """
        present = {seen.pid for seen in group}
        ended = [one for pid, one in self.members.items() if pid not in present]
        passed = 0
        for seen in group:
            children = [one for one in ended if one.seen.parent == seen.pid]
            if seen.pid not in self.members or not children:
                continue
            faults = seen.faulted_by_reaped
            faults -= self.members[seen.pid].seen.faulted_by_reaped
            faults -= sum(child.seen.faulted for child in children)
            shared = sum(child.seen.anonymous - child.own for child in children)
            doubt = max(self._doubt_of(child, faults) for child in children)
            passed += round(doubt * max(0, min(shared, faults)))
        return passed

    def _grow(self, member: ForkMember, seen: MemberReading) -> None:
        old, member.seen = member.seen, seen
        growth = seen.anonymous - old.anonymous
        lost = min(member.own, max(0, -growth))  # what was taken last goes first
        member.own += growth if growth > 0 else -lost
        member.grown = min(member.own, max(0, member.grown + growth))
        self._below += max(0, -growth - lost)
        self._may_exceed(member, lost, lost)
        self._copy(member, seen.faults_since(old))

    def _join(self, seen: MemberReading, before: Mapping[int, Bytes]) -> None:
        """Add a fork that was born since the last look, or the eldest member."""
        if not self.members:
            self.members[seen.pid] = ForkMember(seen, seen.anonymous)
            return
        eldest = max(self.members.values(), key=lambda one: one.seen.anonymous)
        parent = self.members.get(seen.parent, eldest)
        # what was the parent's alone is shared from the fork on
        self._shared += parent.own
        self._versions += parent.own - parent.grown
        parent.passed += parent.own
        parent.own = parent.grown = 0
        # a fork starts without page faults: all of them are its own
        faults = max(0, seen.faulted - seen.mapped)
        size = before.get(seen.parent, parent.seen.anonymous)
        grown = min(max(0, seen.anonymous - size), faults)
        member = self.members[seen.pid] = ForkMember(seen, grown, parent)
        self._below += grown
        self._copy(member, faults - grown)

    def _copy(self, member: ForkMember, faults: Bytes) -> None:
        """Assume that a learned part of *faults* copied shared pages."""
        most = min(member.seen.anonymous - member.own, faults)
        # one that was never larger has freed little that it could take anew; but little
        # blocks, again and again, are many faults: a count has shown what those were
        member.room = max(member.room, member.seen.room)
        is_known = member.room >= MIB or member.trusted >= MIB
        copies = self.copies if is_known else 1.0
        guess = round(most * copies)
        member.own += guess
        self._faults += most
        self._copied += most
        self.guess += guess
        self._below += guess
        self._may_exceed(member, most - guess, faults)

    def _may_exceed(self, member: ForkMember, above: Bytes, change: Bytes) -> None:
        """Widen the upper bound after a *change* of a member.

        What counts have shown of all changes so far holds for as many that come after:
        of those, by as much as guesses were off before.
        """
        self._above += above * self._doubt_of(member, change)
        member.faults += change

    def _doubt_of(self, member: ForkMember, change: Bytes) -> float:
        trusted = min(1.0, max(0, member.trusted - member.faults) / max(1, change))
        return 1 - trusted * (1 - self._doubt.part)

    def _own_of_all(self) -> Bytes:
        return sum(member.own for member in self.members.values())

    def correct(
        self,
        count: PageCount,
        grown: Mapping[int, Bytes],
        faults: Mapping[int, Bytes] = {},
    ) -> None:
        """Correct the guesses by a count made since the last look.

        *grown* is by how much members have grown in between, or shrunk: by what is
        their own. Their *faults* beyond that may have been copies before the count.
        """
        sizes = self.sizes()
        most, least = sum(sizes.values()), max(sizes.values())
        # shares have each size of their own moment
        grown = {
            pid: count.sizes.get(pid, size + grown.get(pid, 0)) - size
            for pid, size in sizes.items()
        }
        change = sum(grown.values())
        visible = counted_most = round(count.distinct * (most + change) - change)
        error = 0
        if not count.is_by_shares:
            # two versions of a page at an address, each of several members, look like
            # one; and some of the growth came after the points were read
            counted_most += min(self._versions, self._shared)
            error += round(abs(change) * (1 - count.distinct))
        estimate = self.estimate()
        least_part = min(count.least, count.distinct)
        # within what the count leaves open, the model knows better
        counted = max(least_part * (most + change) - change, estimate.value)
        counted = min(counted_most, counted)
        self._doubt.learn(estimate, counted)
        corrected = corrected_estimate(estimate, counted, counted * count.error + error)
        union = nearest_within(corrected.value, least, most)
        below, above = max(0, union - corrected.low), max(0, corrected.high - union)
        if not count.is_by_shares:
            self._versions = min(self._versions, max(0, union - visible))
        for member in self.members.values():
            member.trusted += member.faults
            member.faults = 0
        # where the count agrees, what is known of each member is better than a sample
        if abs(union - estimate.value) > COUNT_ERROR * union:
            self._divide(count.own, grown)
            # few faults since the last count show nothing about the part that copied
            if self._faults > MIB:
                copied = counted - estimate.value + self.guess
                self.copies = min(1.0, max(0.0, copied / self._faults))
        # copies before the count are in it, and are guessed at the next look as well
        below += round(self.copies * sum(faults.get(pid, 0) for pid in sizes))
        self._begin_anew(max(0, union - self._own_of_all()), below, above)

    def _divide(self, parts: Mapping[int, float], grown: Mapping[int, Bytes]) -> None:
        """Set what is each member's own, from the counted *parts* of their sizes."""
        # members that were not read are like the others on average
        usual = sum(parts.values()) / max(1, len(parts))
        for pid, member in self.members.items():
            size = member.seen.anonymous
            own = parts.get(pid, usual) * (size + grown[pid]) - grown[pid]
            member.own = nearest_within(own, 0, size)
            member.grown = min(member.grown, member.own)


class PageOverlap:
    """Estimates the union of the files, or the shared memory, that processes map.

    By how much they overlap, only a count shows. Until then, all are assumed to map the
    same; what came since the last one are assumed to be pages that others map already.
    """

    def __init__(self) -> None:
        self._sum = self._union = 0  # at the count
        self._error: Bytes = 0
        self._doubt = GuessDoubt()

    def correct(self, sizes: Sequence[Bytes], count: PageCount) -> None:
        """Note a count of processes that map *sizes*."""
        most = sum(sizes)
        counted, estimate = count.distinct * most, self.estimate(sizes)
        self._doubt.learn(estimate, counted)
        corrected = corrected_estimate(estimate, counted, counted * count.error)
        self._sum = most
        self._union = nearest_within(corrected.value, max(sizes, default=0), most)
        self._error = max(self._union - corrected.low, corrected.high - self._union)

    def estimate(self, sizes: Sequence[Bytes]) -> PageEstimate:
        """Return the union now, from each process's own bytes."""
        most, least = sum(sizes), max(sizes, default=0)
        # of one process, or before a count, all are taken to map the same
        if not self._sum or most == least:
            return PageEstimate(least, least, most)
        if most < self._sum:
            # shrunk since the count: the overlap shrinks in proportion; nothing came
            union = self._union * most / self._sum
            above, below = self._union - union, most - least
        else:
            # grown since the count: new pages are taken to be mapped already
            union, above, below = float(self._union), most - self._sum, 0
        value = nearest_within(union, least, most)
        doubt = self._doubt.part
        return PageEstimate(
            value,
            nearest_within(value - self._error - doubt * below, least, value),
            nearest_within(value + self._error + doubt * above, value, most),
        )
