"""Choose the scheduler, and set up the connection to it."""

import os
import time
from collections.abc import Mapping

from weigh.errors import FormatError, UsageError
from weigh.flow.here import Here
from weigh.measure.launcher import first_environment
from weigh.probe.host import may_be_login_node
from weigh.schedulers import (
    JOB_VARIABLES,
    KINDS,
    SUBMITS,
    client,
    schedulers_on_path,
)
from weigh.schedulers.client import SchedulerClient, SchedulerReach
from weigh.schedulers.command import run_scheduler_command
from weigh.schedulers.reachable import Scheduler
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store.identity import this_machine
from weigh.units import Seconds, parse_duration

NAMES = (*KINDS, LOCAL)
_PACE = "WEIGH_POLL"  # a duration: how long an answer stays valid


def available_schedulers(env: Mapping[str, str]) -> list[str]:
    """Return the schedulers whose command is on PATH, and at last this machine.

    Not this machine where its user came by ssh and a scheduler is installed: that may
    be a login node, which runs no jobs.
    """
    names = schedulers_on_path(env)
    commands = [SUBMITS[name] for name in names]
    if not may_be_login_node(env, commands, [*JOB_VARIABLES.values()]):
        names.append(LOCAL)
    return names


def reach(here: Here, name: str) -> Scheduler:
    """Return the scheduler called *name*, which reads and writes the store.

    Raises:
        UsageError: there is no scheduler of that name.
        FormatError: WEIGH_POLL is not a time.
    """
    env = _environment_of_jobs(here.env)
    if name == LOCAL:
        return LocalScheduler(env=env, root=here.root, machine=this_machine())
    if name not in KINDS:
        raise UsageError(f"no such scheduler: {name} (one of {', '.join(NAMES)})")
    way = SchedulerReach(
        run=run_scheduler_command,
        env=env,
        root=here.root,
        user=current_user(),
        clock=time.time,
        interval=_poll_interval(here.env),
    )
    return SchedulerClient(KINDS[name], way)


def _environment_of_jobs(env: Mapping[str, str]) -> dict[str, str]:
    """Return *env* without the LC_CTYPE that the interpreter sets in a C locale."""
    is_added = "LC_CTYPE" in env and b"LC_CTYPE" not in first_environment()
    return {
        key: value for key, value in env.items() if key != "LC_CTYPE" or not is_added
    }


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
