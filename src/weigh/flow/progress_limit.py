"""When the time of a run is over, and how to ask for more of it."""

import time
from collections.abc import Callable, Mapping

from weigh.units import Seconds

_GRIDENGINE = "SGE_JOB_SPOOL_DIR"


def time_left(limit: Seconds | None, env: Mapping[str, str]) -> Seconds | None:
    """Give the seconds until weigh itself is ended; None where nobody says.

    *limit*, as the user says, counts from now; else the scheduler's word counts.
    """
    if limit is not None:
        return limit
    end = env.get("SLURM_JOB_END_TIME", "")
    if end.isdecimal() and end.isascii():
        return max(0.0, int(end) - time.time())
    return None


def asking(env: Mapping[str, str]) -> Callable[[Seconds], str]:
    """Give what writes a time limit as the scheduler of this job is asked for it."""
    return _for_gridengine if "SGE_TASK_ID" in env else _for_slurm


def _for_slurm(seconds: Seconds) -> str:
    from weigh.dialect import slurm  # noqa: PLC0415 - only near a limit

    return f"--time={slurm.format_time(round(seconds))}"


def _for_gridengine(seconds: Seconds) -> str:
    from weigh.dialect import gridengine  # noqa: PLC0415 - only near a limit

    return f"-l h_rt={gridengine.format_time(round(seconds))}"
