"""Decide whether this machine is a login node, and warn about it once a day."""

import os
import time
from collections.abc import Iterator, Mapping

from weigh.flow.site.ask import CommandRunner, ask_scheduler
from weigh.schedulers import JOB_VARIABLES, KINDS
from weigh.units import DAY, Seconds

WARNING = "this is a login node: heavy work belongs on a compute node"
_PATIENCE = 2.0  # the run has ended, and its user waits


def login_node_warning(
    *,
    given: bool | None,
    root: str,
    host_name: str,
    env: Mapping[str, str],
    run_command: CommandRunner = ask_scheduler,
) -> str | None:
    """Return the warning if this is a login node; None if not, or if shown today.

    *given* is what the settings say, None to find out. A file in the store *root*
    keeps when the question was last answered for *host_name*, so the scheduler is asked
    at most once a day.
    """
    stamp = os.path.join(root, f"login-node.{_short_host_name(host_name)}")
    # without a store the answer cannot be kept, and each run would query again
    if not os.path.isdir(root) or _is_fresh(stamp, time.time()):
        return None
    found = is_login_node(host_name, env, run_command) if given is None else given
    _touch(stamp)
    return WARNING if found else None


def is_login_node(
    host_name: str, env: Mapping[str, str], run_command: CommandRunner = ask_scheduler
) -> bool:
    """Return whether *host_name* submits to compute nodes and is not one of them."""
    # within a job this is a compute node
    if any(name in env for name in JOB_VARIABLES.values()):
        return False
    return any(
        # a scheduler that does not answer yields no nodes, and decides nothing
        nodes and _short_host_name(host_name) not in nodes
        for nodes in _compute_nodes(env, run_command)
    )


def _compute_nodes(
    env: Mapping[str, str], run_command: CommandRunner
) -> Iterator[frozenset[str]]:
    """Yield the short names of the nodes of each scheduler that answers."""
    for kind in KINDS.values():
        reply = run_command(kind.nodes_argv, env=env, patience=_PATIENCE)
        yield frozenset(map(_short_host_name, (reply.text or "").split()))


def _short_host_name(host_name: str) -> str:
    return host_name.partition(".")[0].lower()


def _is_fresh(stamp: str, current_time: Seconds) -> bool:
    try:
        return 0 <= current_time - os.lstat(stamp).st_mtime < DAY
    except OSError:
        return False


def _touch(stamp: str) -> None:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        os.close(os.open(stamp, flags, 0o666))
        os.utime(stamp, follow_symlinks=False)
    except OSError:
        return  # the warning comes again
