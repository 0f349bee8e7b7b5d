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
    of its page faults and those of children that it waited for; ``resident``, ``peak``
    and ``image`` are as in its reading.
    """

    pid: int
    parent: int
    family: Hashable
    anonymous: Bytes
    mapped: Bytes
    faulted: Bytes
    faulted_by_reaped: Bytes = 0
    resident: Bytes = 0
    peak: Bytes = MIB
    image: bytes = b""

    @property
    def room(self) -> Bytes:
        """By how much it was larger once."""
        return self.peak - self.resident

    def growth_since(self, old: "MemberReading") -> Bytes:
        """Return by how much it has grown, whatever it has freed since."""
        growth = max(0, self.anonymous - old.anonymous)
        if self.peak > old.peak:
            of_files = self.resident - self.anonymous
            more_files = max(0, of_files - (old.resident - old.anonymous))
            growth = max(growth, self.peak - old.resident - more_files)
        return growth

    def faults_since(self, old: "MemberReading") -> Bytes:
        """Return the bytes of faults that neither growth nor files explain."""
        return max(0, self._without_files(old) - self.growth_since(old))

    def given_back_since(self, old: "MemberReading") -> Bytes:
        """Return what it may have taken for a moment, within its mark.

        What it still has is not in it: of memory that goes from one process to the
        next, nothing shows that both held it.
        """
        most = max(self.growth_since(old), min(self._without_files(old), old.room))
        return most - max(0, self.anonymous - old.anonymous)

    def _without_files(self, old: "MemberReading") -> Bytes:
        """Return the bytes of its faults since, but for those of files."""
        return self.faulted - old.faulted - max(0, self.mapped - old.mapped)


def corrected_estimate(
    estimate: PageEstimate, counted: float, error: float
) -> PageEstimate:
    """Return what a count with an *error* leaves of an *estimate*.

    Both bounds hold; of an estimate that the count contradicts, those of the count do.
    """
    low, high = max(estimate.low, counted - error), min(estimate.high, counted + error)
    if low > high:
        low, high = counted - error, counted + error
    value = min(high, max(low, counted))
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
    """

    __slots__ = (
        "faults",
        "grown",
        "own",
        "room",
        "seen",
        "trusted",
    )

    def __init__(self, seen: MemberReading, own: Bytes) -> None:
        self.seen = seen
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
        # at most, for a moment since the last look: copies of members that have ended,
        # and what the others gave back
        self.passed: Bytes = 0
        self._versions: Bytes = 0  # of copies that forks have shared since
        # faults of ended children that a member has not waited for
        self._unreaped: dict[int, Bytes] = {}
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
        stayed = [seen for seen in group if seen.pid in before]
        self.passed = self._copied_at_the_end(group) + sum(
            seen.given_back_since(self.members[seen.pid].seen) for seen in stayed
        )
        born = [seen for seen in group if seen.pid not in before]
        # an orphan may be a fork of a member that has ended, and has its pages
        has_orphan = any(seen.parent not in present for seen in born)
        # what an ended member shared, another one still holds: but for what only those
        # that have ended shared with it, as old versions of what others copied
        for pid in before.keys() - present:
            ended = self.members.pop(pid)
            shared = ended.seen.anonymous - ended.own
            self._below += self._doubt.part * shared
            self._shared += ended.own if has_orphan else 0
        # All with whom it shared pages have ended, and left none to a fork of theirs:
        # alone it shares nothing, also not the old versions of what it copied
        if len(stayed) <= 1 and all(seen.parent in present for seen in born):
            alone = (stayed or group)[0]
            self.members = {alone.pid: ForkMember(alone, alone.anonymous)}
            self._versions = 0
            self._begin_anew()
        for seen in stayed:
            self._grow(self.members[seen.pid], seen)
        # what all have copied is shared no more, whatever is forked from now on
        if all(seen.parent in self.members for seen in born):
            rest = sum(self.sizes().values()) - self._own_of_all()
            self._shared = min(self._shared, rest)
        for seen in born:
            if seen.pid not in self.members:
                self._join(seen)

    def _copied_at_the_end(self, group: Sequence[MemberReading]) -> Bytes:
        """Return what ended members may have copied after the last look at them.

        The faults of a child are added to its parent's when that has waited for it.
        """
        present = {seen.pid for seen in group}
        ended = [one for pid, one in self.members.items() if pid not in present]
        passed, before, self._unreaped = 0, self._unreaped, {}
        for seen in group:
            if seen.pid not in self.members:
                continue
            children = [one for one in ended if one.seen.parent == seen.pid]
            faults = seen.faulted_by_reaped
            faults -= self.members[seen.pid].seen.faulted_by_reaped
            # one that has ended may wait for its parent until a later look
            known = sum(child.seen.faulted for child in children)
            known += before.get(seen.pid, 0)
            self._unreaped[seen.pid] = max(0, known - faults)
            if children and faults > known:
                shared = sum(child.seen.anonymous - child.own for child in children)
                part = max(self.copies, *map(self._doubt_of, children))
                passed += round(part * min(shared, faults - known))
        return passed

    def _grow(self, member: ForkMember, seen: MemberReading) -> None:
        old, member.seen = member.seen, seen
        growth = seen.anonymous - old.anonymous
        lost = min(member.own, max(0, -growth))  # what was taken last goes first
        member.own += growth if growth > 0 else -lost
        member.grown = min(member.own, max(0, member.grown + growth))
        self._below += max(0, -growth - lost)
        self._copy(member, seen.faults_since(old))

    def _join(self, seen: MemberReading) -> None:
        """Add a fork that was born since the last look, or the eldest member."""
        if not self.members:
            self.members[seen.pid] = ForkMember(seen, seen.anonymous)
            return
        eldest = max(self.members.values(), key=lambda one: one.seen.anonymous)
        parent = self.members.get(seen.parent, eldest)
        # what was the parent's alone is shared from the fork on
        self._shared += parent.own
        self._versions += parent.own - parent.grown
        parent.own = parent.grown = 0
        # a fork starts without page faults: all of them are its own
        faults = max(0, seen.faulted - seen.mapped)
        grown = min(max(0, seen.anonymous - parent.seen.anonymous), faults)
        member = self.members[seen.pid] = ForkMember(seen, grown)
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
        self.guess += guess
        self._below += guess
        self._above += (most - guess) * self._doubt_of(member)
        member.faults += faults

    def _doubt_of(self, member: ForkMember) -> float:
        """Return which part of what a member might have copied may exceed the guess.

        What counts have shown of its faults so far holds for as many that come after.
        """
        return self._doubt.part if member.trusted > member.faults else 1.0

    def _own_of_all(self) -> Bytes:
        return sum(member.own for member in self.members.values())

    def correct(self, count: PageCount, grown: Mapping[int, Bytes]) -> None:
        """Correct the guesses by a count made since the last look.

        *grown* is by how much members have grown in between, or shrunk: by what is
        their own.
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
            if self._faults:
                copied = counted - estimate.value + self.guess
                self.copies = min(1.0, max(0.0, copied / self._faults))
        self._begin_anew(max(0, union - self._own_of_all()), below, above)

    def _divide(self, parts: Mapping[int, float], grown: Mapping[int, Bytes]) -> None:
        """Set what is each member's own, from the counted *parts* of their sizes."""
        # members that were not read are like the others on average
        usual = sum(parts.values()) / max(1, len(parts))
        for pid, member in self.members.items():
            size = member.seen.anonymous
            own = parts.get(pid, usual) * (size + grown[pid]) - grown[pid]
            member.own = nearest_within(own, 0, size)


