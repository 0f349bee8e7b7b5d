"""Processes at known moments: forks that peak together, daemons, burners."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn


def together(bodies: Sequence[Callable[[], int]], *, hold: float) -> int:
    """Fork one child a body, keep them all alive for *hold* seconds, sum their answers.

    The clock starts when the last child is ready, so that they peak together.
    """
    ready, telling = os.pipe()
    waiting, cue = os.pipe()

    def child(body: Callable[[], int]) -> None:
        os.close(cue)
        os.write(telling, body().to_bytes(8, "little"))
        os.close(telling)
        os.read(waiting, 1)  # ends when the parent closes the cue

    pids = [fork(partial(child, body)) for body in bodies]
    os.close(telling)  # so that a child that fails ends the reading too
    answers = [int.from_bytes(os.read(ready, 8), "little") for _ in pids]
    time.sleep(hold)
    for descriptor in (cue, waiting, ready):
        os.close(descriptor)
    for pid in pids:
        wait(pid)
    return sum(answers)


def fork(body: Callable[[], object]) -> int:
    """Run *body* in a child process that ends with it."""
    pid = os.fork()
    if pid == 0:
        _end_with(body)
    return pid


def _end_with(body: Callable[[], object]) -> NoReturn:
    try:
        body()
    except BaseException as error:  # noqa: BLE001 - a child must never return
        print(f"{sys.argv[0]}: {error!r}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> None:
    """Reap a child that must have succeeded."""
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit(f"{sys.argv[0]}: a child failed")


def daemonise(body: Callable[[], object] | None) -> bool:
    """Double-fork a daemon that runs *body* and ends, or goes on here if None.

    Returns:
        Whether this is the leader and not the daemon.
    """
    pid = os.fork()
    if pid:
        wait(pid)
        return True
    os.setsid()
    if os.fork():
        os._exit(0)
    if body:
        _end_with(body)
    return False


def burn(seconds: float = 0.015) -> None:
    """Use that much CPU time of a process that has used none before."""
    while time.process_time() < seconds:
        pass
