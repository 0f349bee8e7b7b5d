"""Read a process from /proc, with one small read."""

import os

import msgspec

from weigh.probe.proc import usable_proc
from weigh.regular_file import file_head
from weigh.units import Bytes, Seconds

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_STAT_BYTES = 4096  # more than a process has to say
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class UserProcess(msgspec.Struct, frozen=True, gc=False):
    """One process now; ``pid`` and ``start_ticks`` together identify it.

    ``cpu_time`` is its own, ``reaped_time`` that of the children it has waited for.
    ``resident`` is the kernel's RSS: pages shared with others count in each.
    """

    pid: int
    name: str
    start_ticks: int
    cpu_time: Seconds
    reaped_time: Seconds
    resident: Bytes


def parse_process(pid: int, text: bytes) -> UserProcess | None:
    """Parse /proc/PID/stat; None if it has another form."""
    # the name may hold blanks and parentheses itself
    start, end = text.find(b"("), text.rfind(b")")
    words = text[end + 2 :].split()
    try:
        return UserProcess(
            pid,
            name=text[start + 1 : end].decode("utf-8", "replace"),
            start_ticks=int(words[19]),
            cpu_time=(int(words[11]) + int(words[12])) / _CLOCK_TICKS,
            reaped_time=(int(words[13]) + int(words[14])) / _CLOCK_TICKS,
            resident=int(words[21]) * _PAGE,
        )
    except (IndexError, ValueError):
        return None


def read_process(pid: int, root: str = "/proc") -> UserProcess | None:
    """Read one process; None if it has ended or is hidden."""
    return parse_process(pid, file_head(f"{usable_proc(root)}/{pid}/stat", _STAT_BYTES))


def has_ended(pid: int, root: str = "/proc") -> bool:
    """Return whether a process is gone, or a zombie that its parent has not reaped.

    A first thread that ended before the others is a zombie too, but they go on.
    """
    text = file_head(f"{root}/{pid}/stat", _STAT_BYTES)
    words = text[text.rfind(b")") + 2 :].split()
    return not words or (words[0] in b"ZX" and words[17:18] in ([b"0"], [b"1"]))
