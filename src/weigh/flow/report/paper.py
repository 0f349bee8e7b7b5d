"""``weigh report --paper``: the machines, run times and energy of runs."""

from collections.abc import Mapping

import msgspec

from weigh.errors import UsageError
from weigh.flow.records.records import open_store
from weigh.flow.report.report import gather
from weigh.flow.report.since import runs_since
from weigh.probe.host import read_host
from weigh.render.report_paper import Statement
from weigh.review.statement import state
from weigh.store.find import LAST

_CPUINFO = "/proc/cpuinfo"


def paper(
    name: str = LAST,
    *,
    since: str | None = None,
    grid_intensity: float | None = None,
    cwd: str,
    env: Mapping[str, str],
) -> Statement:
    """Return the statement of the runs called *name*, or of all of the last *since*.

    *grid_intensity* is in gCO2 per kWh.

    Raises:
        UsageError: nothing was measured, or the intensity is none.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    if grid_intensity is not None and not 0 <= grid_intensity < float("inf"):
        raise UsageError(f"--grid-intensity is gCO2 per kWh, not {grid_intensity:g}")
    if since is not None:
        title = f"the last {since}"
        runs = tuple(runs_since(since, cwd=cwd, env=env))
    else:
        found = gather(name, open_store(cwd, env), cwd=cwd, env=env)
        title, runs = found.title, found.runs
    statement = state(title, runs, this_machine=_this_machine())
    if not statement.runs:
        raise UsageError("no run was measured in that time: there is nothing to state")
    return msgspec.structs.replace(statement, intensity=grid_intensity)


def _this_machine() -> tuple[str, str] | None:
    """Return the id of this machine and its CPU model; None if one is not known."""
    model = _cpu_model()
    here = read_host().machine_id if model else None
    return (here, model) if here and model else None


def _cpu_model() -> str | None:
    """Read the CPU model of this machine, which records do not have."""
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return " ".join(line.partition(":")[2].split()) or None
    except OSError:
        pass
    return None
