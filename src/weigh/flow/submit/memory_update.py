"""``--mem-update=auto``: let the memory limit of a job fall where it is safe.

Slurm kills a job that needs more than the lowered limit. So this happens only by that
word, and only where the measured runs show that memory stays level.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from weigh import config
from weigh.errors import UsageError, WeighError
from weigh.estimate.settled import lowered
from weigh.flow.request.request import configured_headroom
from weigh.flow.site.ask import ask_scheduler
from weigh.flow.site.live_limits import live_limits
from weigh.flow.site.schedulers import current_user
from weigh.flow.submit.job_parts import texts_of
from weigh.model.job import JobRequest
from weigh.model.lint import TaskRuns
from weigh.model.plan import Kind, Plan
from weigh.model.record import Record
from weigh.planning.first_tasks import kinds_of
from weigh.planning.launchers import without_launcher
from weigh.planning.record_match import Sizes, sizes_in, words_of, words_run
from weigh.schedulers import KINDS
from weigh.schedulers.protocol import Who
from weigh.schedulers.shell import read_body
from weigh.store.index import read_index, read_record
from weigh.units import format_size

AUTO = "auto"
_MOST_RUNS = 20  # of a kind, the newest
_LONGER = 1.5  # times the longest measured run: what comes later was not seen


def decide(  # noqa: PLR0913 - keyword-only past the fourth
    request: JobRequest,
    plan: Plan,
    slots: int,
    scheduler: str,
    *,
    folder: str,
    doubts: Sequence[str],
    root: str,
    cwd: str,
    env: Mapping[str, str],
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with a value for --mem-update=auto, or without; and why.

    *slots* tasks of the plan in *folder* run at once; *doubts* are reasons that the
    caller knows.

    Raises:
        UsageError: the scheduler has no such option.
        FormatError: a settings file is invalid.
        StoreError: the records cannot be read.
    """
    if not is_auto(request.extra):
        return request, ()
    runs = runs_of_plan(plan, slots, root)
    flags, why = resolved(
        request.extra,
        request,
        scheduler,
        runs=runs,
        doubts=(*doubts, *_predicted(plan), *_unlike_measured(plan, folder, runs)),
        cwd=cwd,
        env=env,
    )
    return msgspec.structs.replace(request, extra=flags), (why,)


def is_auto(flags: Sequence[tuple[str, str]]) -> bool:
    """Return whether one of the flags (name, value) is --mem-update=auto."""
    return any(name in _names() and value == AUTO for name, value in flags)


def refuse_auto(flags: Sequence[tuple[str, str]]) -> None:
    """Refuse --mem-update=auto where no job with measured tasks runs.

    Raises:
        UsageError: it is there.
    """
    if is_auto(flags):
        raise UsageError(
            "--mem-update=auto needs measured runs of a job: omit it, or write 20@10"
        )


