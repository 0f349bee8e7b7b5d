"""What a scheduler has not: a folder imports from here what it need not write."""

from collections.abc import Mapping

from weigh.model.record import Complexes
from weigh.schedulers.protocol import Answer, Argv, EndMessages, Query
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


def awaited(text: str) -> tuple[str, ...]:  # noqa: ARG001
    """Return nothing: a job does not wait for others."""
    return ()


def default_files(
    cwd: str,  # noqa: ARG001
    env: Mapping[str, str],  # noqa: ARG001
) -> tuple[tuple[str, str], ...]:
    """Return nothing: no file of options is read before a script."""
    return ()
