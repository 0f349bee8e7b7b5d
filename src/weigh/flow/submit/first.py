"""``weigh submit --first N``: the rest of an array waits for what the first show.

The first elements are a job of their own. Each ends by asking on its node whether the
request held (``weigh.flow.submit.first_check``); where it did not, it fails, and the
rest, which depends on it, does not begin. Nothing runs in between, on a login node or
elsewhere.
"""

import shlex
from collections.abc import Iterator

import msgspec

from weigh.errors import UsageError
from weigh.flow.submit.submit_script import parts_of
from weigh.model.job import JobScript, Wanted
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.slurm import commands as slurm_commands

# exit code 100 leaves a Grid Engine job in error state, and what waits for it, waiting:
# its holds do not look at any other
_STAYS = {gridengine_commands.NAME: 100}
_INVALID = ("kill-on-invalid-dep", "yes")


def cut(
    script: JobScript, count: int | None, scheduler: str, limit: int | None
) -> Iterator[JobScript]:
    """Cut off the first *count* elements, which look at themselves, then the rest.

    *limit* is how many an array may have. Without a *count* nothing waits.

    Raises:
        UsageError: nobody would measure them, or it cannot be told what they did.
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
        raise UsageError("--first needs weigh exec to measure: leave --runner out")
    if script.staging is not None:
        raise UsageError(
            "--first and staging do not go together: leave one out (the first would be "
            "judged before their results are home)"
        )
    if count >= script.elements:
        raise UsageError(
            f"--first {count}: the plan has {script.elements} elements, and none is "
            "left to wait"
        )
    if limit is not None and count > limit:
        raise UsageError(f"--first {count}: an array here has {limit} elements at most")


def held(script: JobScript, job: str, scheduler: str) -> JobScript:
    """Make a part wait until *job*, the first elements, has ended well."""
    wanted = script.wanted
    extra = (
        (*wanted.extra, _INVALID) if scheduler == slurm_commands.NAME else wanted.extra
    )
    return msgspec.structs.replace(
        script,
        wanted=msgspec.structs.replace(wanted, after=(*wanted.after, job), extra=extra),
    )


def needed(wanted: Wanted) -> tuple[tuple[str, str], ...]:
    """Return the scheduler's own flags of a job, without that of one that waits."""
    return tuple(flag for flag in wanted.extra if flag != _INVALID)


def reason(count: int) -> str:
    """Say why the rest is a job of its own."""
    return "waits for the first one" if count == 1 else f"waits for the first {count}"


def _gate(script: JobScript, scheduler: str) -> str:
    """Write the lines that end an element: well only if its request held."""
    words = [script.python, "-P", "-m", "weigh.flow.submit.first_check"]
    words += ["--together", str(script.together)]
    if script.wanted.memory is not None:
        words += ["--memory", str(script.wanted.memory)]
    check = f'{shlex.join(words)} "$plan/log/tasks_$element.joblog"'
    return (
        "# the rest of the array begins only if this one kept to what was asked for\n"
        f'{{ [ "$code" -eq 0 ] && {check}; }} || code={_STAYS.get(scheduler, 1)}'
    )