class PageOverlap:
    """Estimates the union of the files, or the shared memory, that processes map.

    By how much they overlap, only a count shows. Until then, all are assumed to map the
    same; what came since the last one is as new as what came before that, as far as
    the machine has more at all.
    """

    def __init__(self) -> None:
        self._sum = self._union = 0  # at the count
        self._new = 0.0  # the part of what came before it that nobody mapped yet
        self._error: Bytes = 0
        self._doubt = GuessDoubt()

    def came(self, sizes: Sequence[Bytes]) -> Bytes:
        """Return by how much the sum of *sizes* has grown since the last count."""
        return max(0, sum(sizes) - self._sum) if self._sum else 0

    def correct(self, sizes: Sequence[Bytes], count: PageCount, new: Bytes = 0) -> None:
        """Note a count of processes that map *sizes*; *new* is as for an estimate."""
        most = sum(sizes)
        counted, estimate = count.distinct * most, self.estimate(sizes, new)
        self._doubt.learn(estimate, counted)
        corrected = corrected_estimate(estimate, counted, counted * count.error)
        if (came := self.came(sizes)) > MIB:
            self._new = min(1.0, max(0.0, (counted - self._union) / came))
        self._sum = most
        self._union = nearest_within(corrected.value, max(sizes, default=0), most)
        self._error = max(self._union - corrected.low, corrected.high - self._union)

    def estimate(self, sizes: Sequence[Bytes], new: Bytes = 0) -> PageEstimate:
        """Return the union now, from each process's own bytes.

        By *new*, the machine has more since the last count; others may have it.
        """
        most, least = sum(sizes), max(sizes, default=0)
        # of one process, or before a count, all are taken to map the same
        if not self._sum or most == least:
            return PageEstimate(least, least, most)
        new = min(new, round(self._new * self.came(sizes)))
        value = nearest_within(self._union + new, least, most)
        # of what was let go since, others may map all, or nothing
        below = new + (max(0, self._union - least) if most < self._sum else 0)
        above = max(0, self._union + new - value, most - self._sum - new)
        low = value - self._error - self._doubt.part * below
        high = value + self._error + self._doubt.part * above
        return PageEstimate(
            value, nearest_within(low, least, value), nearest_within(high, value, most)
        )
