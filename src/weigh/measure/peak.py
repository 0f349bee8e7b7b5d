"""Compute a tree's peak memory from samples; no access to the machine.

The kernel's high-water marks show spikes between two samples, and the ru_maxrss of a
reaped process shows its final size. Where the samples are the kernel's own account of
the job, that has the spikes too. A bound of the peak comes from what was seen, not from
what might have been between two samples.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weigh.measure.memory.holding import MemoryHolding, material_change
from weigh.model.record import LAUNCHER_FLOOR, PeakMemory, TreeSample
from weigh.probe.proc import ProcessReading
from weigh.units import GIB, KIB, MIB, Bytes, Seconds

# Faulting memory in means zeroing or copying it: no process is known to do that faster
_FASTEST_GROWTH = 4 * GIB  # bytes per second
_MOST_ENDED = 16
_CORRECTION = 64 * KIB  # by which the kernel corrects the mark of a process that ends
_NOTHING: Mapping[int, Bytes] = {}
_SHORT = 0.1  # seconds; a shorter program is mostly start-up and exit
_UNSEEN = 1.05  # a reaped peak this far above all samples: an unseen process
_DOUBTFUL = 1.1  # of a peak: a bound above that is worth a word


class PeakLook(msgspec.Struct, frozen=True):
    """A look at which the tree held ``value``, counting the spikes before it.

    ``held`` is the look whose kinds of memory describe it best.
    """

    value: Bytes
    low: Bytes
    time: Seconds
    held: MemoryHolding


class OpenBounds:
    """What the tree held at most at the moments since the last count, in bytes.

    ``high`` is the bound that is known without a count, ``value`` the figure itself,
    and ``without_guess`` what remains of it where no guess is right.
    """

    def __init__(self) -> None:
        self.high: Bytes = 0
        self.value: Bytes = 0
        self.without_guess: Bytes = 0

    def add(self, held: MemoryHolding, more: Bytes) -> None:
        """Add a moment at which the tree held what it did at a look, and *more*."""
        self.high = max(self.high, held.high + more)
        self.value = max(self.value, held.total + more)
        self.without_guess = max(self.without_guess, held.total - held.guess + more)

    def after_count(self, held: MemoryHolding) -> Bytes:
        """Return what a count, which found *held*, leaves of them: it is as sure."""
        guesses = self.value - self.without_guess
        right = round((held.confirmed or 0) * guesses)
        return self.without_guess + right + held.high - held.total


class EndedProcess(msgspec.Struct, frozen=True):
    """The largest process that ended between two looks.

    It ``held`` so much at the first, with ``others``, and may have grown to ``most``.
    Up to ``shared`` of it were pages of others, which it may have copied since.
    """

    others: Bytes
    held: Bytes
    most: float  # bytes; infinite where the CPU time is not exact
    shared: Bytes


class PeakTracker:
    """Computes the peak, and how sure it is, from samples of a tree."""

    def __init__(self, floor: Bytes) -> None:
        """Start; a ru_maxrss up to *floor* may be the launcher's own."""
        self.largest: Bytes = 0
        self.virtual: Bytes = 0
        self._floor = floor
        self._top: PeakLook | None = None
        self._guessed: PeakLook | None = None  # until a count shows what is right of it
        self._most: Bytes = 0  # at any moment up to the last count
        self._open = OpenBounds()
        # bytes, at any moment; infinite without an account
        self._most_of_account: float = 0.0
        self._reaped: Bytes = 0  # bytes; the largest ru_maxrss so far
        self._last: MemoryHolding | None = None
        self._shared_before: Bytes = 0  # memory, at the look before the last one
        self._readings: Mapping[int, ProcessReading] = {}
        self._last_cpu_time: Seconds | None = None  # None: not exact
        self._ended: list[EndedProcess] = []  # the largest few, by what was held
        self._grown: Bytes = 0  # with what they are known to have grown by
        self._met: set[int] = set()  # process ids
        # whether the one process that was met has waited for others
        self.has_unseen = False
        self._looked_at: Seconds = 0.0
        self._finished: Seconds | None = None

    @property
    def best(self) -> Bytes:
        """The peak so far, without guesses that a count may correct."""
        return 0 if self._top is None else self._top.value

    def look(
        self,
        current_time: Seconds,
        readings: Sequence[ProcessReading],
        held: MemoryHolding,
        inherited: Mapping[int, Bytes] = _NOTHING,
        cpu_time: Seconds | None = None,
    ) -> TreeSample:
        """Add one sample of all processes of the tree.

        *inherited* is the memory that new forks share with their parents; a high-water
        mark below that shows no memory of their own. *cpu_time* is what the tree has
        used so far, if that is exact: only a process that runs can grow.
        """
        left = self._left_behind(held, sum(one.shared for one in readings))
        self._depart({reading.pid for reading in readings}, cpu_time, held, left)
        # of the processes that have just ended, before this look replaces the last one
        self._grown = max(self._grown, self._grown_unseen())
        marks = {reading.pid: self._rise_of_mark(reading) for reading in readings}
        self.virtual = max(self.virtual, sum(map(self._virtual_with_spike, readings)))
        spike, others = self._spikes(readings, held, marks, inherited, left)
        value, kinds = held.total + spike, held
        # a peak of the account may have been over by this look, as when the job ended
        if held.spike and self._last and held.total < self._last.total <= value:
            kinds = msgspec.structs.replace(
                self._last, spike=held.spike, most_spike=held.most_spike
            )
        if self._last is not None:
            self._open.add(self._last, held.passed)
        # the account's own bound has what its mark shows
        self._open.add(held, max(spike + others, held.passed) - held.spike)
        most = held.total + held.most_spike
        self._most_of_account = max(self._most_of_account, most)
        self._note(PeakLook(value, held.low + spike, current_time, kinds), held)
        self._readings = {reading.pid: reading for reading in readings}
        self._shared_before = 0 if self._last is None else self._last.shared
        self._last, self._looked_at = held, current_time
        return TreeSample(current_time, value, None, len(readings))

    def _note(self, look: PeakLook, held: MemoryHolding) -> None:
        """Keep a look if it is the peak.

        What it only guesses waits for the next count, which shows what is right of it.
        """
        if held.confirmed is not None:
            if self._guessed is not None:
                self._keep(_without(self._guessed, 1 - held.confirmed))
                self._guessed = None
            self._most = max(self._most, self._open.after_count(held))
            self._open = OpenBounds()
        if held.guess <= material_change(look.value):
            self._keep(look)
            return
        if self._guessed is None or look.value > self._guessed.value:
            self._guessed = look
        # without its guess it is a peak that is certain
        self._keep(_without(look, 1.0))

    def _keep(self, look: PeakLook) -> None:
        top = self._top
        if look.value > self.best:
            self._top = look
        elif top is not None and _is_surer(look, top):
            self._top = msgspec.structs.replace(
                top,
                low=look.low,
                held=msgspec.structs.replace(top.held, certainty=look.held.certainty),
            )

    def _rise_of_mark(self, reading: ProcessReading) -> Bytes:
        """Return a process's excess over its current size since the last sample."""
        before = self._readings.get(reading.pid)
        self._met.add(reading.pid)
        self.largest = max(self.largest, reading.peak)
        if before is not None and 0 <= reading.peak - before.peak < _CORRECTION:
            return 0
        return max(0, reading.peak - reading.resident)

    def _spikes(
        self,
        readings: Sequence[ProcessReading],
        held: MemoryHolding,
        marks: Mapping[int, Bytes],
        inherited: Mapping[int, Bytes],
        left: Bytes,
    ) -> tuple[Bytes, Bytes]:
        """Return by how much the largest spike exceeded what is held, and the others.

        Of several spikes nobody knows whether they came at one moment: the largest
        counts, with what the others held at the smaller of the two looks around it,
        for memory often goes from one process to the next. What its process has let go
        of files and shared memory, others may still hold.
        """
        last = self._last
        spikes = [0]
        for one in readings:
            first = inherited.get(one.pid, 0)
            spike = min(marks[one.pid], one.peak - first) - left
            is_of_several = len(readings) > 1 or held.is_account
            if spike > 0 and is_of_several and last is not None:
                before = self._readings.get(one.pid)
                grown = one.resident - first
                if before is not None:
                    grown = one.resident - before.resident
                    let_go = before.file + before.shared - one.file - one.shared
                    spike -= max(0, let_go)
                # the same spike on top of the look before, where that held less
                spike = min(spike, last.total + spike + grown - held.total)
            spikes.append(max(0, spike))
        # an account may show a spike that no mark does, or that there was none
        largest = max(held.spike, round(min(max(spikes), held.most_spike)))
        return largest, max(0, round(min(sum(spikes), held.most_spike)) - largest)

    def _virtual_with_spike(self, reading: ProcessReading) -> Bytes:
        before = self._readings.get(reading.pid)
        # the kernel's mark only rises: an unchanged one is from an earlier look
        if before is not None and reading.virtual_peak == before.virtual_peak:
            return reading.virtual
        return max(reading.virtual, reading.virtual_peak)

    def held_last(self) -> Bytes:
        """Return what the tree held at the last look."""
        return 0 if self._last is None else self._last.total

    def reap(self, max_rss: Bytes) -> None:
        """Add the ru_maxrss of a reaped process and its waited-for children."""
        self._reaped = max(self._reaped, max_rss)

    def finish(self, current_time: Seconds, cpu_time: Seconds | None = None) -> None:
        """Note that all processes have ended, after *cpu_time* if that is exact."""
        self._depart(set(), cpu_time)
        self._readings = {}
        self._finished = current_time

    def max_process(self) -> Bytes | None:
        """Return the largest peak of a single process; None if unknown."""
        return max(self.largest, self._reaped_surely()) or None

    def peak(self, method: str) -> PeakMemory | None:
        """Return the peak; None if nothing could be read."""
        reaped, top = self._reaped_surely(), self._top
        if self._guessed is not None and self._guessed.value > self.best:
            top = self._guessed
        if top is None and not self._reaped:
            return None
        # all that is known is that the job was smaller than the launcher
        if not reaped and self._reaped and (top is None or self._was_short()):
            high = max(self._floor, self.best)
            low = 0 if top is None else min(high, top.low)
            return PeakMemory(
                value=high,
                low=low,
                high=high,
                source=LAUNCHER_FLOOR,
                certainty="guessed",
                **_parts_of_peak(high, None),
            )
        if top is None:
            top = PeakLook(0, 0, 0.0, MemoryHolding(0, 0, 0, low=0, high=0))
        value = max(top.value, reaped, self._grown, self._grown_unseen())
        certainty = top.held.certainty
        low = max(top.low, self.largest, reaped)
        # a reaped process below the floor may have been the launcher itself
        bound = max(self._most, self._open.high)
        high = max(value, bound, self._reaped)
        unseen_spike = top.held.most_spike - top.held.spike
        if top.held.is_account and unseen_spike > material_change(value):
            certainty = "counted"  # between looks only marks of processes show more
        if value > max(top.value, reaped) + _CORRECTION:
            # what a process grew by after the last look adds to what was open then
            high = value + max(0, bound - top.value)
            high += max(one.shared for one in self._ended)
        # a bound far above the figure means that much was not seen
        if high > value * _DOUBTFUL + MIB:
            certainty = "guessed"
        is_all_seen = len(self._met) <= 1 and not self.has_unseen
        has_grown = any(2 * one.held >= reaped <= one.most for one in self._ended)
        # one that was never seen, at any moment; an account may have it as well
        if reaped > self.largest * _UNSEEN and not is_all_seen and not has_grown:
            unseen = round(min(top.value + reaped, self._most_of_account))
            if unseen > high:
                certainty, high = "guessed", unseen
        return PeakMemory(
            value=value,
            low=min(value, low),
            high=high,
            source=method if top.value else "kernel: largest single process",
            certainty=certainty,
            **_parts_of_peak(value, self._top and top),
        )

    def _was_short(self) -> bool:
        """Return whether the last sample came too early to be useful.

        On a busy machine a program waits at its start: a look finds 10 KiB then.
        """
        ended = self._finished
        return ended is not None and (ended < _SHORT or self._looked_at < ended / 2)

    def _reaped_surely(self) -> Bytes:
        """Return the largest ru_maxrss that is not the launcher's own, or 0."""
        return self._reaped if self._reaped > self._floor else 0

    def _grown_unseen(self) -> Bytes:
        """Estimate the peak if a process grew after its last sample."""
        reaped = self._reaped_surely()
        # below 0: what was held, or less
        unseen = reaped - self.largest
        # a little is the last pages of a process that was seen almost at its peak
        is_another = reaped > self.largest * _UNSEEN
        grown = [0]
        for one in self._ended:
            size = reaped if is_another else one.held + unseen
            grown.append(one.others + round(min(size, one.most)))
        return max(grown)

    def _left_behind(self, held: MemoryHolding, mapped: Bytes) -> Bytes:
        """Return what is shared memory still, though no process maps it any more.

        An account, read after the processes, may have had it at the last look already.
        """
        if held.is_account:
            return max(0, held.shared - max(mapped, self._shared_before))
        before = 0 if self._last is None else self._last.unmapped
        return max(0, held.unmapped - before)

    def _depart(
        self,
        present: set[int],
        cpu_time: Seconds | None,
        held_now: MemoryHolding | None = None,
        left: Bytes = 0,
    ) -> None:
        """Note what was held when processes ended, which may have grown before that.

        An account has at most what it shows after their end, *held_now*, without what
        they *left* there.
        """
        last, last_cpu_time = self._last, self._last_cpu_time
        self._last_cpu_time = cpu_time
        gone = [one for pid, one in self._readings.items() if pid not in present]
        if not gone or last is None:
            return
        # a fork maps its parent's files one after another, which is no growth
        files = max(one.file for one in self._readings.values())
        whole = max(one.resident - one.file + files for one in gone)
        held, room = max(one.resident for one in gone), math.inf
        if cpu_time is not None and last_cpu_time is not None:
            room = (cpu_time - last_cpu_time) * _FASTEST_GROWTH + MIB
        sizes = sum(one.resident for one in self._readings.values())
        shared = min(whole, max(0, sizes + last.kernel - last.total))
        others, most = last.total - whole, held + room
        if held_now is not None and held_now.is_account:
            # what they grew by before the account was read is in its last figure
            others = min(others, held_now.total) - left
            most = min(most, held_now.total + held_now.most_spike - others)
        self._ended.append(EndedProcess(others, held, most, shared))
        if len(self._ended) > _MOST_ENDED:
            # the smallest can matter least for the peak
            self._ended.remove(min(self._ended, key=lambda one: one.others + one.held))


def _is_surer(look: PeakLook, top: PeakLook) -> bool:
    """Return whether a look shows as much memory as the *top* one, more surely."""
    is_as_much = look.value >= top.value - material_change(top.value)
    return is_as_much and look.low > top.low


def _without(look: PeakLook, part: float) -> PeakLook:
    """Return a look without a part of what it only guessed."""
    less = round(look.held.guess * part)
    return msgspec.structs.replace(
        look,
        value=look.value - less,
        low=min(look.low, look.value - less),
        held=msgspec.structs.replace(look.held, certainty="counted"),
    )


def _parts_of_peak(value: Bytes, look: PeakLook | None) -> dict[str, Any]:
    """Split a peak as at the look next to it; a spike is anonymous memory."""
    if look is None:
        return dict.fromkeys(("anonymous", "shared", "file"))
    held = look.held
    return {
        "anonymous": value - held.shared - held.file - held.kernel,
        "shared": held.shared,
        "file": held.file,
        "kernel": held.kernel,
        "time": look.time,
    }
