"""How many CPUs pay: the speed-up over the fewest, per CPU."""

from collections.abc import Mapping, Sequence

import msgspec

from weigh.model.record import Request
from weigh.units import Seconds

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
