"""The schedulers: a new one is one folder and one line in the table here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weigh.schedulers.gridengine import GRIDENGINE
from weigh.schedulers.slurm import SLURM

if TYPE_CHECKING:  # weigh run needs only the text of the schedulers
    from weigh.model.record import Allocation, Job
    from weigh.schedulers.protocol import Kind, Steps
    from weigh.units import Seconds

_ALL: "tuple[Kind, ...]" = (SLURM, GRIDENGINE)
KINDS: "dict[str, Kind]" = {kind.name: kind for kind in _ALL}


def find_kind(name: str | None) -> "Kind | None":
    """Return the scheduler called *name*, ``slurm`` or ``slurm@gpu``; None if unknown.

    ``slurm@gpu`` is one of several clusters that run Slurm.
    """
    return KINDS.get((name or "").partition("@")[0])


def kind_or_first(name: str | None) -> "Kind":
    """Return the scheduler called *name*; the first of the table if it is unknown."""
    return find_kind(name) or _ALL[0]


def kind_of_job(env: Mapping[str, str]) -> "Kind | None":
    """Return the scheduler whose job this process runs in; None outside a job."""
    return next((kind for kind in _ALL if kind.job_variable in env), None)


def job_from_environment(env: Mapping[str, str]) -> "Job | None":
    """Read the id of the job that this process runs in; None outside a job."""
    found = (kind.text.job_from_environment(env) for kind in _ALL)
    return next((job for job in found if job is not None), None)


def end_from_environment(env: Mapping[str, str]) -> "Seconds | None":
    """Read when this job's time limit ends, in seconds since the epoch, if set."""
    found = (kind.text.end_time(env) for kind in _ALL)
    return next((end for end in found if end is not None), None)


def facts_from_environment(
    env: Mapping[str, str],
) -> "tuple[Allocation | None, Job | None]":
    """Read this node's allocation and the id of the job; None outside a job."""
    kind = kind_of_job(env)
    if kind is None:
        return None, None
    text = kind.text
    return text.allocation_from_environment(env), text.job_from_environment(env)


def starters_of(env: Mapping[str, str]) -> frozenset[str]:
    """Return the commands that start processes of a job which are not below them.

    They are of the scheduler whose job this is; outside a job, of all schedulers.
    """
    inside = kind_of_job(env)
    kinds = _ALL if inside is None else (inside,)
    return frozenset(kind.starts.split()[0] for kind in kinds)


def steps_of(env: Mapping[str, str]) -> "Steps | None":
    """Return how to start processes on all nodes of a job; None if that is unknown.

    Outside a job it is for jobs that a launcher may allocate itself.
    """
    inside = kind_of_job(env)
    kinds = _ALL if inside is None else (inside,)
    return next((kind.steps for kind in kinds if kind.steps is not None), None)
