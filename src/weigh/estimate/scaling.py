"""How many CPUs pay, and the least memory that a program works with.

A run with less memory works if it completes within twice the best time. The next limit
is the middle between the largest that failed and the smallest that worked, on a scale
of ratios.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from weigh.model.record import Request
from weigh.units import MIB, Bytes, Seconds

SCHEMA = "weigh.cpu_scan/1"
LEAST_EFFICIENCY = 0.75  # speed-up per CPU that pays: as sites advise


class CpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """The runs on one number of CPUs: median wall time, and time without the wait.

    ``efficiency`` is the speed-up over the fewest CPUs measured, per CPU;
    ``is_beyond``: more than the CPUs here, so the time is what it would be at best.
    """

    cpus: int
    wall_time: Seconds
    alone: Seconds
    efficiency: float
    is_beyond: bool = False


class CpuScan(msgspec.Struct, frozen=True, kw_only=True):
    """A finished scan; ``cpus`` are those that pay, None if too few sizes ran."""

    label: str
    rows: tuple[CpuRow, ...]
    cpus: int | None = None
    request: Request | None = None
    exit_code: int = 0
    # commands that a dry run would have started
    planned: tuple[tuple[str, ...], ...] = ()
    schema: str = SCHEMA


def cpu_efficiency(times: Mapping[int, Seconds]) -> dict[int, float]:
    """Return the speed-up per CPU on each number of CPUs, over the fewest."""
    fewest = min(times)
    used = times[fewest] * fewest
    return {n: used / (n * time) if time > 0 else 0.0 for n, time in times.items()}


def cpus_that_pay(rows: Sequence[CpuRow]) -> int:
    """Return the most CPUs that were used with 75 % efficiency, or the fewest."""
    enough = [row.cpus for row in rows if row.efficiency >= LEAST_EFFICIENCY]
    return max(enough, default=min(row.cpus for row in rows))


_CLOSE = 1.1  # two limits this near need no run in between
_FLOOR = 4.0  # without a limit that failed, the one to try is its root lower: half
_KNEE = 1.05  # times the best time
_ENOUGH = 50 * MIB  # the least that is ever requested
_ELASTIC = 0.9  # of the plain peak: a program that works in less takes what it gets


class SqueezeRun(msgspec.Struct, frozen=True):
    """One run: its limit in MiB (0: none), memory, time without waits, and clock.

    ``works``: it completed, and was not too slow.
    """

    limit: int
    memory: Bytes
    time: Seconds
    wall: Seconds
    works: bool


class SqueezeResult(msgspec.Struct, frozen=True):
    """The kind of program, the least run that works, and the least that is as fast."""

    kind: str
    least: SqueezeRun
    knee: SqueezeRun
    plain: SqueezeRun


def next_limit(plain: SqueezeRun, probes: Sequence[SqueezeRun]) -> int | None:
    """Return the next limit in MiB; None if the least is known well enough."""
    failed = [one for one in probes if not one.works]
    worked = [one for one in probes if one.works]
    least = min(worked, key=lambda one: one.limit, default=plain)
    # the plain run has no limit: what it used stands for one
    high = least.limit or max(1, plain.memory // MIB)
    below = [one for one in failed if one.limit < high]
    most = max(below, key=lambda one: one.limit, default=None)
    low = 0 if most is None else most.limit
    # nothing to gain: known to a tenth, to a MiB, or below any request
    if high / max(1, low) <= _CLOSE or high - low <= 1 or least.memory <= _ENOUGH:
        return None
    # nothing failed yet: divide by a fixed factor instead of taking the middle
    return round(math.sqrt(high * low) if low else high / math.sqrt(_FLOOR))


def outcome_of(plain: SqueezeRun, probes: Sequence[SqueezeRun]) -> SqueezeResult:
    """Return what the runs show."""
    good = [one for one in (plain, *probes) if one.works]
    best = min(one.time for one in good)
    least = min(good, key=lambda one: one.memory)
    fast = [one for one in good if one.time <= _KNEE * best]
    knee = min(fast, key=lambda one: one.memory)
    is_elastic = least.memory < _ELASTIC * plain.memory
    return SqueezeResult("elastic" if is_elastic else "rigid", least, knee, plain)
