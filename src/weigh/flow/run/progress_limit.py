"""When the time of a run is over, and how to ask for more of it."""

import os
import re
import time
from collections.abc import Callable, Mapping

from weigh.errors import WeighError
from weigh.units import Seconds

PATIENCE = 5.0  # seconds for squeue or qstat, a second into the job
_LIMIT = re.compile(r"\b[sh]_rt=([0-9:]+)")
Ask = Callable[[str], str]


def time_left(limit: Seconds | None, env: Mapping[str, str]) -> Seconds | None:
    """Give the seconds until weigh itself is ended; None where nobody says.

    *limit*, as the user says, counts from now; else the scheduler's word counts.
    """
    if limit is not None:
        return limit
    end = env.get("SLURM_JOB_END_TIME", "")
    if not (end.isdecimal() and end.isascii()):
        return None
    left = int(end) - time.time()
    return left if left > 0 else None  # the word of a job that is over


def asked_time_left(env: Mapping[str, str], ask: Ask | None = None) -> Seconds | None:
    """Ask the scheduler of a job that was told nothing of its limit; None: no limit.

    *ask* gives what squeue or qstat says of a job.
    """
    if "SLURM_JOB_ID" in env:
        return _left_by_slurm(env, ask)
    return _left_by_gridengine(env, ask)


def _left_by_slurm(env: Mapping[str, str], ask: Ask | None) -> Seconds | None:
    """Ask Slurm: before 23.02 it tells a job nothing. Of many ranks one asks."""
    job = env["SLURM_JOB_ID"]
    if not job.isdecimal() or env.get("SLURM_PROCID", "0") != "0":
        return None
    if env.get("SLURM_JOB_END_TIME"):  # it told
        return None
    from weigh.dialect import slurm  # noqa: PLC0415 - only in such a job

    try:
        text = ask(job) if ask is not None else _squeue(job, env)
        left = slurm.parse_time(_as_asked_for(text.strip()))
    except WeighError:
        return None
    return None if left is None else float(left)


def question(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Give the command that asks the scheduler for it; None where nobody is asked."""
    asked: list[str] = []

    def note(job: str) -> str:
        asked.append(job)
        return ""

    asked_time_left(env, note)
    if not asked:
        return None
    return _by_squeue(asked[0]) if "SLURM_JOB_ID" in env else _by_qstat(asked[0])


def _as_asked_for(left: str) -> str:
    """Give squeue's time left, whose short form is minutes and seconds, with hours."""
    return f"00:{left}" if left.count(":") == 1 and "-" not in left else left


def _squeue(job: str, env: Mapping[str, str]) -> str:
    from weigh.scheduler.command import run  # noqa: PLC0415 - only in such a job

    return run(_by_squeue(job), cwd=None, env=env, timeout=PATIENCE).out


def _by_squeue(job: str) -> tuple[str, ...]:
    return "squeue", "-h", "-j", job, "-o", "%L"


def _left_by_gridengine(env: Mapping[str, str], ask: Ask | None) -> Seconds | None:
    """Ask Grid Engine, which tells no job. It began as its spool folder was written."""
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

    return run(_by_qstat(job), cwd=None, env=env, timeout=PATIENCE).out


def _by_qstat(job: str) -> tuple[str, ...]:
    return "qstat", "-j", job


def asking(env: Mapping[str, str]) -> Callable[[Seconds], str]:
    """Give what writes a time limit as the scheduler of this job is asked for it."""
    return _for_gridengine if "SGE_TASK_ID" in env else _for_slurm


def _for_slurm(seconds: Seconds) -> str:
    from weigh.dialect import slurm  # noqa: PLC0415 - only near a limit

    return f"--time={slurm.format_time(round(seconds))}"


def _for_gridengine(seconds: Seconds) -> str:
    from weigh.dialect import gridengine  # noqa: PLC0415 - only near a limit

    return f"-l h_rt={gridengine.format_time(round(seconds))}"
