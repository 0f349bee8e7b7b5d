"""``weigh resume`` of a job whose script is the user's own: only its failed indices."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.flow.follow.named import is_foreign
from weigh.flow.follow.tasks import tail_of
from weigh.flow.follow.view import View, merged
from weigh.flow.site import schedulers
from weigh.flow.submit.own_script import (
    Draft,
    ScriptOptions,
    changed_since,
    draft_of,
    reads_whole_array,
    send,
)
from weigh.flow.submit.rounds import Sendings
from weigh.model.job import (
    OUTCOME_UNKNOWN,
    JobRequest,
    OwnScript,
    Submitted,
    TaskState,
)
from weigh.planning.resume_policy import Choice, ResumeOptions, choose, enlarged
from weigh.render.resume_lines import Again, Left, Resumed
from weigh.schedulers import KINDS
from weigh.schedulers.elements import format_ranges
from weigh.schedulers.protocol import Argv

Chosen = list[tuple[TaskState, Choice]]


def resume_script(  # noqa: PLR0913 - keyword-only past the second
    views: Sequence[View],
    options: ResumeOptions,
    *,
    sendings: Sendings,
    number: int,
    root: str,
    env: Mapping[str, str],
    notify: Callable[[str], None],
) -> Resumed:
    """Submit the user's script again, for the indices that did not succeed.

    Raises:
        UsageError: weigh did not submit the job, or its script is gone.
        SchedulerError: the scheduler refuses or does not answer.
    """
    last = views[-1].job
    chosen, left = _choices(views, options)
    if is_foreign(last):
        raise UsageError(_by_hand(last, chosen))
    if not chosen:
        return Resumed(last, (), left)
    for line in _warnings(last, views, root, env):
        notify(line)
    groups: dict[tuple[int, int], Chosen] = {}
    for task, choice in chosen:
        groups.setdefault((choice.memory, choice.time), []).append((task, choice))
    plans = [_planned(views[0].job, group, options) for group in groups.values()]
    if options.dry_run:
        return Resumed(last, tuple(again for again, _ in plans), left)
    sending = sendings.begin(number)
    made = []
    try:
        for again, each in plans:
            jobs = []
            for flags in each:
                draft = _draft(last, flags, root, env)
                draft = msgspec.structs.replace(draft, folder=views[0].job.folder)
                jobs.append(
                    send(
                        draft,
                        views[-1].scheduler,
                        sending,
                        resumes=last.id,
                        reason="; ".join(again.reasons),
                    )
                )
            made.append(
                msgspec.structs.replace(again, job=jobs[0], more=tuple(jobs[1:]))
            )
    finally:
        sending.close()
    return Resumed(last, tuple(made), left)


def _choices(
    views: Sequence[View], options: ResumeOptions
) -> tuple[Chosen, tuple[Left, ...]]:
    """Return the elements to run again, and why others do not."""
    by_job = {view.job.id: view for view in views}
    failures = Counter(
        task.task for view in views for task in view.tasks if task.state == "FAILED"
    )
    chosen: Chosen = []
    left = []
    for _, task in sorted(merged(views).items()):
        if task.state == "COMPLETED":
            continue
        view = by_job[task.job]
        words = tail_of(task.output) if task.output else ""
        element = view.elements[task.element]
        choice = choose(task, element, words, failures=failures[task.task])
        if options.unknown and task.state == "UNKNOWN" and not view.snapshot.trouble:
            choice = msgspec.structs.replace(choice, run=True, reason=OUTCOME_UNKNOWN)
        if options.bugs and task.state == "FAILED":
            choice = msgspec.structs.replace(choice, run=True)
        if choice.run:
            chosen.append((task, choice))
        else:
            left.append(Left(task.task, choice.reason))
    return chosen, tuple(left)


def _planned(
    job: Submitted, group: Chosen, options: ResumeOptions
) -> tuple[Again, tuple[Argv, ...]]:
    """Return what runs again, and the flags of each job that is needed for it."""
    scripts = KINDS[schedulers.kind_of(job.scheduler)].user_scripts
    own = job.own or OwnScript()
    request, changed = _request(job.request, group, options)
    more = scripts.raised(request, changed)
    indices = tuple(task.task for task, _ in group)
    parts = list(scripts.only(indices, request.throttle)) if own.indices else [()]
    reasons = tuple(dict.fromkeys(choice.reason for _, choice in group))
    return (
        Again(indices, reasons, request, len(indices)),
        tuple((*more, *part) for part in parts),
    )


def _request(
    before: JobRequest, group: Chosen, options: ResumeOptions
) -> tuple[JobRequest, list[str]]:
    """Return the request with more of what was too small, and what changed in it."""
    request = enlarged(before, [choice for _, choice in group], options)
    changed = [
        name
        for name in ("time_limit", "queue", "exclude")
        if getattr(request, name) != getattr(before, name)
    ]
    if (request.memory, request.virtual_memory) != (
        before.memory,
        before.virtual_memory,
    ):
        changed.append("memory")
    return request, changed


def _draft(job: Submitted, more: Argv, root: str, env: Mapping[str, str]) -> Draft:
    own = job.own or OwnScript()
    options = ScriptOptions(
        script=job.script,
        flags=(*own.flags, *more),
        arguments=own.arguments,
        measure=own.measured,
    )
    return draft_of(options, job.scheduler, root=root, cwd=job.cwd, env=env)


def _warnings(
    job: Submitted, views: Sequence[View], root: str, env: Mapping[str, str]
) -> list[str]:
    """Return what differs from the first time."""
    found = []
    if changed_since(job):
        found.append(f"{job.script} was changed since job {job.id}")
    own = views[0].job.own or OwnScript()
    if own.indices:
        kind = schedulers.kind_of(job.scheduler)
        name = reads_whole_array(_draft(job, (), root, env), kind)
        if name is not None:
            found.append(f"the script reads {name}: it differs in a part of the array")
    return found


def _by_hand(job: Submitted, chosen: Chosen) -> str:
    """Return how to submit the failed indices of a job that weigh did not submit."""
    if not chosen:
        return f"nothing to resume of job {job.id}"
    own = job.own or OwnScript()
    if not job.script:
        failed = format_ranges(task.task for task, _ in chosen)
        what = f"indices {failed}" if own.indices else "it"
        return f"weigh did not submit job {job.id}: submit its script again for {what}"
    kind = KINDS[schedulers.kind_of(job.scheduler)]
    part: Argv = ()
    if own.indices:
        part = next(kind.user_scripts.only([task.task for task, _ in chosen], None), ())
    words = ["weigh", "submit", job.script, *own.flags, *part]
    if own.arguments:
        words += ["--", *own.arguments]
    return f"weigh did not submit job {job.id}: {shlex.join(words)}"
