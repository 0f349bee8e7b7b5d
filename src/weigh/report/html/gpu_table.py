"""What the scheduler's own table in the jobs' logs says of the GPUs."""

from collections.abc import Sequence

from weigh.model.report import GpuTable
from weigh.report.html.table import Table
from weigh.report.html.words import ABSENT, figure, share, size
from weigh.report.printable import printable

_MOST = 64
_TITLES = ("GPU", "memory", "busy", "busiest", "power", "time", "health", "looked")


def gpu_table(tables: Sequence[GpuTable]) -> Table | None:
    """Lay the scheduler's figures out; None where no log had any."""
    if not tables:
        return None
    return Table(
        titles=_TITLES,
        rows=tuple(_row(one) for one in tables[:_MOST]),
        left_out=max(0, len(tables) - _MOST),
    )


def _row(one: GpuTable) -> tuple[str, ...]:
    return (
        printable(one.gpu),
        size(one.gpu_memory),
        share(one.utilization),
        share(one.utilization_max),
        ABSENT if one.power_mean is None else f"{one.power_mean:.0f} W",
        figure(one.wall_time, "time"),
        printable(one.health or ABSENT),
        "once" if one.one_look else "throughout",
    )
