"""``--prefetch``: a CPU job that downloads what the job needs, before it."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import SchedulerError, UsageError
from weigh.flow.follow.view import look
from weigh.flow.plan.plan import FOLDER
from weigh.flow.site import schedulers
from weigh.flow.submit.submit_script import LOGS
from weigh.model.job import JobScript, Submitted
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.store import jobs as jobs_file
from weigh.units import Seconds

NAME = "-prefetch"
MEMORY = "4G"
_PACE: Seconds = 10.0
_OPEN = frozenset({"PENDING", "RUNNING", "UNKNOWN"})


def where_to(
    scheduler: str | None, cluster: str | None, *, cwd: str, env: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """Return the scheduler's name, with the cluster's, and the environment it needs.

    Raises:
        UsageError: the settings name no such cluster, or it is another scheduler's.
    """
    if cluster is None:
        return scheduler or schedulers.at_hand(env), env
    named = schedulers.find_cluster(cluster, cwd, env)
    if scheduler not in {None, named.scheduler}:
        raise UsageError(f"cluster {cluster} is one of {named.scheduler}: leave --on")
    name = f"{named.scheduler}{schedulers.CLUSTER_MARK}{cluster}"
    return name, {**env, **named.env}


def prefetch_cluster(
    cluster: str | None, *, cwd: str, env: Mapping[str, str]
) -> str | None:
    """Name the cluster that downloads for *cluster*: itself, unless settings say so."""
    if cluster is None:
        return None
    return schedulers.find_cluster(cluster, cwd, env).prefetch or cluster


def free_name(name: str, cwd: str) -> str:
    """Name the prefetch of a job, as no plan is called yet."""
    free, number = f"{name}{NAME}", 1
    while os.path.lexists(os.path.join(cwd, FOLDER, free)):
        number += 1
        free = f"{name}{NAME}-{number}"
    return free


def after_prefetch(parts: Sequence[JobScript], first: Submitted) -> list[JobScript]:
    """Have a job begin once *first* has succeeded; both are at one scheduler."""
    return [
        msgspec.structs.replace(
            part,
            wanted=msgspec.structs.replace(
                part.wanted, after=(*part.wanted.after, first.id)
            ),
            needs=_needs(first),
        )
        for part in parts
    ]


def _needs(first: Submitted) -> tuple[str, ...]:
    """Return the log to look into where the scheduler asks only whether it has ended."""
    if schedulers.kind_of(first.scheduler) != gridengine_commands.NAME:
        return ()
    name = gridengine_commands.log_name(first.id, 0, is_array=False)
    return (os.path.join(first.folder, LOGS, name),)


def await_prefetch(
    first: Submitted,
    *,
    root: str,
    env: Mapping[str, str],
    say: Callable[[str], None],
    sleep: Callable[[Seconds], None] = time.sleep,
) -> None:
    """Wait here until *first* has succeeded: its cluster is not the job's.

    Raises:
        SchedulerError: it has not.
    """
    said = ""
    while True:
        view = next(iter(look([first], jobs_file.read_jobs(root), root=root, env=env)))
        states = [task.state for task in view.tasks]
        if all(state == "COMPLETED" for state in states):
            return
        if not _OPEN & set(states):
            raise SchedulerError(
                f"prefetch job {first.id} has ended as {states[0].lower()}, so the job "
                f"was not submitted (weigh logs {first.id})"
            )
        if states[0] != said:
            said = states[0]
            say(
                f"prefetch job {first.id} is {said.lower()} on {first.scheduler}, "
                "another cluster: waiting for it"
            )
        sleep(_PACE)
