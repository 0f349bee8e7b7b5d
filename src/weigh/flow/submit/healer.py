"""Small jobs that start when others have ended: the healer, and the notifier.

The healer runs ``weigh resume --heal`` on a node, so no process has to wait on a login
node. The notifier runs ``weigh status --notify``, for jobs that cannot notify by
themselves: a script of the user's own, or one that was killed without a warning.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from shlex import quote

import msgspec

from weigh._version import __version__
from weigh.errors import SchedulerError
from weigh.flow.submit.rounds import Round
from weigh.flow.submit.submit_script import (
    SCRIPT,
    make_log_folder,
    write_script,
)
from weigh.model.job import JobRequest, JobScript, Setup, Submitted
from weigh.model.record import SiteFlags
from weigh.render.submit_lines import SubmitAnswer
from weigh.schedulers import find_kind
from weigh.schedulers.protocol import Scheduler
from weigh.units import GIB, MIB, MINUTE

NAME = "-heal"
_NOTIFIER = "-notify"
_BY_HAND = "When weigh status shows that all have ended: weigh resume --heal {}"
_MEMORY = 200 * MIB
_ADDRESS_SPACE = 2 * GIB
_TIME = 10 * MINUTE


def send_healer(
    scheduler: Scheduler,
    jobs: Sequence[Submitted],
    sending: Round,
    *,
    env: Mapping[str, str],
) -> Submitted:
    """Submit the job that resumes *jobs*, of one plan, once all of them have ended.

    Raises:
        StoreError: a file cannot be written.
        SchedulerError: the scheduler refused it, or lets no node submit.
        SubmissionUnknownError: whether it was accepted is not known.
    """
    last = jobs[-1]
    why_not = scheduler.why_not_from_nodes(last.request.queue)
    if why_not is not None:
        raise SchedulerError(why_not)
    command = ("resume", "--heal", last.token)
    return _send(scheduler, jobs, sending, NAME, command, env)


def why_none(
    scheduler: Scheduler, queue: str | None, name: str, *, held: int
) -> tuple[str, ...]:
    """Return the note that no healer can follow job *name*; none where one can.

    *held* tasks wait for the healer to send them. A scheduler that does not answer is
    believed to let nodes submit.
    """
    try:
        why = scheduler.why_not_from_nodes(queue)
    except SchedulerError:
        return ()
    return () if why is None else (without_healer(why, name, held=held),)


def without_healer(why: str, name: str, *, held: int) -> str:
    """Write that no healer follows job *name*, why, and who has to go on."""
    what = "no job sends the others" if held else "no healer follows"
    return f"{what}: {why}. {_BY_HAND.format(name)}"


def send_notifier(
    scheduler: Scheduler,
    jobs: Sequence[Submitted],
    sending: Round,
    target: str,
    *,
    env: Mapping[str, str],
) -> Submitted:
    """Submit the job that notifies *target* of those of *jobs* that did not.

    Raises:
        StoreError: a file cannot be written.
        SchedulerError: the scheduler refused it.
        SubmissionUnknownError: whether it was accepted is not known.
    """
    command = ("status", "--notify", target, *(job.token for job in jobs))
    return _send(scheduler, jobs, sending, _NOTIFIER, command, env)


def notified(
    answer: SubmitAnswer, scheduler: Scheduler, sending: Round, env: Mapping[str, str]
) -> SubmitAnswer:
    """Submit the notifier of the jobs, if one is wanted; they do without if refused."""
    jobs = [job for job in (answer.job, *answer.more) if job is not None]
    kind = find_kind(scheduler.name)
    target = jobs[0].request.notify if jobs else None
    if target is None or (kind is not None and not kind.traits.waits):
        return answer
    try:
        notifier = send_notifier(scheduler, jobs, sending, target, env=env)
    except SchedulerError as error:
        note = f"no job follows that notifies: {error}"
        return msgspec.structs.replace(answer, notes=(*answer.notes, note))
    return msgspec.structs.replace(answer, notifier=notifier)


def _send(  # noqa: PLR0913, PLR0917 - what both have in common
    scheduler: Scheduler,
    jobs: Sequence[Submitted],
    sending: Round,
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
) -> Submitted:
    """Submit a small job that runs a command of weigh once *jobs* have ended."""
    last = jobs[-1]
    token, sent = sending.new_token()
    words = (sys.executable, "-P", "-m", "weigh", *command)
    script = JobScript(
        name=last.name + name,
        folder=sent,
        cwd=last.cwd,
        store=sending.sender.store,
        python=sys.executable,
        elements=1,
        together=1,
        request=_request(last, [job.id for job in jobs]),
        setup=_setup(last, env),
        version=__version__,
        token=token,
        sent=sent,
        command=" ".join(map(quote, words)),
    )
    path = os.path.join(sent, SCRIPT)
    make_log_folder(script)
    write_script(path, scheduler.render(script))
    draft = Submitted(
        scheduler=scheduler.name,
        id="",
        name=script.name,
        folder=script.folder,
        cwd=script.cwd,
        script=path,
        elements=1,
        tasks=0,
        submitted=round(time.time(), 3),
        request=script.request,
        setup=script.setup,
        token=token,
        round=last.round,
        is_healer=name == NAME,
        is_notifier=name == _NOTIFIER,
    )
    return sending.send(scheduler, draft, path)


def _request(last: Submitted, ids: Sequence[str]) -> JobRequest:
    """Return the request of a small job, in the queue and account of the tasks."""
    request = last.request
    kind = find_kind(last.scheduler)
    limits_space = kind is not None and kind.traits.address_space is not None
    return JobRequest(
        cpus=1,
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


def _setup(last: Submitted, env: Mapping[str, str]) -> Setup:
    """Return the environment of the tasks, and what reaches the scheduler from a node.

    A job does not inherit its variables everywhere. The node's own programs come first.
    """
    kind = find_kind(last.scheduler)
    kept = () if kind is None else sorted(kind.variables.kept)
    names = [name for name in ("XDG_CONFIG_HOME", *kept) if env.get(name)]
    lines = [f"export {name}={quote(env[name])}" for name in names]
    if env.get("PATH"):
        lines.append(f'export PATH="$PATH":{quote(env["PATH"])}')
    return msgspec.structs.replace(
        last.setup,
        lines=(*last.setup.lines, *lines),
        container=None,
        imports=(),
        checks=False,
    )
