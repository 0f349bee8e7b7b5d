"""``weigh resume --ahead``: an element of a round that was sent ahead runs its tasks.

The element that starts first decides what is left and fits in what was granted, as a
healer does, and writes that as a round under the job's own id. Each element then runs
its part of it, or ends at once.
"""

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from weigh.errors import SchedulerError, StoreError, UsageError
from weigh.flow.follow.named import named_jobs
from weigh.flow.follow.resume import resume
from weigh.flow.submit.rounds import Sendings, link_new, reaching
from weigh.flow.submit.submit_script import AHEAD_SCRIPT, LOGS
from weigh.model.job import Submitted
from weigh.planning.resume_policy import ResumeOptions
from weigh.render.resume_lines import Resumed
from weigh.schedulers.protocol import Scheduler
from weigh.store import jobs as jobs_file
from weigh.store import location
from weigh.store.lines import UNREADABLE
from weigh.units import Seconds

_BASH = "/bin/bash"
_LEADER = "leader"
_SIZE = "elements"
_LOOK: Seconds = 15.0  # between looks whether the element that decides still runs
_TO_DECIDE: Seconds = 540.0  # longer than one that decides waits for accounting
_PAUSE: Seconds = 0.2


def run_ahead(  # noqa: PLR0913 - keyword-only past the third
    name: str,
    token: str,
    element: int,
    *,
    cwd: str,
    env: Mapping[str, str],
    notify: Callable[[str], None],
    show: Callable[[Resumed], None],
) -> None:
    """Decide on the round, if this element is the first; then run its tasks.

    Does not return where it has tasks: bash takes the place of this process. *show*
    receives what was decided, in one element.

    Raises:
        UsageError: no job with this *token* was sent ahead.
        SchedulerError: the scheduler does not answer.
        StoreError: the plan's directory cannot be written.
    """
    begun = time.monotonic()
    root = location.locate(cwd, env)
    known = jobs_file.read_jobs(root)
    job = named_jobs(known, name, root=root, env=env)[-1]
    first = jobs_file.chain_of(known, job)[0]
    reach = reaching(root, env)
    own = Sendings(first.folder, root=root, reach=reach).healer_of(token)
    if own is None:
        raise UsageError(f"{token}: no job of {first.name} was sent ahead under it")
    scheduler = reach(own.scheduler)
    size = None
    for turn in itertools.count(1):
        leader = os.path.join(own.folder, f"{_LEADER}.{turn}")
        if link_new(leader, b"%d" % element):
            size = _lead(name, own, scheduler, cwd, env, notify, show)
            _cancel_unused(own, size, element, scheduler)
            break
        size = _wait(own, leader, element, scheduler)
        if size is not None:
            break
    if size is not None and element < size:
        _become(os.path.join(own.folder, AHEAD_SCRIPT), begun)


def _lead(  # noqa: PLR0913, PLR0917 - what the function above has
    name: str,
    own: Submitted,
    scheduler: Scheduler,
    cwd: str,
    env: Mapping[str, str],
    notify: Callable[[str], None],
    show: Callable[[Resumed], None],
) -> int:
    """Decide on the round; return how many elements have tasks.

    The element before that decided may have died after it: then its round counts.
    """
    options = ResumeOptions(heal=True)
    answer = resume(name, options, cwd=cwd, env=env, notify=notify, own=own)
    known = jobs_file.read_jobs(location.locate(cwd, env))
    ours = [job for job in known if job.token == own.token]
    for job in ours:
        _link_logs(job, own, scheduler)
    size = sum(job.elements for job in ours)
    link_new(os.path.join(own.folder, _SIZE), b"%d" % size)
    show(answer)
    if answer.stopped is not None:
        first = jobs_file.chain_of(known, answer.job)[0].folder
        root = location.locate(cwd, env)
        sendings = Sendings(first, root=root, reach=reaching(root, env))
        for later in sendings.last_healers():
            if later.id != own.id:  # it will have nothing to do
                with suppress(SchedulerError):
                    scheduler.cancel(later, None)
    return size


def _cancel_unused(
    own: Submitted, size: int, element: int, scheduler: Scheduler
) -> None:
    """Cancel the elements without tasks that have not started, but not this one."""
    unused = [place for place in range(size, own.elements) if place != element]
    if unused:
        with suppress(SchedulerError):
            scheduler.cancel(own, unused)


def _wait(
    own: Submitted, leader: str, element: int, scheduler: Scheduler
) -> int | None:
    """Wait until it is decided how many elements have tasks; return how many.

    Return None if the element that decides has ended before it did: another one may.
    """
    try:
        with open(leader, "rb") as file:
            place = int(file.read())
    except (OSError, ValueError):
        place = element
    end = time.monotonic() + _TO_DECIDE
    while time.monotonic() < end:
        looked = time.monotonic()
        while time.monotonic() - looked < _LOOK:
            size = _read_size(own.folder)
            if size is not None:
                return size
            time.sleep(_PAUSE)
        if place == element:  # it was requeued
            return None
        with suppress(SchedulerError):
            if scheduler.states([own], fresh=True).of(own, place).is_final:
                return None
    return None


def _link_logs(job: Submitted, own: Submitted, scheduler: Scheduler) -> None:
    """Let the logs of the round's elements be found where those of any job are."""
    for place in range(job.elements):
        there = scheduler.log_name(own.id, place, is_array=own.elements > 1)
        here = scheduler.log_name(job.id, place, is_array=job.elements > 1)
        with suppress(OSError):
            os.symlink(
                os.path.join(own.folder, LOGS, there),
                os.path.join(job.folder, LOGS, here),
            )


def _read_size(folder: str) -> int | None:
    """Return how many elements have tasks; None before that is decided."""
    try:
        with open(os.path.join(folder, _SIZE), "rb") as file:
            return msgspec.json.decode(file.read(), type=int)
    except (OSError, *UNREADABLE):
        return None


def _become(script: str, begun: Seconds) -> None:
    """Run the script instead of this process; its clock goes on where ours is.

    Raises:
        StoreError: bash cannot be started.
    """
    spent = math.ceil(time.monotonic() - begun) + 1
    sys.stdout.flush()
    env = {**os.environ, "SECONDS": str(spent)}
    try:
        os.execve(_BASH, [_BASH, script], env)  # noqa: S606 - as the scheduler does
    except OSError as error:
        raise StoreError(f"cannot run {script}: {error.strerror}") from error
