"""Jobs that start when others have ended: healers, rounds sent ahead, the notifier.

The healer runs ``weigh resume --heal`` on a node, so no process has to wait on a login
node. Where nodes may not submit, later rounds are sent ahead: arrays with more memory
and time that run what the round before them left. The notifier runs ``weigh status
--notify``, for jobs that cannot notify by themselves: a script of the user's own, or
one that was killed without a warning.
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

import msgspec

from weigh._version import __version__
from weigh.errors import SchedulerError, UsageError
from weigh.flow.site.schedulers import kind_of
from weigh.flow.site.schedulers import reaching as reaching_cluster
from weigh.flow.submit.checks import check_request
from weigh.flow.submit.rounds import Round
from weigh.flow.submit.submit_script import (
    AHEAD_SCRIPT,
    AHEAD_SIZE,
    SCRIPT,
    make_log_folder,
    write_script,
)
from weigh.model.job import Heal, JobRequest, JobScript, Setup, Submitted
from weigh.model.plan import Plan
from weigh.model.record import SiteFlags
from weigh.planning.resume_policy import larger
from weigh.render.submit_lines import SubmitAnswer
from weigh.schedulers import find_kind
from weigh.schedulers.protocol import Scheduler
from weigh.units import GIB, MIB, MINUTE

NAME = "-heal"
_NOTIFIER = "-notify"
_BY_HAND = "When weigh status shows that all have ended: weigh resume --heal {}"
# an element without tasks ends at once; one whose tasks were not recorded fails
_AHEAD = (
    f"{{{{ if cd {{0}} && [ -e {AHEAD_SIZE} ]; then "
    f'[ "$element" -ge "$(cat {AHEAD_SIZE})" ] || '
    f'exec env SECONDS="$SECONDS" bash {AHEAD_SCRIPT}; '
    f"else [ ! -e {AHEAD_SCRIPT} ]; fi; }}}}"
)
_MEMORY = 200 * MIB
_ADDRESS_SPACE = 2 * GIB
_TIME = 10 * MINUTE


def _send_healer(
    scheduler: Scheduler,
    last: Submitted,
    ids: Sequence[str],
    sending: Round,
    env: Mapping[str, str],
) -> Submitted:
    script = _script(last, ids, sending, NAME, env)
    script = _with_command(script, ("resume", "--heal", last.token))
    return _send(scheduler, script, last, sending)


def send_following(
    scheduler: Scheduler,
    jobs: Sequence[Submitted],
    plan: Plan | None,
    sending: Round,
    *,
    env: Mapping[str, str],
) -> tuple[Submitted | None, tuple[Submitted, ...]]:
    """Submit the job that resumes *jobs*, of one plan, once all of them have ended.

    Where nodes may not submit, the later rounds are sent with it.

    Raises:
        StoreError: a file cannot be written.
        SchedulerError: the scheduler refused it, or nobody can send the next round.
        SubmissionUnknownError: whether it was accepted is not known.
    """
    last = jobs[-1]
    why_not = scheduler.why_not_from_nodes(last.request.queue)
    if why_not is None:
        ids = [job.id for job in jobs]
        return _send_healer(scheduler, last, ids, sending, env), ()
    if not can_send_ahead(scheduler.name, plan, is_staged=last.staging is not None):
        raise SchedulerError(why_not)
    ahead, healer = send_ahead(scheduler, jobs, sending, env=env)
    return healer, tuple(ahead)


def can_send_ahead(scheduler: str, plan: Plan | None, *, is_staged: bool) -> bool:
    """Return whether rounds of *plan* can be sent ahead where nodes may not submit.

    A script of the user's own has no plan; held tasks have no size yet; elements whose
    results are copied back continue those before, task by task.
    """
    kind = find_kind(scheduler)
    asks = kind is not None and kind.traits.nodes_ask and not is_staged
    return asks and plan is not None and not plan.held


def send_ahead(
    scheduler: Scheduler,
    jobs: Sequence[Submitted],
    sending: Round,
    *,
    env: Mapping[str, str],
) -> tuple[list[Submitted], Submitted | None]:
    """Submit the later rounds of *jobs*, and a healer that sums up after the last.

    Each is an array with more memory and time, as far as the limits of healing and the
    cluster allow, after a small job that decides what is left and fits in it, and
    cancels the elements without tasks.

    Raises:
        StoreError: a file cannot be written.
        SchedulerError: the scheduler refused all of them.
        SubmissionUnknownError: whether one was accepted is not known.
    """
    last, heal = jobs[-1], sending.heal or Heal()
    # tasks may need an element each that shared one; those without tasks are cancelled
    elements = 2 * sum(job.elements for job in jobs)
    elements = min(elements, scheduler.array_limit(elements) or elements)
    ids = tuple(job.id for job in jobs)
    sent: list[Submitted] = []
    request = last.request
    try:
        for number in range(1, heal.max_rounds - last.round + 1):
            requests = list(larger(last.request, request, heal, number))
            if not requests:
                break
            name = f"-round{last.round + number}"
            tasks = _script(last, (), sending, name, env)
            words = ("resume", "--heal", "--ahead", tasks.token, last.token)
            decides = _script(last, ids, sending, f"{name}{NAME}", env)
            before = _send(scheduler, _with_command(decides, words), last, sending)
            ids = (before.id,)
            tasks = msgspec.structs.replace(
                tasks,
                command=_AHEAD.format(quote(tasks.sent)),
                elements=-(-elements // 2 ** (number - 1)),
                request=_request(last, ids),
            )
            one = _send_first(scheduler, tasks, requests, last, sending, env)
            if one is None:
                break
            sent.append(one)
            request, ids = one.request, (one.id,)
        return sent, _send_healer(scheduler, last, ids, sending, env)
    except SchedulerError:
        if not sent:
            raise
        return sent, None


def _send_first(  # noqa: PLR0913, PLR0917 - a loop of the function above
    scheduler: Scheduler,
    script: JobScript,
    requests: Iterable[JobRequest],
    last: Submitted,
    sending: Round,
    env: Mapping[str, str],
) -> Submitted | None:
    """Submit a round ahead with the first request that is accepted; None if none is."""
    after = script.request.after_end
    for request in requests:
        script = msgspec.structs.replace(
            script,
            request=msgspec.structs.replace(
                request, after_end=after, after=(), notify=None, mail=None
            ),
        )
        try:
            if last.setup.checks:
                check_request(
                    script,
                    scheduler.render(script),
                    scheduler=kind_of(scheduler.name),
                    env=reaching_cluster(scheduler.name, env),
                    elements=script.elements,
                )
            return _send(scheduler, script, last, sending)
        except (UsageError, SchedulerError):
            continue
    return None


def why_none(  # noqa: PLR0913 - keyword-only past the third
    scheduler: Scheduler,
    queue: str | None,
    name: str,
    *,
    held: int,
    plan: Plan | None = None,
    is_staged: bool = False,
) -> tuple[str, ...]:
    """Return the note that no healer can follow job *name*; none where one can.

    *held* tasks wait for the healer to send them. Rounds of a *plan* may be sent ahead.
    A scheduler that does not answer is believed to let nodes submit.
    """
    try:
        why = scheduler.why_not_from_nodes(queue)
    except SchedulerError:
        return ()
    if why is None:
        return ()
    if can_send_ahead(scheduler.name, plan, is_staged=is_staged):
        return (f"{why}: the later rounds are sent ahead",)
    return (without_healer(why, name, held=held),)


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
    words = ("status", "--notify", target, *(job.token for job in jobs))
    script = _script(jobs[-1], [job.id for job in jobs], sending, _NOTIFIER, env)
    return _send(scheduler, _with_command(script, words), jobs[-1], sending)


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


def _script(
    last: Submitted,
    ids: Sequence[str],
    sending: Round,
    name: str,
    env: Mapping[str, str],
) -> JobScript:
    """Return the script of a small job that starts once the jobs *ids* have ended.

    It runs where and as *last* did.
    """
    token, sent = sending.new_token()
    return JobScript(
        name=last.name + name,
        folder=sent,
        cwd=last.cwd,
        store=sending.sender.store,
        python=sys.executable,
        elements=1,
        together=1,
        request=_request(last, ids),
        setup=_setup(last, env),
        version=__version__,
        token=token,
        sent=sent,
    )


def _with_command(script: JobScript, words: Sequence[str]) -> JobScript:
    """Return the script with a command of weigh."""
    command = " ".join(map(quote, (script.python, "-P", "-m", "weigh", *words)))
    return msgspec.structs.replace(script, command=command)


def _send(
    scheduler: Scheduler, script: JobScript, last: Submitted, sending: Round
) -> Submitted:
    """Submit a job that follows *last*."""
    path = os.path.join(script.sent, SCRIPT)
    make_log_folder(script)
    write_script(path, scheduler.render(script))
    draft = Submitted(
        scheduler=scheduler.name,
        id="",
        name=script.name,
        folder=script.folder,
        cwd=script.cwd,
        script=path,
        elements=script.elements,
        tasks=0,
        submitted=round(time.time(), 3),
        request=script.request,
        setup=script.setup,
        token=script.token,
        round=last.round,
        is_healer=not script.name.endswith(_NOTIFIER),
        is_notifier=script.name.endswith(_NOTIFIER),
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
