"""What `weigh submit` stages: the options and settings, and the lines of the script."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.config import Config
from weigh.dialect.job_script import staged_lines, when_home
from weigh.dialect.requeue_lines import HOW, requeue_lines
from weigh.errors import FormatError, UsageError
from weigh.model.job import JobScript, Runner
from weigh.model.plan import Plan
from weigh.model.staging import Staging
from weigh.scheduler.local import NAME as LOCAL
from weigh.staging.script import JOB, render
from weigh.staging.words import parse_staging

_SETTING = "scratch"


def staging_of(
    words: tuple[Sequence[str], str | None, str | None],
    config: Config,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> Staging | None:
    """Read ``--stage-in``, ``--stage-out`` and ``--scratch``; None where none is said.

    Results go to the folder of the submission, unless said otherwise.

    Raises:
        UsageError: a name cannot stand for what it is meant for.
        FormatError: the setting is no text.
    """
    sources, destination, scratch = words
    if not sources and destination is None and scratch is None:
        return None
    return parse_staging(
        sources,
        cwd.replace("%", "%%") if destination is None else destination,
        scratch or _site_scratch(config),
        cwd=cwd,
        home=env.get("HOME"),
    )


def refuse_missing(staging: Staging) -> None:
    """See that there is what is to be copied.

    Raises:
        UsageError: something is not there.
    """
    for source in staging.sources:
        if not os.path.exists(source.path):
            raise UsageError(f"--stage-in {source.path}: there is no such file")


def refuse_requeue(scheduler: str, runner: Runner) -> None:
    """See that a job can be put back into its queue, and go on where it was.

    Raises:
        UsageError: it cannot.
    """
    if scheduler == LOCAL:
        raise UsageError(
            "--requeue: jobs on this machine have no queue (leave --requeue and --time "
            "out: they run until they are done)"
        )
    if runner != "weigh":
        raise UsageError("--requeue needs weigh exec: leave --runner out")


def staged(script: JobScript, scheduler: str) -> JobScript:
    """Write the lines that stage into *script*, where it is to."""
    if script.staging is None:
        return script
    lines = render(
        script.staging,
        staged_lines(script, scheduler),
        job='"$job"' if scheduler == LOCAL else JOB,
        element='"$element"',
        when_home=when_home(),
        last=_last(script, scheduler),
    )
    return msgspec.structs.replace(script, staged=lines)


def _last(script: JobScript, scheduler: str) -> str:
    if not script.requeue:
        return ""
    return "\n".join(("by=$hurry", *requeue_lines(HOW[scheduler])))


def left_behind(plan: Plan, staging: Staging | None, cwd: str) -> Iterator[str]:
    """Doubt relative names in tasks that are here and will not be on the node."""
    if staging is None:
        return
    words = (word for kind in plan.kinds for word in _words(kind.example))
    for name in dict.fromkeys(os.path.normpath(word).split("/")[0] for word in words):
        is_here = name not in {"", ".", ".."} and os.path.exists(f"{cwd}/{name}")
        if is_here and not _goes_along(name, staging):
            word = shlex.quote(name)
            yield f"{word} is not staged in: tasks will not see it (--stage-in {word})"


def _goes_along(name: str, staging: Staging) -> bool:
    return any(
        source.place.split("/")[0] == name
        or (source.place == "." and os.path.exists(f"{source.path}/{name}"))
        for source in staging.sources
    )


def _words(line: str) -> Sequence[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return ()


def _site_scratch(config: Config) -> str | None:
    """Give the node's own disk by the setting, or by the site's file."""
    value = config.value(_SETTING) or config.cluster.get(_SETTING)
    if value is None or isinstance(value, str):
        return value or None
    raise FormatError(f"cluster.scratch must be text, not {value!r}")
