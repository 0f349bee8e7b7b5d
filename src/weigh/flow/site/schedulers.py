"""Which scheduler to talk to, and how to reach each."""

import os
import shutil
import time
from collections.abc import Mapping
from typing import Literal

import msgspec

from weigh import config
from weigh.errors import FormatError, UsageError
from weigh.schedulers import client
from weigh.schedulers.client import Client, Reach
from weigh.schedulers.command import run
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.schedulers.local.jobs import Local
from weigh.schedulers.protocol import Backend, Scheduler
from weigh.schedulers.slurm import commands as slurm_commands
from weigh.store.identity import this_machine
from weigh.units import Seconds, parse_duration

BACKENDS: dict[str, Backend] = {
    slurm_commands.NAME: slurm_commands,
    gridengine_commands.NAME: gridengine_commands,
}
NAMES = (slurm_commands.NAME, gridengine_commands.NAME, LOCAL)
_COMMANDS = {slurm_commands.NAME: "sbatch", gridengine_commands.NAME: "qsub"}
_PACE = "WEIGH_POLL"
CLUSTER_MARK = "@"


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several clusters: its scheduler, the variables by which it is reached.

    ``prefetch`` is the cluster whose nodes download what jobs here need.
    """

    scheduler: Literal["slurm", "gridengine"]
    env: dict[str, str] = {}
    prefetch: str | None = None


def at_hand(env: Mapping[str, str]) -> str:
    """Name the scheduler whose command is on PATH; this machine where none is."""
    path = env.get("PATH", "")
    for name, command in _COMMANDS.items():
        if shutil.which(command, path=path):
            return name
    return LOCAL


def scheduler_at_hand(env: Mapping[str, str]) -> str:
    """Return the scheduler whose commands are on PATH; Slurm where in doubt."""
    path = env.get("PATH", "")
    if shutil.which("qsub", path=path) and not shutil.which("sbatch", path=path):
        return gridengine_commands.NAME
    return slurm_commands.NAME


def reach(name: str, *, root: str, env: Mapping[str, str]) -> Scheduler:
    """Give the scheduler called *name*; *root* is the store.

    Raises:
        UsageError: there is none of that name.
        FormatError: WEIGH_POLL is no time.
    """
    if name == LOCAL:
        return Local(env=env, root=root, machine=this_machine())
    kind = kind_of(name)
    if kind not in BACKENDS:
        raise UsageError(f"no such scheduler: {name} (one of {', '.join(NAMES)})")
    env = reaching(name, env)
    way = Reach(
        run=run,
        env=env,
        root=root,
        user=current_user(),
        clock=time.time,
        interval=_interval(env),
    )
    client = Client(BACKENDS[kind], way)
    client.name = name  # what it answers is kept by it
    return client


def reaching(name: str, env: Mapping[str, str]) -> Mapping[str, str]:
    """Give the environment in which the commands of *name* find their cluster.

    Raises:
        UsageError: the settings name no such cluster.
        FormatError: what they say is no such table.
    """
    cluster = name.partition(CLUSTER_MARK)[2]
    if not cluster:
        return env
    return {**env, **find_cluster(cluster, os.getcwd(), env).env}


def kind_of(name: str) -> str:
    """Give the scheduler of ``slurm@gpu``: one of several clusters."""
    return name.partition(CLUSTER_MARK)[0]


def find_cluster(name: str, cwd: str, env: Mapping[str, str]) -> Named:
    """Read what the settings say of a cluster: ``[cluster.named.NAME]``.

    Raises:
        UsageError: they name none so.
        FormatError: what they say is no such table.
    """
    table = config.load(cwd, env).cluster.get("named", {})
    known = table if isinstance(table, dict) else {}
    if name not in known:
        others = ", ".join(map(str, known)) or "none"
        raise UsageError(
            f"the settings name no cluster {name!r} but {others} "
            f"(a table [cluster.named.{name}] in weigh.toml does)"
        )
    try:
        return msgspec.convert(known[name], Named)
    except msgspec.ValidationError as error:
        raise FormatError(f"cluster.named.{name}: {error}") from error


def _interval(env: Mapping[str, str]) -> Seconds:
    """Read how long an answer is good for; WEIGH_POLL changes it."""
    text = env.get(_PACE)
    if not text:
        return client.INTERVAL
    try:
        return parse_duration(text)
    except FormatError as error:
        raise FormatError(f"{_PACE}: {error}") from error


def current_user() -> str:
    """Return our name at a scheduler; the number where there is no name."""
    try:
        import pwd  # noqa: PLC0415 - not on Windows
    except ImportError:
        return os.environ.get("USERNAME", "")
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
