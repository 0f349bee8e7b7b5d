"""When the time of a run is over, and how to ask for more of it."""

import os
import re
import time
from collections.abc import Callable, Mapping

from weigh.errors import WeighError
from weigh.units import Seconds

_PATIENCE = 5.0  # seconds for qstat, a second into the job
_LIMIT = re.compile(r"\b[sh]_rt=([0-9:]+)")
Ask = Callable[[str], str]


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


def asked_time_left(env: Mapping[str, str], ask: Ask | None = None) -> Seconds | None:
    """Ask Grid Engine, which tells a job nothing of its limit; None where it has none.

    The job began when its spool folder was written; *ask* gives qstat's text on a job.
    """
    job, spool = env.get("JOB_ID", ""), env.get("SGE_JOB_SPOOL_DIR", "")
    if "SGE_TASK_ID" not in env or not job.isdecimal():
        return None
    from weigh.dialect import gridengine  # noqa: PLC0415 - only in such a job

    try:
        began = os.stat(os.path.join(spool, "config")).st_mtime
        text = ask(job) if ask is not None else _qstat(job, env)
        found = [gridengine.parse_time(word) for word in _LIMIT.findall(text)]
    except (OSError, WeighError):
        return None
    limits = [limit for limit in found if limit is not None]
    return max(0.0, began + min(limits) - time.time()) if limits else None


def _qstat(job: str, env: Mapping[str, str]) -> str:
    from weigh.scheduler.command import run  # noqa: PLC0415 - only in such a job

    return run(("qstat", "-j", job), cwd=None, env=env, timeout=_PATIENCE).out


def asking(env: Mapping[str, str]) -> Callable[[Seconds], str]:
    """Give what writes a time limit as the scheduler of this job is asked for it."""
    return _for_gridengine if "SGE_TASK_ID" in env else _for_slurm


def _for_slurm(seconds: Seconds) -> str:
    from weigh.dialect import slurm  # noqa: PLC0415 - only near a limit

    return f"--time={slurm.format_time(round(seconds))}"


def _for_gridengine(seconds: Seconds) -> str:
    from weigh.dialect import gridengine  # noqa: PLC0415 - only near a limit

    return f"-l h_rt={gridengine.format_time(round(seconds))}"
