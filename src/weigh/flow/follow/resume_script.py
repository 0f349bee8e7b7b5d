"""``weigh resume`` of a job whose script is the user's own: only its failed indices."""

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.flow.follow.named import is_foreign
from weigh.flow.follow.view import View
from weigh.flow.site import schedulers
from weigh.flow.submit.job_parts import Origin
from weigh.flow.submit.own_script import (
    Draft,
    ScriptOptions,
    changed_since,
    draft_of,
    reads_whole_array,
    send,
)
from weigh.flow.submit.rounds import Round
from weigh.model.job import Heal, JobRequest, OwnScript, Submitted, TaskState
from weigh.planning.resume_policy import (
    LOWERS_MEMORY,
    Choice,
    ResumeOptions,
    change_words,
    enlarged,
)
from weigh.render.resume_lines import Again
from weigh.schedulers import KINDS
from weigh.schedulers.elements import format_ranges
from weigh.schedulers.protocol import Argv

Chosen = Sequence[tuple[TaskState, Choice]]


class ScriptGroup(msgspec.Struct, frozen=True):
    """Elements of a user's own script that go into one job, or several if too long.

    ``flags`` are those of each job, beyond the ones of the job *before*.
    """

    before: Submitted
    again: Again
    flags: tuple[Argv, ...]
    root: str
    env: Mapping[str, str]
    sized: bool = False

    def check(
        self, views: Sequence[View], *, root: str, env: Mapping[str, str]
    ) -> None:
        """Do nothing: the scheduler checks the script as it is."""

    def submit(self, views: Sequence[View], sending: Round) -> Again:
        """Submit the user's script again, for these elements."""
        words = change_words(self.before.request, self.again.request)
        reasons = "; ".join(self.again.reasons)
        jobs = []
        for flags in self.flags:
            draft = _draft(self.before, flags, self.root, self.env)
            jobs.append(
                send(
                    msgspec.structs.replace(draft, folder=views[0].job.folder),
                    views[-1].scheduler,
                    sending,
                    origin=Origin(
                        views[-1].job.id,
                        f"{reasons}: {words}" if words else reasons,
                        round=1 + max(view.job.round for view in views),
                    ),
                )
            )
        return msgspec.structs.replace(self.again, job=jobs[0], more=tuple(jobs[1:]))


def script_groups(  # noqa: PLR0913 - keyword-only past the fourth
    choices: Chosen,
    views: Sequence[View],
    options: ResumeOptions,
    heal: Heal | None,
    *,
    root: str,
    env: Mapping[str, str],
) -> list[ScriptGroup]:
    """Return the jobs in which the user's script runs again, by what they need.

    Raises:
        UsageError: weigh did not submit the job.
    """
    chosen = [(task, choice) for task, choice in choices if choice.run]
    if is_foreign(views[-1].job):
        raise UsageError(_by_hand(views[-1].job, chosen))
    by_job = {view.job.id: view.job for view in views}
    groups: dict[tuple[object, ...], list[tuple[TaskState, Choice]]] = {}
    for task, choice in chosen:
        key = task.job, choice.memory, choice.time, choice.need
        groups.setdefault(key, []).append((task, choice))
    found = []
    for group in groups.values():
        before = by_job[group[0][0].job]
        again, flags = _planned(before, group, options, heal)
        if any(choice.ran_short for _, choice in group):
            before = _keeping_memory(before)
        found.append(ScriptGroup(before, again, flags, root, env))
    return found


def _keeping_memory(job: Submitted) -> Submitted:
    """Return the job without flags that let its memory limit fall."""
    own = job.own or OwnScript()
    kept: list[str] = []
    is_value = False
    for word in own.flags:
        name, equals, _ = word.removeprefix("--").partition("=")
        if is_value or name in LOWERS_MEMORY:
            is_value = not is_value and not equals
        else:
            kept.append(word)
    own = msgspec.structs.replace(own, flags=tuple(kept))
    return msgspec.structs.replace(job, own=own)


def _planned(
    job: Submitted, group: Chosen, options: ResumeOptions, heal: Heal | None
) -> tuple[Again, tuple[Argv, ...]]:
    """Return what runs again, and the flags of each job that is needed for it."""
    scripts = KINDS[schedulers.kind_of(job.scheduler)].user_scripts
    own = job.own or OwnScript()
    request, changed = _request(job.request, group, options, heal)
    more = scripts.raised(request, changed)
    indices = tuple(task.task for task, _ in group)
    parts = list(scripts.only(indices, request.throttle)) if own.indices else [()]
    reasons = tuple(dict.fromkeys(choice.reason for _, choice in group))
    return (
        Again(indices, reasons, request, len(indices)),
        tuple((*more, *part) for part in parts),
    )


def _request(
    before: JobRequest, group: Chosen, options: ResumeOptions, heal: Heal | None
) -> tuple[JobRequest, list[str]]:
    """Return the request with more of what was too small, and what changed in it."""
    request = enlarged(before, [choice for _, choice in group], options, heal)
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
        notify=job.request.notify,
    )
    return draft_of(options, job.scheduler, root=root, cwd=job.cwd, env=env)


def changes(
    job: Submitted, views: Sequence[View], root: str, env: Mapping[str, str]
) -> list[str]:
    """Return what differs from the first time, in words."""
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
