"""Search the least memory that a program works with, in few runs.

A run works if it completes within twice the best time. The next limit is the middle, on
a scale of ratios, between the largest that failed and the smallest that worked.
"""

from collections.abc import Sequence

import msgspec

from weigh.units import MIB, Bytes, Seconds

_CLOSE = 1.1  # two limits this near need no run in between
_FLOOR = 4.0  # the first limits are this many times apart
_KNEE = 1.05  # times the best time
_ELASTIC = 0.9  # of the plain peak: a program that works in less takes what it gets


class Probe(msgspec.Struct, frozen=True):
    """One run: its limit in MiB (0: none), memory, time without waits, and clock."""

    limit: int
    memory: Bytes
    time: Seconds
    wall: Seconds
    works: bool


class Squeeze(msgspec.Struct, frozen=True):
    """The kind of program, the least run that works, and the least that is as fast."""

    kind: str
    least: Probe
    knee: Probe
    plain: Probe


def next_limit(plain: Probe, probes: Sequence[Probe], *, is_group: bool) -> int | None:
    """Return the next limit in MiB; None if the least is known well enough."""
    failed = [one.limit for one in probes if not one.works]
    worked = [one.limit for one in probes if one.works]
    if is_group and failed and not worked:  # it fails with 10 % less
        return None
    high = min(worked, default=max(1, plain.memory // MIB))
    low = max((one for one in failed if one < high), default=0)
    if not low:
        return max(1, round(high / _FLOOR**0.5)) if high > 1 else None
    if high / low <= _CLOSE or high - low <= 1:
        return None
    return round(float((high * low) ** 0.5))


def outcome_of(plain: Probe, probes: Sequence[Probe], *, has_knob: bool) -> Squeeze:
    """Return what the runs show; *has_knob*: the program has a limit of its own."""
    good = [one for one in (plain, *probes) if one.works]
    best = min(one.time for one in good)
    least = min(good, key=lambda one: one.memory)
    fast = [one for one in good if one.time <= _KNEE * best]
    knee = min(fast, key=lambda one: one.memory)
    is_elastic = least.memory < _ELASTIC * plain.memory
    kind = "rigid"
    if is_elastic:
        kind = "elastic" if has_knob else "cache or elastic"
    return Squeeze(kind, least, knee, plain)
