"""Cut one submission into several jobs: long arrays, `--first N` and `--each-node`.

With ``--first N`` the first elements are a job of their own. Each of them ends with
``weigh.flow.submit.first_check``, which checks whether the request was sufficient. If
it was not, the element fails, and the other elements, whose job depends on it, do not
start. Nothing runs on a login node in between.
"""

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import SchedulerError, UsageError, WeighError
from weigh.model.job import JobRequest, JobScript, Submitted
from weigh.schedulers import KINDS, find_kind, kind_or_first
from weigh.schedulers.dialect import Traits

TOO_LONG = "the array was too long for one job"
ONE_PER_NODE = "one job per node"


class Origin(msgspec.Struct, frozen=True):
    """The job that another job continues, the reason, and which round this is."""

    job: str
    reason: str
    round: int = 1


def parts_of(script: JobScript, limit: int | None) -> Iterator[JobScript]:
    """Cut an array that is too long for one job; the parts share the throttle."""
    if limit is None or script.elements <= limit:
        yield script
        return
    count = -(-script.elements // limit)
    throttle = script.request.throttle
    share = None if throttle is None else max(1, throttle // count)
    request = msgspec.structs.replace(script.request, throttle=share)
    for first in range(0, script.elements, limit):
        yield msgspec.structs.replace(
            script,
            first=script.first + first,
            elements=min(limit, script.elements - first),
            request=request,
        )


def one_per_node(
    script: JobScript, nodes: Sequence[str], scheduler: str
) -> Iterator[JobScript]:
    """Yield one script per node."""
    for number, node in enumerate(nodes):
        name, value = kind_or_first(scheduler).text.OPTIONS.node
        extra = (*script.request.extra, (name, value.format(node)))
        request = msgspec.structs.replace(script.request, extra=extra, throttle=None)
        yield msgspec.structs.replace(script, first=number, elements=1, request=request)


def halfway(
    error: WeighError, made: Sequence[Submitted], parts: Sequence[JobScript]
) -> SchedulerError:
    """Return the error on a part that was refused after *made* had been accepted."""
    there, total = sum(job.elements for job in made), sum(one.elements for one in parts)
    ids = ", ".join(job.id for job in made)
    way_out = f"weigh resume {made[0].id} submits the rest"
    if pinned(made[0].request):
        way_out = f"weigh cancel {ids.replace(',', '')}, then weigh submit --again"
    return SchedulerError(
        f"{error}\nonly {there:,} of {total:,} elements were submitted, as job {ids}: "
        f"{way_out}"
    )


def pinned(request: JobRequest) -> bool:
    """Return whether a job may run on one named node only, as with --each-node."""
    forms = [kind.text.OPTIONS.node for kind in KINDS.values()]
    return any(
        flag == name and given.startswith(value.partition("{")[0])
        for flag, given in request.extra
        for name, value in forms
    )


def cut(
    script: JobScript, count: int | None, scheduler: str, limit: int | None
) -> Iterator[JobScript]:
    """Yield a job of the first *count* elements, then the jobs of the others.

    *limit* is the most elements of an array. Without *count* no job waits.

    Raises:
        UsageError: the first elements would not be measured, or leave none to wait.
    """
    if count is None:
        yield from parts_of(script, limit)
        return
    _refuse(script, count, limit)
    gate = _gate(script, scheduler)
    yield msgspec.structs.replace(script, elements=count, gate=gate)
    rest = msgspec.structs.replace(
        script, first=script.first + count, elements=script.elements - count
    )
    yield from parts_of(rest, limit)


def _refuse(script: JobScript, count: int, limit: int | None) -> None:
    if script.runner == "parallel":
        raise UsageError("--first needs weigh exec to measure: omit --runner")
    if script.staging is not None:
        raise UsageError(
            "--first cannot be combined with staging: omit one (the first elements "
            "would be checked before their results are copied back)"
        )
    if count >= script.elements:
        raise UsageError(
            f"--first {count}: the plan has only {script.elements} elements, so none "
            "would wait"
        )
    if limit is not None and count > limit:
        raise UsageError(f"--first {count}: an array here has {limit} elements at most")


def held(script: JobScript, job: str, scheduler: str) -> JobScript:
    """Return the part, to be started after *job*, the first elements, has succeeded."""
    request = script.request
    kind = find_kind(scheduler)
    flags = () if kind is None else kind.text.OPTIONS.after
    extra = (*request.extra, *flags)
    return msgspec.structs.replace(
        script,
        request=msgspec.structs.replace(
            request, after=(*request.after, job), extra=extra
        ),
    )


def own_flags(request: JobRequest) -> tuple[tuple[str, str], ...]:
    """Return the scheduler's own flags of a job, without the one added by `held`."""
    ours = [flag for kind in KINDS.values() for flag in kind.text.OPTIONS.after]
    return tuple(flag for flag in request.extra if flag not in ours)


def reason(count: int) -> str:
    """Return why the other elements are a separate job."""
    return "waits for the first one" if count == 1 else f"waits for the first {count}"


def _gate(script: JobScript, scheduler: str) -> str:
    """Return the last lines of an element: it fails if its request was too small."""
    words = [script.python, "-P", "-m", "weigh.flow.submit.first_check"]
    words += ["--together", str(script.together)]
    if script.request.memory is not None:
        words += ["--memory", str(script.request.memory)]
    kind = find_kind(scheduler)
    traits = Traits() if kind is None else kind.traits
    check = f'{shlex.join(words)} "$plan/log/tasks_$element.joblog"'
    return (
        "# the other elements start only if this one stayed within its request\n"
        f'{{ [ "$code" -eq 0 ] && {check}; }} || code={traits.hold_code}'
    )
