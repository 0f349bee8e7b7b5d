"""Scalene as a process: told what weigh is told, and followed to its end.

Scalene starts Python a second time and waits for it, so the program is a grandchild.
It puts a shell script in the place of ``sys.executable``, which a pool that stops its
workers stops in their place: the workers themselves may stay behind.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec

from weigh.measure.orphans import Orphans, send
from weigh.measure.subreaper import adopt_orphans
from weigh.probe.proc import ProcTree

_TOLD = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)
_SIGNAL_BASE = 128
_ROUND = 0.25  # seconds between looks at what weigh was told
_SETTLING = 0.05  # seconds; who signals a whole group is done by then
_PATIENCE = 2.0  # seconds for what is left behind to end by itself
_GRACE = 2.0  # seconds between TERM and KILL after that
_REAPING = 0.02


class Ended(msgspec.Struct, frozen=True):
    """How it ended; ``stopped`` counts processes that would have stayed behind."""

    exit_code: int
    stopped: int = 0


def run_scalene(argv: Sequence[str], env: Mapping[str, str]) -> Ended:
    """Run *argv* until the program has written its profile and nothing is left.

    A signal that asks weigh to end asks the program; the exit code is then 128 + n.
    """
    tree = ProcTree(os.getpid())
    tree.besides = frozenset(tree.children() or ())
    adopt_orphans()
    with _noted_signals() as told:
        scalene = _Scalene(subprocess.Popen(argv, env=dict(env)), told)
        code = scalene.follow()
        stopped = _stop_what_is_left(tree) if sys.platform == "linux" else 0
    return Ended(_SIGNAL_BASE + told[0] if told else code, stopped)


class _Scalene:
    """Scalene's first process, and the second, which is the program."""

    def __init__(self, process: subprocess.Popen[bytes], told: Sequence[int]) -> None:
        self._process = process
        self._told = told
        self._program: int | None = None
        self._passed_on = 0
        self._was_alive = True

    def follow(self) -> int:
        """Wait for both; give the exit code."""
        while (code := self._wait()) is None:
            if self._program is None:
                children = ProcTree(self._process.pid).children()
                self._program = children[0] if children else None
            self._pass_on_news()
        while _is_my_child(self._program):  # it writes its profile after Scalene's end
            time.sleep(_REAPING)
            self._pass_on_news()
        return code

    def _wait(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_ROUND)
        return None

    def _pass_on_news(self) -> None:
        for number in self._told[self._passed_on :]:
            self._passed_on += 1
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        """Signal the program, unless it was signalled with weigh.

        Where the whole group was, Scalene's first process is dead by now. Ctrl-C
        always goes to the group, and a second one would cost the profile.
        """
        time.sleep(_SETTLING)
        was_alive, self._was_alive = self._was_alive, self._process.poll() is None
        if number != signal.SIGINT and self._was_alive == was_alive:
            send(self._program or self._process.pid, number)


def _is_my_child(pid: int | None) -> bool:
    """Tell whether an adopted process still runs; collect it when it does not."""
    try:
        return pid is not None and os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Note the signals that would end weigh, in place of ending."""
    told: list[int] = []
    before = {n: signal.getsignal(n) for n in _TOLD}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, _frame: told.append(number))
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_what_is_left(tree: ProcTree) -> int:
    """Stop what has not ended in time by itself; give how many that were."""
    orphans = Orphans(tree, time.monotonic, _GRACE, None)
    end = time.monotonic() + _PATIENCE
    stopped = 0
    while _reap(tree) or orphans.are_left():
        if not stopped and time.monotonic() >= end:
            stopped = len(tree.read())
            orphans.stop()
        time.sleep(_REAPING)
    return stopped


def _reap(tree: ProcTree) -> bool:
    """Collect adopted processes that ended; tell whether there were any."""
    ended = []
    for pid in tree.children() or ():
        with suppress(ChildProcessError):
            ended.append(os.waitpid(pid, os.WNOHANG)[0])
    return any(ended)
