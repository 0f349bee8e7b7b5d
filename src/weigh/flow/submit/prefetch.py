"""``weigh submit --prefetch``: a job without a GPU that downloads data first."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import SchedulerError
from weigh.flow.follow.view import look
from weigh.flow.plan.directory import FOLDER
from weigh.flow.site import schedulers
from weigh.model.job import JobScript, Setup, Submitted
from weigh.schedulers import find_kind
from weigh.store import jobs as jobs_file
from weigh.units import Seconds

NAME = "-prefetch"
MEMORY = "4G"
_PACE: Seconds = 10.0
_OPEN = frozenset({"PENDING", "RUNNING", "UNKNOWN"})


def prefetch_cluster(
    cluster: str | None, *, cwd: str, env: Mapping[str, str]
) -> str | None:
    """Return the cluster that downloads for *cluster*: by the settings, else itself."""
    if cluster is None:
        return None
    return schedulers.find_cluster(cluster, cwd, env).prefetch or cluster


def setup_before(setup: Setup, cwd: str) -> Setup:
    """Return the set-up of the prefetch job, which may be what makes the environment.

    It activates none whose folder is not there yet, and imports nothing from it.
    """

    def there(path: str | None) -> str | None:
        is_folder = path is not None and os.sep in path
        return None if is_folder and not os.path.isdir(_below(cwd, path)) else path

    return msgspec.structs.replace(
        setup, imports=(), venv=there(setup.venv), conda=there(setup.conda)
    )


def _below(cwd: str, path: str | None) -> str:
    return os.path.join(cwd, os.path.expanduser(path or ""))


def free_name(name: str, cwd: str) -> str:
    """Return a name for the prefetch job that no plan has yet."""
    free, number = f"{name}{NAME}", 1
    while os.path.lexists(os.path.join(cwd, FOLDER, free)):
        number += 1
        free = f"{name}{NAME}-{number}"
    return free


def after_prefetch(parts: Sequence[JobScript], first: Submitted) -> list[JobScript]:
    """Return the parts, to be started after *first* succeeded; same scheduler."""
    return [
        msgspec.structs.replace(
            part,
            request=msgspec.structs.replace(
                part.request, after=(*part.request.after, first.id)
            ),
            needs=(*part.needs, first.token),
        )
        for part in parts
    ]


def await_prefetch(
    first: Submitted,
    *,
    root: str,
    env: Mapping[str, str],
    notify: Callable[[str], None],
    sleep: Callable[[Seconds], None] = time.sleep,
) -> None:
    """Wait in this process until *first* has succeeded.

    It is on another cluster, or its scheduler lets no job wait for it.

    Raises:
        SchedulerError: it failed.
    """
    reported = ""
    kind = find_kind(first.scheduler)
    where = f"on another cluster, {first.scheduler}"
    if kind is not None and not kind.traits.waits:
        where = f"({kind.title} lets no job wait for another)"
    while True:
        view = next(iter(look([first], jobs_file.read_jobs(root), root=root, env=env)))
        states = [task.state for task in view.tasks]
        if all(state == "COMPLETED" for state in states):
            return
        if not _OPEN & set(states):
            raise SchedulerError(
                f"prefetch job {first.id} ended as {states[0].lower()}, so the job "
                f"was not submitted (weigh logs {first.id})"
            )
        if states[0] != reported:
            reported = states[0]
            notify(f"waiting for prefetch job {first.id}: {reported.lower()} {where}")
        sleep(_PACE)
