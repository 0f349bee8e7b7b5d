"""Where the processes of one task meet: a port of its own, free on this node."""

import _socket  # what socket is made of: that takes 5 ms to import
import os
from collections.abc import Mapping

ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
_OWN = "WEIGH_PORT"
_TORCHRUN = "PET_MASTER_PORT"  # what torchrun's --master-port is by default
_NODES = "SLURM_JOB_NUM_NODES"


def meeting_place(env: Mapping[str, str]) -> dict[str, str]:
    """Give the address to meet at: of this node where a job has several.

    Nothing where the user said one.
    """
    if ADDRESS in env:
        return {}
    several = env.get(_NODES, "1") not in {"", "0", "1"}
    return {ADDRESS: os.uname().nodename if several else "127.0.0.1"}


def port_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Name the variables that a task's port goes into: those the user did not set."""
    return (_OWN, *(name for name in (PORT, _TORCHRUN) if name not in env))


def free_port() -> int | None:
    """Find a port that nobody listens on; None where there is no network at all."""
    try:
        one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
    except OSError:
        return None
    finally:
        one.close()
    return port
