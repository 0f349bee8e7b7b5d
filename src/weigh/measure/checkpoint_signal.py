"""The signal that makes a job write a checkpoint before its time limit."""

import os
import signal
from collections.abc import Iterator

import msgspec

from weigh.errors import FormatError
from weigh.probe.proc import ProcTree
from weigh.regular_file import file_head
from weigh.units import Seconds, parse_duration

NO_TIME_LIMIT = "no time limit is known, so no checkpoint signal: add --time"
# signals that have a handler, that are blocked; proc(5)
_MASKS = (b"SigCgt:", b"SigBlk:")
# the first two cannot be caught
_REFUSED = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


class CheckpointSignal(msgspec.Struct, frozen=True):
    """Which signal, and how many seconds before the limit."""

    number: int
    before: Seconds  # seconds before the time limit

    @property
    def name(self) -> str:
        """The signal's name, as in kill(1)."""
        return signal.Signals(self.number).name.removeprefix("SIG")


def parse_checkpoint_signal(text: str) -> CheckpointSignal:
    """Parse ``USR1@10m``; a signal number is also accepted.

    A time without a unit is in seconds, as in Slurm's ``--signal``.

    Raises:
        FormatError: the signal does not exist, or the time is missing.
    """
    word, at, time = text.partition("@")
    name = word.strip().upper().removeprefix("SIG")
    if not at or not time.strip():
        raise FormatError(f"{text!r} has no time: write it like USR1@10m")
    # a name or a number, as kill(1) takes both
    numbers = {one.name.removeprefix("SIG"): one for one in signal.Signals}
    numbers |= {str(one.value): one for one in signal.Signals}
    number = numbers.get(name)
    if number is None or number in _REFUSED:
        raise FormatError(f"{word!r} is no signal for this (write it like USR1@10m)")
    before = parse_duration(time, bare_unit=1)
    if before <= 0:
        raise FormatError(f"{text!r}: 0 s before the limit is too late")
    return CheckpointSignal(int(number), before)


def send_checkpoint_signal(
    leader: int, number: int, *, proc_folder: str = "/proc"
) -> int:
    """Signal the processes of a job that expect *number*; return how many there are.

    A process expects a signal that it has a handler for, or has blocked. Of processes
    below each other only the uppermost is signalled: a program, not its workers. One
    without a handler, such as a shell in between, would be killed. One that blocks the
    signal and starts programs that do not, such as ``weigh run``, is passed over too.
    Where /proc shows another pid namespace, no process is signalled.
    """
    sent = 0
    for pid in list(_awaiting(ProcTree(leader, proc_folder), leader, number)):
        try:
            os.kill(pid, number)
            sent += 1
        except (ProcessLookupError, PermissionError):
            continue
    return sent


def _awaiting(tree: ProcTree, pid: int, number: int) -> Iterator[int]:
    handles, blocks = _expects(tree, pid, number)
    if handles:
        yield pid
        return
    children = tree.children_of(pid)
    below = [one for child in children for one in _awaiting(tree, child, number)]
    if blocks and all(any(_expects(tree, child, number)) for child in children):
        below = [one for one in below if _expects(tree, one, number)[0]] or [pid]
    yield from below


def _expects(tree: ProcTree, pid: int, number: int) -> tuple[bool, bool]:
    """Return whether a process has a handler for a signal, and whether it blocks it."""
    status = file_head(f"{tree.folder(pid)}/status")
    words = [line.split() for line in status.split(b"\n")]
    masks = {one[0]: int(one[1], 16) for one in words if one and one[0] in _MASKS}
    # bit 0 of a mask is signal 1
    handles, blocks = (masks.get(name, 0) >> (number - 1) & 1 for name in _MASKS)
    return bool(handles), bool(blocks)
