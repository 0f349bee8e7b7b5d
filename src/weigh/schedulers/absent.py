"""What a scheduler has not: a folder imports from here what it need not write."""

import re
from collections.abc import Iterator, Mapping, Sequence

from weigh.errors import UsageError
from weigh.model.job import JobRequest, OwnScript, Submitted
from weigh.model.lint import Facts, Finding
from weigh.model.record import Complexes
from weigh.schedulers.command import Ran
from weigh.schedulers.protocol import (
    Answer,
    Argv,
    Described,
    EndMessages,
    KnownJob,
    Query,
    RequestChange,
)
from weigh.units import Seconds

MESSAGES = EndMessages()  # it prints nothing into the log of a job that it ends
_PATIENCE: Seconds = 10.0


def parse_start(out: str) -> Seconds | None:  # noqa: ARG001
    """Return None: it does not predict when a job starts."""
    return None


def patience_argv() -> Argv | None:
    """Return None: a request is either answered or lost."""
    return None


def parse_patience(out: str) -> Seconds:  # noqa: ARG001
    """Return a fixed time: a request is read as soon as the daemon runs."""
    return _PATIENCE


def with_other_token(out: str, tokens: Mapping[str, str]) -> frozenset[str]:  # noqa: ARG001
    """Return nothing: the queue does not show tokens."""
    return frozenset()


def slots_argv() -> Argv | None:
    """Return None: GPUs are counted per node or per job, not per slot."""
    return None


def parse_slots(
    out: str,  # noqa: ARG001
    complexes: Complexes | None = None,  # noqa: ARG001
) -> str | None:
    """Read nothing."""
    return None


def accounting_answer(out: str, err: str) -> Answer:  # noqa: ARG001
    """Return "failing": a job that accounting does not know yet is no failure."""
    return "failing"


def session_argv(words: Argv, command: Argv) -> Argv:
    """Return the words: `session_flags` has refused already."""
    return (*words, *command)


def why_argv(job: str) -> Argv | None:  # noqa: ARG001
    """Return None: the list of jobs shows the reason already."""
    return None


def parse_why(out: str) -> str | None:  # noqa: ARG001
    """Read nothing."""
    return None


def resource_names(query: Query) -> dict[str, str]:  # noqa: ARG001
    """Return no names: all sites call the resources the same."""
    return {}


def in_words(reason: str, throttle: int | None = None) -> str:  # noqa: ARG001
    """Return a reason to wait unchanged: it is in plain words."""
    return reason


def is_hopeless(reason: str) -> bool:  # noqa: ARG001
    """Return False: every reason may pass."""
    return False


def freed_by(reason: str | None) -> str | None:  # noqa: ARG001
    """Return None: no command is known."""
    return None


def from_nodes_argvs(queue: str | None) -> tuple[Argv, ...]:  # noqa: ARG001
    """Return no command: its jobs submit nothing."""
    return ()


def parse_from_nodes(outs: Sequence[str]) -> str | None:  # noqa: ARG001
    """Return None: that is not known."""
    return None


def lint(text: str, facts: Facts) -> tuple[Finding, ...]:  # noqa: ARG001
    """Return no finding: it has no rules."""
    return ()


def directives(text: str) -> int:  # noqa: ARG001
    """Return 0: no line is checked."""
    return 0


def awaited(text: str) -> tuple[str, ...]:  # noqa: ARG001
    """Return nothing: a job does not wait for others."""
    return ()


def default_files(
    cwd: str,  # noqa: ARG001
    env: Mapping[str, str],  # noqa: ARG001
) -> tuple[tuple[str, str], ...]:
    """Return nothing: no file of options is read before a script."""
    return ()


OF_WHOLE_ARRAY = re.compile(r"(?!)")  # no variable
_NO_SCRIPTS = "weigh cannot submit a script of your own here"


def describe(text: str, flags: Sequence[str], path: str, facts: Facts) -> Described:  # noqa: ARG001
    """Refuse: traits.takes_scripts is False.

    Raises:
        UsageError: always.
    """
    raise UsageError(_NO_SCRIPTS)


def with_flags(text: str, flags: Sequence[str]) -> str:  # noqa: ARG001
    """Return the script unchanged."""
    return text


def submit_script_argv(
    script: str,  # noqa: ARG001
    own: OwnScript,  # noqa: ARG001
    *,
    token: str,  # noqa: ARG001
    comment: str = "",  # noqa: ARG001
) -> Argv:
    """Refuse, as `describe` does.

    Raises:
        UsageError: always.
    """
    raise UsageError(_NO_SCRIPTS)


def check_script_argv(script: str, own: OwnScript) -> Argv:  # noqa: ARG001
    """Refuse, as `describe` does.

    Raises:
        UsageError: always.
    """
    raise UsageError(_NO_SCRIPTS)


def only(indices: Sequence[int], throttle: int | None) -> Iterator[Argv]:  # noqa: ARG001
    """Yield nothing: it cannot run a part of an array."""
    yield from ()


def raised(request: JobRequest, names: Sequence[str]) -> Argv:  # noqa: ARG001
    """Return no flags."""
    return ()


def wrapper(text: str, body: str) -> str:  # noqa: ARG001
    """Return the script unchanged."""
    return text


def wrapper_flags() -> Argv:
    """Return no flags."""
    return ()


def default_log(job: Submitted, index: int | None) -> str:
    """Return a name that no log has."""
    return f"{job.id}.{index or 0}.out"


def log(job: Submitted, index: int | None, node: str | None) -> str | None:  # noqa: ARG001
    """Return None: that is not known."""
    return None


def known_argvs(name: str) -> tuple[Argv, ...]:  # noqa: ARG001
    """Return no command: jobs that weigh did not submit are not looked at."""
    return ()


def parse_known(name: str, outs: Sequence[str]) -> KnownJob | None:  # noqa: ARG001
    """Read nothing."""
    return None


def raw_argv(job: Submitted) -> Argv | None:  # noqa: ARG001
    """Return None: the names of logs are known."""
    return None


def parse_raw(out: str, job: Submitted) -> dict[str, str]:  # noqa: ARG001
    """Read nothing."""
    return {}


def sent_argv(job: Submitted, user: str) -> Argv | None:  # noqa: ARG001
    """Return None: weigh submits no user's script here."""
    return None


def parse_sent(out: str, job: Submitted, user: str) -> str | None:  # noqa: ARG001
    """Read nothing."""
    return None


def change_argvs(job: Submitted, change: RequestChange, known: str) -> tuple[Argv, ...]:  # noqa: ARG001
    """Return no command: traits.can_change is False."""
    return ()


def parse_refusal(ran: Ran) -> str | None:
    """Return why a change failed."""
    return None if ran.code == 0 else ran.complaint()
