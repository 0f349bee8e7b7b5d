"""The checks of ``weigh doctor``, and what they look at.

Units are bytes and seconds; ``None`` means unknown or, for a limit, unlimited.
"""

from typing import Literal

import msgspec

from weigh.units import Bytes

SCHEMA = "weigh.doctor/1"

CheckState = Literal["ok", "warning", "broken"]


class DoctorCheck(msgspec.Struct, frozen=True):
    """One check: its result, and what to do about a problem."""

    name: str
    state: CheckState
    text: str
    cure: str | None = None


class DiskSpace(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, its file system, and the space left for this user.

    ``is_shared`` is set if the type of file system is one that other machines mount,
    too.
    """

    path: str
    kind: str | None = None  # type of the file system, as mounted
    is_shared: bool | None = None
    size: Bytes | None = None
    free: Bytes | None = None
    files_free: int | None = None  # inodes left; None: without a limit
    writable: bool | None = None
    trouble: str | None = None  # why the folder cannot be used


class TorchBuild(msgspec.Struct, frozen=True):
    """An installed torch, and the ``cuda`` (or ``hip``) it was built for, if any."""

    version: str
    cuda: str | None = None
    hip: str | None = None


class PythonEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of the ``python`` that a command would start."""

    kind: Literal["conda", "venv", "system", "none"]
    prefix: str | None = None
    name: str | None = None
    torch: TorchBuild | None = None


class DoctorDiagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result: checks of the machine, then of the job if one was named."""

    schema: str = SCHEMA
    host: str
    checks: tuple[DoctorCheck, ...]
    job: tuple[DoctorCheck, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Return whether something must be fixed before a job can run."""
        return any(check.state == "broken" for check in (*self.checks, *self.job))
