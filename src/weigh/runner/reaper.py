"""Collect children that ended, each with its exact usage."""

import os
import time

import msgspec

from weigh.units import KIB, Bytes, Seconds

_READ, _WRITTEN = 9, 11  # words of /proc/PID/io


class ReapedChild(msgspec.Struct, frozen=True, gc=False):
    """A child that ended, with the usage of it and of the children it waited for."""

    pid: int  # no longer in use: the kernel may give it to another process
    status: int  # as wait4 reports it
    at: Seconds  # on the monotonic clock
    user: Seconds
    system: Seconds
    max_rss: Bytes  # of the largest process, not their sum
    read_bytes: Bytes
    write_bytes: Bytes


class ChildReaper:
    """Reaps children one at a time.

    When a child is reaped, the kernel adds its storage traffic to ours, so the
    difference is exactly the child's traffic.
    """

    def __init__(self) -> None:
        try:
            self._io: int | None = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._io = None

    def reap(self) -> list[ReapedChild]:
        """Return the children that have ended since the last call."""
        found: list[ReapedChild] = []
        read, written = self._traffic()
        while True:
            try:
                # one by one, so that each difference in traffic has one owner
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            at = time.monotonic()
            read_then, written_then = read, written
            read, written = self._traffic()
            found.append(
                ReapedChild(
                    pid,
                    status,
                    at,
                    used.ru_utime,
                    used.ru_stime,
                    used.ru_maxrss * KIB,
                    read - read_then,
                    written - written_then,
                )
            )

    def _traffic(self) -> tuple[Bytes, Bytes]:
        if self._io is None:
            return 0, 0
        words = os.pread(self._io, 512, 0).split()
        return int(words[_READ]), int(words[_WRITTEN])
