"""The facts that ``weigh doctor`` collects about this machine, and its checks.

Units are bytes and seconds; ``None`` means unknown or, for a limit, unlimited.
"""

from typing import Literal

import msgspec

from weigh.units import Bytes, Seconds

SCHEMA = "weigh.doctor/1"

CheckState = Literal["ok", "warning", "broken"]


class Check(msgspec.Struct, frozen=True):
    """One check: its result, and what to do about a problem."""

    name: str
    state: CheckState
    text: str
    cure: str | None = None


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, its file system, and the space left for this user.

    ``role`` is its use: home, scratch. ``is_shared`` is set if the type of file system
    is one that other machines mount, too.
    """

    role: str
    path: str
    kind: str | None = None
    mount: str | None = None
    is_shared: bool | None = None
    size: Bytes | None = None
    free: Bytes | None = None
    files: int | None = None
    files_free: int | None = None
    writable: bool | None = None
    trouble: str | None = None


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``quota``: the usage, and the lower of the two limits, if any."""

    file_system: str
    used: Bytes
    limit: Bytes | None = None
    files: int = 0
    files_limit: int | None = None


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


class SchedulerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler of which some commands were found, and whether it answers."""

    name: str
    found: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    trouble: str | None = None


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of this machine; ``cuda`` is the newest version the driver supports.

    ``absence`` is why there are none, ``trouble`` why they cannot be read.
    """

    names: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    absence: str | None = None
    trouble: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The soft limits of one process; None means unlimited.

    ``core_is_piped`` is set if core dumps go to a system program, not to a file.
    """

    open_files: int | None = None
    most_open_files: int | None = None
    processes: int | None = None
    locked_memory: Bytes | None = None
    core: Bytes | None = 0
    core_is_piped: bool = False
    address_space: Bytes | None = None
    cpu_time: Seconds | None = None
    file_size: Bytes | None = None
    has_fast_network: bool = False


class Memory(msgspec.Struct, frozen=True):
    """The tightest memory limit here; ``is_grouped`` if it is that of a cgroup."""

    used: Bytes
    limit: Bytes
    is_grouped: bool


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Which of weigh's measurements work here."""

    perf_event: bool = False
    cgroup_peak: bool = False
    oom_kills: bool = False
    shared_pages: bool = False
    high_water: bool = False
    storage: bool = False
    processes: bool = True


class Git(msgspec.Struct, frozen=True, kw_only=True):
    """A checkout: the number of changed or new files, and of commits not pushed."""

    changed: int = 0
    untracked: int = 0
    ahead: int | None = None
    upstream: str | None = None
    commit: str | None = None


class Path(msgspec.Struct, frozen=True):
    """A file or folder that a job names, and its file system."""

    path: str
    kind: str | None
    is_shared: bool | None


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job before it is submitted.

    ``file`` is the plan or script; ``runs`` is the number of records that its request
    is based on, ``gpu_runs`` the number of those that used a GPU.
    """

    file: str | None = None
    kind: Literal["plan", "script"] | None = None
    trouble: str | None = None
    tasks: int | None = None
    missing_files: tuple[str, ...] = ()
    asks_gpus: bool | None = None
    git: Git | None = None
    git_trouble: str | None = None
    data: tuple[Path, ...] = ()
    activates: str | None = None
    environment: PythonEnvironment | None = None
    runs: int = 0
    gpu_runs: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts; None is unknown, or does not apply here.

    ``torch_trouble`` is why torch cannot use the GPU of this machine.
    """

    host: str = ""
    job_id: str | None = None
    schedulers: tuple[SchedulerFacts, ...] = ()
    python: str | None = None
    interpreter: Disk | None = None
    environment: PythonEnvironment | None = None
    conda_prefix: str | None = None
    virtual_env: str | None = None
    gpus: GpuFacts = GpuFacts()
    torch_trouble: str | None = None
    disks: tuple[Disk, ...] = ()
    quotas: tuple[Quota, ...] = ()
    limits: Limits | None = None
    memory: Memory | None = None
    clock_skew: Seconds | None = None
    clock_disk: str | None = None
    reach: Reach | None = None
    store: Disk | None = None
    job: JobFacts | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result: checks of the machine, then of the job if one was named."""

    schema: str = SCHEMA
    host: str
    checks: tuple[Check, ...]
    job: tuple[Check, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Return whether something must be fixed before a job can run."""
        return any(check.state == "broken" for check in (*self.checks, *self.job))
