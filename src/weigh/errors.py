"""Every error that weigh raises on purpose, each with its exit code.

    WeighError                125   weigh itself could not do it
    ├── UsageError              2   the user's words are off; says the right ones
    ├── CommandNotFoundError  127   no such command on PATH
    ├── CommandNotExecutableError
    │                         126   there, but cannot be executed
    ├── StoreError            125   records cannot be read or written
    │   └── RecordNotFoundError 2   no such record; offers the nearest names
    ├── SchemaError           125   a record from a newer weigh
    ├── GpuError              125   a GPU's driver is here and does not answer
    │   └── NoGpuError        125   there is none: nothing to read, nothing broken
    ├── SchedulerError        125   a scheduler is not here, refuses or is silent
    │   └── SubmissionUnknownError
    │                         125   no answer: the job may have been accepted
    └── FormatError             2   a file or value that does not parse

The exit codes 125 to 127 are those of env(1), timeout(1) and nohup(1).
"""


class WeighError(Exception):
    """An error with one clear line for the user and an exit code."""

    exit_code = 125


class UsageError(WeighError):
    """What the user typed cannot be carried out as it stands."""

    exit_code = 2


class CommandNotFoundError(WeighError):
    """The command to run does not exist."""

    exit_code = 127


class CommandNotExecutableError(WeighError):
    """The command to run exists and cannot be executed."""

    exit_code = 126


class StoreError(WeighError):
    """The record store cannot be read or written."""


class RecordNotFoundError(StoreError):
    """No record answers to that name."""

    exit_code = 2


class SchemaError(WeighError):
    """A record was written by a newer weigh, in a schema this one does not know."""


class GpuError(WeighError):
    """A GPU's driver does not answer as it should."""


class NoGpuError(GpuError):
    """No GPU's driver is here, or it has no GPU: nothing is broken."""


class SchedulerError(WeighError):
    """A scheduler is not here, refuses what was asked, or does not answer."""


class SubmissionUnknownError(SchedulerError):
    """A submission got no answer: the scheduler may have accepted the job."""


class FormatError(WeighError):
    """Text from outside does not parse as what it should be."""

    exit_code = 2
