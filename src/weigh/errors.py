"""Every error that weigh raises on purpose, each with its exit code.

    WeighError                125   weigh itself failed
    ├── UsageError              2   an invalid command line; shows a valid one
    ├── CommandNotFoundError  127   no such command on PATH
    ├── CommandNotExecutableError
    │                         126   the command exists, but cannot be executed
    ├── StoreError            125   records cannot be read or written
    │   └── RecordNotFoundError 2   no such record; the message offers the nearest names
    ├── SchemaError           125   a record from a newer weigh
    ├── GpuError              125   the GPU driver does not answer
    │   └── NoGpuError        125   no GPU found: nothing is broken
    ├── SchedulerError        125   a scheduler is missing, refuses or does not answer
    │   └── SubmissionUnknownError
    │                         125   no answer: the job may have been accepted
    └── FormatError             2   a file or value that does not parse

The exit codes 125 to 127 are those of env(1), timeout(1) and nohup(1).
"""


class WeighError(Exception):
    """An error with one clear line for the user and an exit code."""

    exit_code = 125


class UsageError(WeighError):
    """The command line is invalid, or asks for something impossible."""

    exit_code = 2


class CommandNotFoundError(WeighError):
    """The command to run does not exist."""

    exit_code = 127


class CommandNotExecutableError(WeighError):
    """The command to run exists, but cannot be executed."""

    exit_code = 126


class StoreError(WeighError):
    """The record store cannot be read or written."""


class RecordNotFoundError(StoreError):
    """There is no record of that name."""

    exit_code = 2


class SchemaError(WeighError):
    """A record was written by a newer weigh in an unknown schema."""


class GpuError(WeighError):
    """The GPU driver does not answer correctly."""


class NoGpuError(GpuError):
    """No GPU or GPU driver was found: nothing is broken."""


class SchedulerError(WeighError):
    """A scheduler is missing, refuses a request, or does not answer."""


class SubmissionUnknownError(SchedulerError):
    """A submission got no answer, so the scheduler may have accepted the job."""


class FormatError(WeighError):
    """A file or value does not parse."""

    exit_code = 2
