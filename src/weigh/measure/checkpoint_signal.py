"""The signal that tells a job to write a checkpoint before its time is over."""

import os
import signal
from collections.abc import Iterator

import msgspec

from weigh.errors import FormatError
from weigh.probe.proc import usable_proc
from weigh.units import Seconds, parse_duration

_REFUSED = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


class CheckpointSignal(msgspec.Struct, frozen=True):
    """Which signal, and how many seconds before the limit."""

    number: int
    before: Seconds

    @property
    def name(self) -> str:
        """Give its name, as in kill(1)."""
        return signal.Signals(self.number).name.removeprefix("SIG")


def parse_checkpoint_signal(text: str) -> CheckpointSignal:
    """Read ``USR1@10m``; the number of a signal does as well.

    Raises:
        FormatError: there is no such signal, or no time.
    """
    word, at, time = text.partition("@")
    name = word.strip().upper().removeprefix("SIG")
    if not at or not time.strip():
        raise FormatError(f"{text!r} has no time: write it like USR1@10m")
    numbers = {one.name.removeprefix("SIG"): one for one in signal.Signals}
    numbers |= {str(one.value): one for one in signal.Signals}
    number = numbers.get(name)
    if number is None or number in _REFUSED:
        raise FormatError(f"{word!r} is no signal for this (write it like USR1@10m)")
    before = parse_duration(time)
    if before <= 0:
        raise FormatError(f"{text!r}: 0 s before the limit is too late")
    return CheckpointSignal(int(number), before)


def send_checkpoint_signal(leader: int, number: int, *, proc: str = "/proc") -> int:
    """Signal those of a job's processes that await *number*; count them.

    Of processes below each other the uppermost counts: a program, not its workers. One
    that has no handler, as a shell in between, would only be ended by it. Where /proc
    shows another pid namespace, nobody is signalled.
    """
    sent = 0
    for pid in list(_awaiting(leader, number, usable_proc(proc))):
        try:
            os.kill(pid, number)
            sent += 1
        except (ProcessLookupError, PermissionError):
            continue
    return sent


def _awaiting(pid: int, number: int, proc: str) -> Iterator[int]:
    if _awaits(pid, number, proc):
        yield pid
        return
    for child in _children(pid, proc):
        yield from _awaiting(child, number, proc)


def _awaits(pid: int, number: int, proc: str) -> bool:
    """Tell whether a process has a handler for a signal, or waits for it blocked."""
    masks = {b"SigCgt:", b"SigBlk:"}
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            words = [line.split() for line in file]
    except OSError:
        return False
    found = [int(one[1], 16) for one in words if len(one) > 1 and one[0] in masks]
    return any(mask >> (number - 1) & 1 for mask in found)


def _children(pid: int, proc: str) -> list[int]:
    try:
        threads = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return []
    found = []
    for thread in threads:
        try:
            with open(f"{proc}/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:  # it ended just now; other threads have children, too
            continue
    return found
