"""Which scheduler to talk to, and how to reach each."""

import os
import pwd
import shutil
import time
from collections.abc import Mapping

from weigh.errors import FormatError, UsageError
from weigh.scheduler import gridengine, poll, slurm
from weigh.scheduler.backend import Backend
from weigh.scheduler.client import Client, Reach
from weigh.scheduler.command import run
from weigh.scheduler.local import NAME as LOCAL
from weigh.scheduler.local import Local
from weigh.scheduler.scheduler import Scheduler
from weigh.store.identity import this_machine
from weigh.units import Seconds, parse_duration

BACKENDS: dict[str, Backend] = {slurm.NAME: slurm, gridengine.NAME: gridengine}
NAMES = (slurm.NAME, gridengine.NAME, LOCAL)
_COMMANDS = {slurm.NAME: "sbatch", gridengine.NAME: "qsub"}
_PACE = "WEIGH_POLL"


def at_hand(env: Mapping[str, str]) -> str:
    """Name the scheduler whose command is on PATH; this machine where none is."""
    path = env.get("PATH", "")
    for name, command in _COMMANDS.items():
        if shutil.which(command, path=path):
            return name
    return LOCAL


def reach(name: str, *, root: str, env: Mapping[str, str]) -> Scheduler:
    """Give the scheduler called *name*; *root* is the store.

    Raises:
        UsageError: there is none of that name.
        FormatError: WEIGH_POLL is no time.
    """
    if name == LOCAL:
        return Local(env=env, root=root, machine=this_machine())
    if name not in BACKENDS:
        raise UsageError(f"no such scheduler: {name} (one of {', '.join(NAMES)})")
    way = Reach(
        run=run,
        env=env,
        root=root,
        user=_user(),
        clock=time.time,
        interval=_interval(env),
    )
    return Client(BACKENDS[name], way)


def _interval(env: Mapping[str, str]) -> Seconds:
    """Read how long an answer is good for; WEIGH_POLL changes it."""
    text = env.get(_PACE)
    if not text:
        return poll.INTERVAL
    try:
        return float(parse_duration(text))
    except FormatError as error:
        raise FormatError(f"{_PACE}: {error}") from error


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
