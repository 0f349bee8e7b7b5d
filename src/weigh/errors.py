"""Every error that weigh raises on purpose, and every exit code that it returns.

    0     SUCCESS         done; `weigh run`: the command's own exit code
    1     FAILED          a task failed, a check found a problem
    2     USAGE           invalid command line or file (`weigh run`: 125, as 2 may be
                          the command's own)
    123   TOO_LARGE       `weigh run --memory`: it completed and used more
    124   NO_TIME_LEFT    `weigh exec --pull`: tasks of the queue are left that need
                          more time than there is, and no other run will take them
    125   WEIGH_FAILED    weigh itself could not do it
    126   NOT_EXECUTABLE  the command exists and cannot be executed
    127   NOT_FOUND       the command does not exist
    128+n SIGNAL_BASE     ended by signal n

The errors:

    WeighError                125   weigh itself could not do it
    ├── UsageError              2   invalid command line; shows a valid one
    ├── CommandNotFoundError  127   no such command on PATH
    ├── CommandNotExecutableError
    │                         126   exists, but cannot be executed
    ├── StoreError            125   records cannot be read or written
    │   └── RecordNotFoundError 2   no such record; shows similar names
    ├── SchemaError           125   a record from a newer weigh
    ├── GpuError              125   a GPU driver is installed and does not answer
    │   └── NoGpuError        125   no GPU found: nothing is broken
    ├── SchedulerError        125   a scheduler is missing, refuses or does not answer
    │   ├── NoClusterError    125   its commands are here, but no cluster
    │   └── SubmissionUnknownError
    │                         125   no answer: the job may have been accepted
    └── FormatError             2   a file or value that cannot be parsed

The exit codes 125 to 127 are those of env(1), timeout(1) and nohup(1). Only what runs
without weigh writes them out: bash and flow/sweep/steps.py.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weigh.lazy_modules import lazy_module

if TYPE_CHECKING:
    import difflib
    import shlex
else:  # imported when a name is mistyped, or a folder is missing
    difflib = lazy_module("difflib")
    shlex = lazy_module("shlex")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NEAR = 0.7  # of the letters without the ending

SUCCESS, FAILED, USAGE = 0, 1, 2
TOO_LARGE, NO_TIME_LEFT, WEIGH_FAILED, NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE = (
    123,
    124,
    125,
    126,
    127,
    128,
)


class WeighError(Exception):
    """An error with one clear line for the user and an exit code.

    Arguments after the first are lines below it, such as each finding.
    """

    exit_code = WEIGH_FAILED

    def __str__(self) -> str:
        """Return all lines as one, as of a note."""
        return " ".join(line.strip() for line in self.args)


class UsageError(WeighError):
    """The command line is invalid."""

    exit_code = USAGE


class CommandNotFoundError(WeighError):
    """The command to run does not exist."""

    exit_code = NOT_FOUND


class CommandNotExecutableError(WeighError):
    """The command to run exists, but cannot be executed."""

    exit_code = NOT_EXECUTABLE


class StoreError(WeighError):
    """The record store cannot be read or written."""


class RecordNotFoundError(StoreError):
    """No record has that name."""

    exit_code = USAGE


class SchemaError(WeighError):
    """A newer weigh wrote the record, in a schema that this version cannot read."""


class GpuError(WeighError):
    """A GPU driver does not answer, or answers with an error."""


class NoGpuError(GpuError):
    """No GPU driver is installed, or it has no GPU: nothing is broken."""


class SchedulerError(WeighError):
    """A scheduler is not installed, refuses the request, or does not answer."""


class NoClusterError(SchedulerError):
    """A scheduler's commands are installed, and reach no cluster from this machine."""

    def __init__(self, command: str, hint: str) -> None:
        super().__init__(f"{command} finds no cluster from this machine ({hint})")
        self.command = command


class SubmissionUnknownError(SchedulerError):
    """A submission got no answer, so the scheduler may have accepted the job."""


class FormatError(WeighError):
    """A file or value cannot be parsed."""

    exit_code = USAGE


def cannot_read(file_path: str, os_error: OSError, hint: str = "") -> str:
    """Return the message that a file named by the user cannot be read.

    Where it does not exist, with a file of a similar name next to it, else *hint*.
    """
    message = f"cannot read {file_path}: {os_error.strerror}"
    if not isinstance(os_error, FileNotFoundError):
        return message
    folder, name = os.path.split(file_path)
    try:
        near = _nearest_name(name, sorted(os.listdir(folder or os.curdir)))
    except OSError:
        return f"{message} (there is no folder {folder})"
    if near is not None:
        hint = f"did you mean {os.path.join(folder, near)}?"
    return f"{message} ({hint})" if hint else message


def cannot_write(file_path: str, os_error: OSError, hint: str = "") -> str:
    """Return the message that a file cannot be written; *hint* is for another place.

    On a full disk space is what helps: not every caller can choose the place.
    """
    folder = os.path.dirname(file_path)
    if is_full(os_error):
        hint = "free some space"
    elif isinstance(os_error, FileNotFoundError) and folder:
        hint = f"create it first: mkdir -p {shlex.quote(folder)}"
    message = f"cannot write {file_path}: {os_error.strerror or os_error}"
    return f"{message} ({hint})" if hint else message


@contextmanager
def writing(file_path: str, hint: str = "") -> Iterator[None]:
    """Raise a StoreError that names the file if it cannot be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(cannot_write(file_path, error, hint)) from error


def is_full(os_error: OSError) -> bool:
    """Return whether *os_error* means that a disk or a quota is full."""
    return os_error.errno in _FULL


def why_nothing_is_at(path: str) -> str | None:
    """Return why nothing can be found at *path*; None if something is there."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except OSError as error:  # it may be there, in a closed folder
        return error.strerror
    return None


def _nearest_name(wanted_name: str, names: list[str]) -> str | None:
    """Return the name nearest to *wanted_name*; the same ending alone is not near."""
    stem = os.path.splitext(wanted_name)[0]
    # "a.toml" and "b.toml" are alike by their ending only: compare the stems as well
    for near in close_names(wanted_name, names):
        if (
            difflib.SequenceMatcher(None, stem, os.path.splitext(near)[0]).ratio()
            >= _NEAR
        ):
            return near
    return None


def close_names(
    wanted_name: str, names: Iterable[str], n: int = 3, cutoff: float = 0.6
) -> list[str]:
    """Return the *n* names nearest to *wanted_name*; *cutoff* is how alike, up to 1."""
    return difflib.get_close_matches(wanted_name, list(names), n, cutoff)


def is_raised_by_program(error: Exception) -> bool:
    """Return whether *error* is a signal handler's, which ran while weigh measured.

    The time limit that a program sets itself by SIGALRM must not get lost here.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            # only a handler has the frame that called it as an argument
            arguments = value if isinstance(value, tuple) else (value,)
            if any(argument is interrupted for argument in arguments):
                return True
    return False
