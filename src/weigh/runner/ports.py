"""Where the processes of one task meet: a port of its own, free on this node."""

import _socket  # what socket is made of: that takes 5 ms to import
import os
from collections.abc import Collection, Mapping

ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
_OWN = "WEIGH_PORT"
_TORCHRUN = "PET_MASTER_PORT"  # what torchrun's --master-port is by default
_NODES = "SLURM_JOB_NUM_NODES"
_TRIES = 50


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


def free_port(taken: Collection[int] = ()) -> int | None:
    """Find a port that nobody listens on, and none of *taken*.

    Those may be promised to tasks that do not listen yet. None where there is no
    network at all.
    """
    held: list[_socket.socket] = []  # as long as one is open it is not given again
    try:
        for _ in range(_TRIES):
            held.append(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
            held[-1].bind(("", 0))
            port: int = held[-1].getsockname()[1]
            if port not in taken:
                return port
    except OSError:
        return None
    finally:
        for one in held:
            one.close()
    return None