def without_auto(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the words of flags without --mem-update=auto, and its name if it was."""
    kept: list[str] = []
    found = ""
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        before = kept[-1].removeprefix("--") if kept else ""
        if equals and name in _names() and value == AUTO:
            found = name
        elif word == AUTO and before in _names():
            found = before
            kept.pop()
        else:
            kept.append(word)
    return tuple(kept), found


def _names() -> frozenset[str]:
    return frozenset(kind.traits.memory_update for kind in KINDS.values()) - {""}


def mentions(text: str) -> bool:
    """Return whether a script may let its memory limit fall."""
    return any(name in text for name in _names())


def digest_of(text: str) -> str:
    """Return a digest of a script, which names the directory of its measured copy."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def runs_of_plan(plan: Plan, slots: int, root: str) -> TaskRuns:
    """Return what was measured of the tasks of a plan; *slots* run at once.

    A kind whose memory is predicted, not measured, has no runs.

    Raises:
        StoreError: the records cannot be read.
    """
    names = {name for kind in plan.kinds for name in kind.records}
    known = _read(names, root) if names else {}
    return TaskRuns(
        kinds=tuple(
            ()
            if _is_predicted(kind)
            else tuple(known[one] for one in kind.records if one in known)
            for kind in plan.kinds
        ),
        together=max(1, slots),
        in_turn=plan.queue is not None
        or plan.rest is not None
        or any(len(one.tasks) > slots for one in plan.elements),
    )


def _is_predicted(kind: Kind) -> bool:
    return any(one.quantity == "memory" for one in kind.predictions)


def runs_of_script(text: str, root: str, flags: Sequence[str] = ()) -> TaskRuns:
    """Return the runs of a script: of its measured copies, or of its commands.

    Only where the script or the *flags* let its memory limit fall is anything read.
    Commands count if a run had the very same words, so none with a variable does.

    Raises:
        StoreError: the records cannot be read.
    """
    if not mentions("\n".join((text, *flags))):
        return TaskRuns()
    whole = f"/{digest_of(text)}/"
    commands = {tuple(_without_runner(one.words)) for one in read_body(text).commands}
    found: dict[tuple[str, ...], list[str]] = {}
    for entry in read_index(root).entries:
        command = tuple(without_launcher(words_run(entry.head.command)))
        if any(whole in word for word in entry.head.command):
            command = (whole,)
        elif command not in commands or len(command) < 2:  # noqa: PLR2004 - a bare name
            continue
        if len(found.setdefault(command, [])) < _MOST_RUNS:
            found[command].append(entry.head.id)
    if (whole,) in found:  # the whole job, not a part of it
        found = {(whole,): found[whole,]}
    known = _read({name for names in found.values() for name in names}, root)
    return TaskRuns(
        kinds=tuple(tuple(known[name] for name in names) for names in found.values()),
        in_turn=len(found) > 1,
    )


def _without_runner(words: Sequence[str]) -> Sequence[str]:
    """Return the words of what runs: not those of weigh, nor of a launcher."""
    if words[:1] == ("weigh",) and "--" in words:
        words = words[words.index("--") + 1 :]
    return without_launcher(words)


def _read(names: set[str], root: str) -> dict[str, Record]:
    entries = [one for one in read_index(root).entries if one.head.id in names]
    return {one.head.id: read_record(one) for one in entries}


def resolved(  # noqa: PLR0913 - keyword-only past the third
    flags: Sequence[tuple[str, str]],
    request: JobRequest,
    scheduler: str,
    *,
    runs: TaskRuns,
    doubts: Sequence[str] = (),
    cwd: str,
    env: Mapping[str, str],
) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the flags with a value instead of the word, or without; and why.

    *doubts* are reasons against it that the caller knows.

    Raises:
        UsageError: the scheduler has no such option.
        FormatError: a settings file is invalid.
    """
    name = KINDS[scheduler].traits.memory_update if scheduler in KINDS else ""
    others = tuple(one for one in flags if one[0] not in _names())
    if not name:
        typed = next(one for one, value in flags if value == AUTO)
        raise UsageError(f"--{typed} is not an option of {scheduler}: omit it")
    settings = config.load(cwd, env)
    reasons = (
        *doubts,
        *_not_here(request, runs),
        *_not_on(scheduler, request, settings.cluster, env),
    )
    if reasons:
        return others, f"--{name} is left out: {reasons[0]}"
    memory = request.memory or 0
    headroom = configured_headroom(settings)
    found = lowered(runs.kinds, memory, headroom, runs.together)
    if isinstance(found, str):
        return others, f"--{name} is left out: {found}"
    value = f"{found.margin}@{found.delay}"
    why = (
        f"--{name}={value}: memory is level in {found.runs} runs; {found.delay} min "
        f"after the start the limit falls to {found.margin} % above what is in use, at "
        f"most {format_size(found.limit)} of {format_size(memory)}"
    )
    return (*others, (name, value)), why


def _not_here(request: JobRequest, runs: TaskRuns) -> Iterator[str]:
    """Yield why this job's limit should not fall."""
    if request.memory is None:
        yield "no memory is requested"
    if request.nodes > 1:
        yield "the job has several nodes, and the limit is the same on all"
    if runs.in_turn:
        yield "tasks run in turn, and one that just started uses little"


def _not_on(
    scheduler: str,
    request: JobRequest,
    site: Mapping[str, object],
    env: Mapping[str, str],
) -> Iterator[str]:
    """Yield what the cluster lacks."""
    who = Who(user=current_user(), account=request.account, qos=request.qos)
    live = live_limits(scheduler, who, env=env, site=site, ask=ask_scheduler)
    missing = None if live.limits is None else live.limits.memory_update
    if missing is None:
        yield live.trouble or "the cluster does not show its settings"
    elif missing:
        yield f"it needs {' and '.join(missing)}, which the cluster has not"


def _unlike_measured(plan: Plan, folder: str, runs: TaskRuns) -> Iterator[str]:
    """Yield a size of a task that all runs of its kind had otherwise.

    Where it varied among the runs, their memory shows what it does.
    """
    only = [_only_sizes(some) for some in runs.kinds]
    kinds = kinds_of(plan)
    if not any(only):
        return
    with ExitStack() as opened:
        try:
            text_of = texts_of(folder, plan, opened)
            lines = {task: text_of(task).decode("utf-8", "replace") for task in kinds}
        except WeighError:  # the plan of a command that is not written yet
            lines = {task: plan.kinds[kind].example for task, kind in kinds.items()}
    for task, line in lines.items():
        sizes = sizes_in(words_of(line), {})
        for name, value in only[kinds[task]].items():
            if sizes.get(name, value) != value:
                yield (
                    f"{name.lstrip('-')} {sizes[name]:g} was not measured, all runs "
                    f"had {value:g}"
                )
                return


def _only_sizes(runs: Sequence[Record]) -> Sizes:
    """Return the sizes that are equal in all runs."""
    each = [sizes_in(words_run(run.command), run.parameters) for run in runs]
    return {
        name: value
        for name, value in (each[0] if each else {}).items()
        if all(sizes.get(name) == value for sizes in each)
    }


def _predicted(plan: Plan) -> Iterator[str]:
    """Yield a size whose memory or time is predicted from other sizes."""
    for kind in plan.kinds:
        for one in kind.predictions:
            if one.quantity == "memory":
                yield f"{one.by}={one.size:g} was not measured: its memory is predicted"
            elif one.quantity == "time" and one.ratio > _LONGER:
                yield f"{one.by}={one.size:g} runs longer than any measured size"
