"""Jobs of this user that were submitted from other folders, or without weigh."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from weigh.errors import FormatError, SchedulerError, UsageError
from weigh.flow.here import Here
from weigh.flow.site import schedulers
from weigh.model.job import SubmittedJob
from weigh.model.record import State
from weigh.render.status_lines import QueuedElsewhere
from weigh.schedulers import KINDS
from weigh.schedulers.command import run_scheduler_command
from weigh.store import jobs as jobs_file
from weigh.store.jobs import known_stores
from weigh.units import Seconds

# schedulers that do not answer by then are left out of the list
_TO_ASK: Seconds = 20.0
# names that mean jobs of this folder's store
_WORDS = frozenset({jobs_file.LAST, "all"})


def store_of_jobs(here: Here, names: Sequence[str]) -> str:
    """Return the store with the jobs called *names*: that of this folder or another.

    Another store counts only if the name means a job in one store alone.
    """
    own = here.root
    # a path names a plan of this folder, whatever is called so elsewhere
    if (
        not names
        or _WORDS & set(names)
        or any(_is_path_in_folder(here.cwd, name) for name in names)
    ):
        return own
    if any(jobs_file.jobs_called(jobs_file.read_jobs(own), name) for name in names):
        return own
    found = {
        root
        for name in names
        for root in other_stores(own, here.env)
        if jobs_file.jobs_called(jobs_file.read_jobs(root), name)
    }
    return found.pop() if len(found) == 1 else own


def _is_path_in_folder(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name)) or os.path.exists(
        os.path.join(folder, "plan", name)
    )


def other_stores(here: str, env: Mapping[str, str]) -> list[str]:
    """Return the other stores of this user from which jobs were submitted."""
    return [root for root in known_stores(env) if root != here]


def queued_without_weigh(
    known_jobs: Sequence[SubmittedJob], env: Mapping[str, str]
) -> Iterator[QueuedElsewhere]:
    """Yield the user's jobs in the queues of the schedulers that weigh did not send."""
    user = schedulers.current_user()
    for name in schedulers.available_schedulers(env):
        if name not in KINDS:  # this machine: weigh started all its jobs
            continue
        backend = KINDS[name].backend
        ours = {
            job.id
            for job in known_jobs
            if schedulers.kind_of_cluster_name(job.scheduler) == name
        }
        try:
            ran = run_scheduler_command(
                backend.queue_argv(user), env=env, cwd=None, timeout=_TO_ASK
            )
            listed = backend.parse_queue(ran.out) if ran.code == 0 else {}
        # the list is an extra of status: what cannot be asked is left out
        except (SchedulerError, FormatError):
            continue
        for job, elements in sorted(listed.items()):
            states = Counter[State](
                state.state for state in elements.values() if not state.is_final
            )
            if states and job not in ours:
                yield QueuedElsewhere(scheduler=name, job=job, elements=states)


def refuse_all_from_here(here: str, env: Mapping[str, str]) -> None:
    """Refuse ``weigh cancel all`` in a folder without jobs; name those elsewhere.

    Raises:
        UsageError: always.
    """
    jobs = [
        job
        for root in other_stores(here, env)
        for job in jobs_file.read_jobs(root)[-3:]
    ]
    newest = sorted(jobs, key=lambda job: -job.submitted)[:3]
    named = ", ".join(f"{job.id} ({job.name}, {job.cwd})" for job in newest)
    raise UsageError(
        f"no job was submitted from here; yours elsewhere: {named} "
        "(weigh status lists them)"
        if named
        else "no job was submitted from here: weigh submit PLAN"
    )
