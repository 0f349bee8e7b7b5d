"""``weigh resume --ahead``: decide which tasks run in a round that was sent ahead.

A small job decides as a healer does, before the array of the round starts. What is left
and fits in its elements becomes a round under the array's own id.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from weigh.errors import SchedulerError
from weigh.flow.follow.resume import chain_of_plan, resume
from weigh.flow.submit.rounds import Sendings, link_new, reaching
from weigh.flow.submit.submit_script import AHEAD_SIZE, LOGS
from weigh.model.job import Submitted
from weigh.planning.resume_policy import ResumeOptions
from weigh.render.resume_lines import Resumed
from weigh.schedulers.protocol import Scheduler
from weigh.store import location
from weigh.units import Seconds

_TO_SEND: Seconds = 120.0
_PAUSE: Seconds = 1.0


def decide_ahead(
    name: str,
    token: str,
    *,
    cwd: str,
    env: Mapping[str, str],
    notify: Callable[[str], None],
) -> Resumed:
    """Decide on the round of the job with this *token*; cancel what will not be used.

    Raises:
        UsageError: there is no job *name*.
        SchedulerError: the scheduler does not answer, or no such job was sent.
        StoreError: the plan's directory cannot be written.
    """
    root = location.locate(cwd, env)
    reach = reaching(root, env)
    first = chain_of_plan(name, root, env)[0]
    sendings = Sendings(first.folder, root=root, reach=reach)
    own = _sent(sendings, token)
    options = ResumeOptions(heal=True)
    answer = resume(name, options, cwd=cwd, env=env, notify=notify, own=own)
    scheduler = reach(own.scheduler)
    jobs = [one.job for one in answer.again if one.job is not None]
    for one in jobs:
        _link_logs(one, own, scheduler)
    size = sum(one.elements for one in jobs)
    if size:
        link_new(os.path.join(own.folder, AHEAD_SIZE), b"%d" % size)
    with suppress(SchedulerError):
        if size < own.elements:
            scheduler.cancel(own, range(size, own.elements))
    if answer.stopped is not None:
        followers = sendings.last_healers()
        for later in followers[1 + followers.index(own) :]:
            with suppress(SchedulerError):
                scheduler.cancel(later, None)
    return answer


def _sent(sendings: Sendings, token: str) -> Submitted:
    """Return the job with this token; wait while it is being sent.

    Raises:
        SchedulerError: it was not sent.
    """
    end = time.monotonic() + _TO_SEND
    while True:
        is_over = all(one.is_over() for one in sendings.rounds())
        for one in sendings.healers():
            if one.token == token:
                return one
        if is_over or time.monotonic() > end:
            raise SchedulerError("the array of this round was not sent")
        time.sleep(_PAUSE)


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
