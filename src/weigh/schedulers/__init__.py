"""The schedulers: a new one is one file and one line in the table here."""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # weigh run needs only the text of the schedulers
    from weigh.model.record import Allocation, RecordedJob
    from weigh.schedulers.kind import SchedulerKind, StepStarter
    from weigh.units import Seconds

# a scheduler's name, the variable that is set in its jobs, its command to submit
_TABLE = (
    ("slurm", "SLURM_JOB_ID", "sbatch"),
    ("gridengine", "SGE_TASK_ID", "qsub"),
    ("htcondor", "_CONDOR_JOB_AD", "condor_submit"),
)
JOB_VARIABLES = {name: variable for name, variable, _ in _TABLE}
SUBMITS = {name: command for name, _, command in _TABLE}


# a mapping that imports late: a run in a job needs one scheduler, most commands none
class _SchedulerKinds(Mapping[str, "SchedulerKind"]):
    """The schedulers of the table by name, imported when they are used."""

    def __getitem__(self, name: str) -> "SchedulerKind":
        if name not in SUBMITS:
            raise KeyError(name)
        return cast("SchedulerKind", import_module(f"weigh.schedulers.{name}").KIND)

    def __contains__(self, name: object) -> bool:
        return name in SUBMITS

    def __iter__(self) -> Iterator[str]:
        return iter(SUBMITS)

    def __len__(self) -> int:
        return len(SUBMITS)


KINDS = _SchedulerKinds()


def find_kind(name: str | None) -> "SchedulerKind | None":
    """Return the scheduler called *name*; None if unknown."""
    return KINDS.get(name or "")


def kind_or_first(name: str | None) -> "SchedulerKind":
    """Return the scheduler called *name*; the first of the table if it is unknown."""
    return find_kind(name) or KINDS[next(iter(SUBMITS))]


def schedulers_on_path(env: Mapping[str, str]) -> list[str]:
    """Return the schedulers whose command to submit is on PATH."""
    folders = env.get("PATH", "").split(os.pathsep)
    return [
        name
        for name, command in SUBMITS.items()
        if any(os.access(os.path.join(one, command), os.X_OK) for one in folders if one)
    ]


def installed_scheduler(env: Mapping[str, str]) -> str:
    """Return the first scheduler on PATH; the first of the table if none is."""
    return next(iter(schedulers_on_path(env)), next(iter(SUBMITS)))


def kind_of_job(env: Mapping[str, str]) -> "SchedulerKind | None":
    """Return the scheduler whose job this process runs in; None outside a job."""
    # in the order of the table: a job inside a job is that of the first scheduler
    found = (name for name, variable in JOB_VARIABLES.items() if variable in env)
    return find_kind(next(found, None))


def job_from_environment(env: Mapping[str, str]) -> "RecordedJob | None":
    """Read the id of the job that this process runs in; None outside a job."""
    return facts_from_environment(env)[1]


def end_from_environment(env: Mapping[str, str]) -> "Seconds | None":
    """Read when this job's time limit ends, in seconds since the epoch, if set."""
    kind = kind_of_job(env)
    return None if kind is None else kind.text.end_time(env)


def facts_from_environment(
    env: Mapping[str, str],
) -> "tuple[Allocation | None, RecordedJob | None]":
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
    kinds = [*KINDS.values()] if inside is None else [inside]
    return frozenset(kind.starts.split()[0] for kind in kinds)


def steps_of(env: Mapping[str, str]) -> "StepStarter | None":
    """Return how to start processes on all nodes of a job; None if that is unknown.

    Outside a job it is for jobs that a launcher may allocate itself.
    """
    inside = kind_of_job(env)
    kinds = [*KINDS.values()] if inside is None else [inside]
    return next((kind.steps for kind in kinds if kind.steps is not None), None)
