"""Choose the scheduler, and set up the connection to it."""

import os
import shutil
import time
from collections.abc import Mapping

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.flow.here import Here, here_of
from weigh.probe.host import may_be_login_node
from weigh.schedulers import KINDS, client, kind_or_first
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.client import SchedulerClient, SchedulerReach
from weigh.schedulers.command import run_scheduler_command
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store.identity import this_machine
from weigh.units import Seconds, parse_duration

NAMES = (*KINDS, LOCAL)
_PACE = "WEIGH_POLL"  # a duration: how long an answer stays valid
CLUSTER_MARK = "@"  # between a scheduler and a cluster's name: slurm@gpu


class NamedCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several clusters: its scheduler, and the environment that selects it."""

    scheduler: str
    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown scheduler."""
        if self.scheduler not in KINDS:
            raise ValueError(f"no such scheduler: {self.scheduler!r}")


def available_schedulers(env: Mapping[str, str]) -> list[str]:
    """Return the schedulers whose command is on PATH, and at last this machine.

    Not this machine where its user came by ssh and a scheduler is installed: that may
    be a login node, which runs no jobs.
    """
    names = schedulers_on_path(env)
    commands = [KINDS[name].submits for name in names]
    job_variables = [kind.job_variable for kind in KINDS.values()]
    if not may_be_login_node(env, commands, job_variables):
        names.append(LOCAL)
    return names


def installed_scheduler(env: Mapping[str, str]) -> str:
    """Return the scheduler whose command is on PATH; the table's first if none is."""
    return kind_or_first(next(iter(schedulers_on_path(env)), None)).name


def schedulers_on_path(env: Mapping[str, str]) -> list[str]:
    """Return the schedulers whose command to submit is on PATH."""
    path = env.get("PATH", "")
    return [n for n, kind in KINDS.items() if shutil.which(kind.submits, path=path)]


def reach(here: Here, name: str) -> Scheduler:
    """Return the scheduler called *name*, which reads and writes the store.

    Raises:
        UsageError: there is no scheduler of that name.
        FormatError: WEIGH_POLL is not a time.
    """
    if name == LOCAL:
        return LocalScheduler(env=here.env, root=here.root, machine=this_machine())
    kind = kind_of_cluster_name(name)
    if kind not in KINDS:
        raise UsageError(f"no such scheduler: {name} (one of {', '.join(NAMES)})")
    env = environment_of_cluster(name, here.env)
    way = SchedulerReach(
        run=run_scheduler_command,
        env=env,
        root=here.root,
        user=current_user(),
        clock=time.time,
        interval=_poll_interval(env),
    )
    client = SchedulerClient(KINDS[kind].backend, way)
    client.name = name  # the cache of its answers has this name
    return client


def environment_of_cluster(name: str, env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment in which the commands of *name* reach its cluster.

    Raises:
        UsageError: the settings have no such cluster.
        FormatError: the cluster's table is invalid.
    """
    cluster = name.partition(CLUSTER_MARK)[2]
    if not cluster:
        return env
    return {**env, **find_cluster(here_of(os.getcwd(), env), cluster).env}


def kind_of_cluster_name(name: str) -> str:
    """Return the scheduler of ``slurm@gpu``, one of several clusters: ``slurm``."""
    return name.partition(CLUSTER_MARK)[0]


def find_cluster(here: Here, name: str) -> NamedCluster:
    """Read a cluster's settings: ``[cluster.named.NAME]``.

    Raises:
        UsageError: the settings have no such cluster.
        FormatError: the cluster's table is invalid.
    """
    table = here.settings.cluster.get("named", {})
    known = table if isinstance(table, dict) else {}
    if name not in known:
        others = ", ".join(map(str, known)) or "none"
        raise UsageError(
            f"no cluster {name!r} in the settings, which have {others} "
            f"(add a table [cluster.named.{name}] to weigh.toml)"
        )
    try:
        return msgspec.convert(known[name], NamedCluster)
    except msgspec.ValidationError as error:
        raise FormatError(f"cluster.named.{name}: {error}") from error


def _poll_interval(env: Mapping[str, str]) -> Seconds:
    """Return how long an answer stays valid; WEIGH_POLL changes it."""
    text = env.get(_PACE)
    if not text:
        return client.INTERVAL
    try:
        return parse_duration(text)
    except FormatError as error:
        raise FormatError(f"{_PACE}: {error}") from error


def current_user() -> str:
    """Return our user name; the user id if there is no name."""
    try:
        import pwd  # noqa: PLC0415 - not on Windows
    except ImportError:
        return os.environ.get("USERNAME", "")
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
