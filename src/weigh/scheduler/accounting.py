"""What a scheduler's accounting says of one job, asked once for a report."""

from collections.abc import Mapping

from weigh.errors import SchedulerError
from weigh.model.report import Accounted
from weigh.scheduler import (
    accounting_gridengine,
    accounting_slurm,
    gridengine,
    slurm,
)
from weigh.scheduler.command import Runner
from weigh.units import Seconds

_PATIENCE: Seconds = 30.0
NAMES = {slurm.NAME: "sacct", gridengine.NAME: "qacct"}


def ask(
    scheduler: str, job: str, *, run: Runner, env: Mapping[str, str]
) -> tuple[Accounted, ...]:
    """Give what accounting knows of *job*; nothing where there is none, or no answer.

    *run* is what runs its command. On this machine nobody keeps accounts.
    """
    if scheduler not in NAMES:
        return ()
    source = accounting_slurm if scheduler == slurm.NAME else accounting_gridengine
    try:
        ran = run(source.argv(job), cwd=None, env=env, timeout=_PATIENCE)
    except SchedulerError:
        return ()
    return source.parse(ran.out) if ran.code == 0 else ()
