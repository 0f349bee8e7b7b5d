"""The healer: a job that starts when others have ended.

It runs ``weigh resume --heal`` on a node, so no process has to wait on a login node.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from shlex import quote

from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import SchedulerError
from weigh.flow.here import Here
from weigh.flow.submit.rounds import SubmissionRound
from weigh.flow.submit.submit_script import SCRIPT, make_log_folder, write_script
from weigh.model.job import JobRequest, JobScript, JobSetup, SubmittedJob
from weigh.model.record import SiteFlags
from weigh.schedulers import find_kind
from weigh.schedulers.backend import Scheduler
from weigh.units import GIB, MIB, MINUTE

# requested for the one process of weigh resume that decides on a node
_MEMORY = 200 * MIB
# where it is limited: mapped libraries count as well
_ADDRESS_SPACE = 2 * GIB
_TIME = 10 * MINUTE


def send_healer(
    here: Here,
    scheduler: Scheduler,
    submitted_jobs: Sequence[SubmittedJob],
    sending: SubmissionRound,
) -> SubmittedJob:
    """Submit the job that resumes those of one plan once all of them have ended.

    It runs where and as the last of them did.

    Raises:
        StoreError: a file cannot be written.
        SchedulerError: the scheduler refused it, or nodes may not submit jobs.
        SubmissionUnknownError: whether it was accepted is not known.
    """
    # some sites allow sbatch and qsub on login nodes only
    why_not = scheduler.ask(
        scheduler.questions.why_not_from_nodes(submitted_jobs[-1].request.queue)
    )
    if why_not is not None:
        raise SchedulerError(why_not)
    last = submitted_jobs[-1]
    # by its token: schedulers use ids again
    words = ("resume", "--heal", "--confirm", last.token)
    token, sent = sending.new_token()
    script = JobScript(
        name=f"{last.name}-heal",
        folder=sent,
        cwd=last.cwd,
        store=sending.sender.store,
        python=sys.executable,
        elements=1,
        together=1,
        request=_healer_request(last, [job.id for job in submitted_jobs]),
        setup=_healer_setup(last, here.env),
        version=__version__,
        token=token,
        sent=sent,
        command=" ".join(map(quote, (sys.executable, "-P", "-m", "weigh", *words))),
    )
    path = os.path.join(sent, SCRIPT)
    make_log_folder(script)
    write_script(path, scheduler.render(script))
    draft = SubmittedJob(
        scheduler=scheduler.name,
        id="",
        name=script.name,
        folder=sent,
        cwd=script.cwd,
        script=path,
        elements=1,
        tasks=0,  # it runs none of the plan
        submitted=round(time.time(), 3),
        request=script.request,
        setup=script.setup,
        token=token,
        round=last.round,
        is_healer=True,
    )
    return sending.send(scheduler, draft, path)


def why_none(
    scheduler: Scheduler, queue: str | None, name: str, *, held: int
) -> tuple[str, ...]:
    """Return the note that no healer can follow job *name*; none where one can.

    *held* tasks wait for the healer to send them. A scheduler that does not answer is
    believed to let nodes submit.
    """
    try:
        why = scheduler.ask(scheduler.questions.why_not_from_nodes(queue))
    except SchedulerError:
        return ()
    return () if why is None else (without_healer(why, name, held=held),)


def without_healer(why: str, name: str, *, held: int) -> str:
    """Write that no healer follows job *name*, why, and who has to go on."""
    what = "no job sends the others" if held else "no healer follows"
    return (
        f"{what}: {why}. When weigh status shows that all have ended: "
        f"weigh resume --heal {name}"
    )


def _healer_request(last: SubmittedJob, ids: Sequence[str]) -> JobRequest:
    """Return the request of a small job, in the queue and account of the tasks."""
    request, kind = last.request, find_kind(last.scheduler)
    limits_space = kind is not None and kind.traits.address_space is not None
    return JobRequest(
        memory=_MEMORY,
        virtual_memory=_ADDRESS_SPACE if limits_space else None,
        time_limit=_TIME,
        queue=request.queue,
        account=request.account,
        qos=request.qos,
        complexes=request.complexes,
        site=SiteFlags(per_cpu=request.site.per_cpu),
        after_end=tuple(ids),
    )


def _healer_setup(last: SubmittedJob, env: Mapping[str, str]) -> JobSetup:
    """Return the environment of the tasks, and what reaches the scheduler from a node.

    A job does not inherit its variables everywhere. The node's own programs come first.
    """
    kind = find_kind(last.scheduler)
    # what selects the cluster, such as SGE_ROOT: without it qsub finds none
    kept = () if kind is None else sorted(kind.variables.kept)
    lines = [
        f"export {name}={quote(env[name])}"
        for name in ("XDG_CONFIG_HOME", *kept)
        if env.get(name)
    ]
    if env.get("PATH"):
        lines.append(f'export PATH="$PATH":{quote(env["PATH"])}')
    # the tasks' own lines first, so PATH is extended after them
    lines = [*last.setup.lines, *lines]
    # weigh itself is not in the tasks' container, and imports none of their modules
    return replace(
        last.setup, lines=tuple(lines), container=None, imports=(), checks=False
    )
