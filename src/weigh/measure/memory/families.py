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

import math
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from weigh.measure.memory.counts import COUNT_ERROR, PageCount
from weigh.measure.memory.holding import PageEstimate, nearest_within
from weigh.units import MIB, Bytes

# pages of a file that one fault maps: at most 16 (fault_around_bytes), on average
_FILES_PER_FAULT = 8


class MemberReading(msgspec.Struct, frozen=True, gc=False):
    """One process at a look.

    ``anonymous`` and ``mapped`` (files and shared memory) are its resident bytes,
    ``faulted`` the bytes of all its page faults; ``image`` is as in its reading.
    """

    pid: int
    parent: int
    family: Hashable
    anonymous: Bytes
    mapped: Bytes
    faulted: Bytes
    image: bytes = b""

    def faults_since(self, old: "MemberReading") -> Bytes:
        """Return the bytes of faults that neither growth nor files explain."""
        growth = max(0, self.anonymous - old.anonymous)
        files = max(0, self.mapped - old.mapped) // _FILES_PER_FAULT
        return max(0, self.faulted - old.faulted - growth - files)


def corrected_estimate(
    estimate: PageEstimate, counted: float, error: float
) -> PageEstimate:
    """Return what an *estimate* and a count with an *error* show together.

    Each weighs as much as it is sure. An estimate that the count contradicts is not as
    sure as its bounds say; of others, the bounds still hold, and the value is the surer
    the closer it is to what was counted.
    """
    off = abs(counted - estimate.value) - error
    spread = max((estimate.high - estimate.low) / 2, off, 1.0)
    both = math.hypot(spread, error)
    # bounds allow for what a count may just have ruled out
    found = min(spread, abs(counted - estimate.value))
    part = found**2 / max(1.0, found**2 + error**2)
    value = round(estimate.value + part * (counted - estimate.value))
    low, high = value - spread * error / both, value + spread * error / both
    if estimate.low - error <= counted <= estimate.high + error:
        low, high = max(low, estimate.low), min(high, estimate.high)
    return PageEstimate(value, min(value, round(low)), max(value, round(high)))


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
    """One process of a family, and which of its bytes nobody else maps."""

    __slots__ = ("own", "seen")

    def __init__(self, seen: MemberReading, own: Bytes) -> None:
        self.seen = seen
        self.own = own


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
        for pid in before.keys() - present:
            ended = self.members.pop(pid)
            shared = ended.seen.anonymous - ended.own
            self._below += self._doubt.part * min(shared, self._copied)
        stayed = [seen for seen in group if seen.pid in before]
        born = [seen for seen in group if seen.pid not in before]
        # All with whom it shared pages have ended, and left none to a fork of theirs:
        # alone it shares nothing, also not the old versions of what it copied
        if len(group) == 1 or (
            len(stayed) == 1 and all(seen.parent in present for seen in born)
        ):
            alone = (stayed or group)[0]
            self.members = {alone.pid: ForkMember(alone, alone.anonymous)}
            self._copied = 0
            self._begin_anew()
        for seen in stayed:
            self._grow(self.members[seen.pid], seen)
        # of those that are met together, the eldest is the one without a parent here
        born.sort(key=lambda seen: (seen.parent in present, -seen.anonymous))
        for seen in born:
            if seen.pid not in self.members:
                self._join(seen, before)

    def _grow(self, member: ForkMember, seen: MemberReading) -> None:
        old, member.seen = member.seen, seen
        growth = seen.anonymous - old.anonymous
        lost = min(member.own, max(0, -growth))  # what was taken last goes first
        member.own += growth if growth > 0 else -lost
        self._doubt_guess(max(0, -growth - lost), lost)
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
        parent.own = 0
        # a fork starts without page faults: all of them are its own
        faults = max(0, seen.faulted - seen.mapped // _FILES_PER_FAULT)
        size = before.get(seen.parent, parent.seen.anonymous)
        grown = min(max(0, seen.anonymous - size), faults)
        member = self.members[seen.pid] = ForkMember(seen, grown)
        self._doubt_guess(grown, 0)
        self._copy(member, faults - grown)

    def _copy(self, member: ForkMember, faults: Bytes) -> None:
        """Assume that a learned part of *faults* copied shared pages."""
        most = min(member.seen.anonymous - member.own, faults)
        guess = round(most * self.copies)
        member.own += guess
        self._faults += most
        self._copied += most
        self.guess += guess
        self._doubt_guess(guess, most - guess)

    def _doubt_guess(self, below: Bytes, above: Bytes) -> None:
        """Widen the bounds: the upper one as far as guesses were off before."""
        self._below += below
        self._above += self._doubt.part * above

    def _own_of_all(self) -> Bytes:
        return sum(member.own for member in self.members.values())

    def correct(self, count: PageCount, grown: Mapping[int, Bytes]) -> None:
        """Correct the guesses by a count made since the last look.

        *grown* is by how much members have grown in between, or shrunk: by what is
        their own.
        """
        sizes = self.sizes()
        most, least = sum(sizes.values()), max(sizes.values())
        change = sum(grown.values())
        estimate = self.estimate()
        at_least, at_most = (
            part * (most + change) - change
            for part in (min(count.least, count.distinct), count.distinct)
        )
        # within what the count leaves open, the model knows better
        counted = min(at_most, max(at_least, estimate.value))
        self._doubt.learn(estimate, counted)
        corrected = corrected_estimate(estimate, counted, counted * count.error)
        union = nearest_within(corrected.value, least, most)
        below, above = union - corrected.low, corrected.high - union
        # the count agrees: what is known of each member is better than a sample
        if abs(union - estimate.value) <= COUNT_ERROR * union:
            self._begin_anew(self._shared, below, above)
            return
        # members that were not read are like the others on average
        usual = sum(count.own.values()) / max(1, len(count.own))
        own = {
            pid: count.own.get(pid, usual) * (size + grown.get(pid, 0))
            - grown.get(pid, 0)
            for pid, size in sizes.items()
        }
        # by as much, the sample was off
        part = max(0.0, 1 + (union - counted) / max(1.0, sum(own.values())))
        known = self._own_of_all() - self.guess
        for pid, member in self.members.items():
            member.own = nearest_within(own[pid] * part, 0, sizes[pid])
        # few faults since the last count show nothing about the part that copied
        if self._faults > MIB:
            copied = (self._own_of_all() - max(0, known)) / self._faults
            self.copies = min(1.0, max(0.0, copied))
        # at least two members hold each shared page
        rest = most - self._own_of_all()
        self._begin_anew(min(max(0, union - most + rest), rest // 2), below, above)


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
            # shrunk since the count: the overlap shrinks in proportion
            union, above = self._union * most / self._sum, most - least
            below = above
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
