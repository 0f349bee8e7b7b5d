"""This process's own memory: what it holds now, and the most since the last reset.

Files are opened anew for each reading: a program may close every descriptor it finds
(daemons do), and a write must never land in a file of the user's.
"""

import os
import sys
from typing import Protocol

from weigh.units import KIB, Bytes

_USUAL = 4096
_LONGEST = 1 << 20  # a process may be in 65,536 groups, and they come first
_MM_HIWATER_RSS = b"5"  # proc(5): reset VmHWM to VmRSS


class OwnMemory(Protocol):
    """A source of readings of this process."""

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Give (resident now, highest since the last reset); None if not to be had."""

    def reset(self) -> bool:
        """Let the high-water mark start anew; False where that is not allowed."""


class ProcMemory:
    """Linux: VmRSS and VmHWM of /proc/self/status, reset through clear_refs."""

    def __init__(self, folder: str = "/proc/self") -> None:
        self._status = f"{folder}/status"
        self._clear_refs = f"{folder}/clear_refs"

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Give (resident now, highest since the last reset); None if not to be had."""
        try:
            text = self._text(_USUAL)
            if b"\nVmRSS:" not in text:
                text = self._text(_LONGEST)
            at = text.index(b"\nVmHWM:")
            _, peak, _, _, resident, *_ = text[at : at + 100].split(None, 5)
            return int(resident) * KIB, int(peak) * KIB
        except (OSError, ValueError):
            return None

    def _text(self, size: int) -> bytes:
        descriptor = os.open(self._status, os.O_RDONLY)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)

    def reset(self) -> bool:
        """Let the high-water mark start anew; False where that is not allowed."""
        try:
            descriptor = os.open(self._clear_refs, os.O_WRONLY)
        except OSError:
            return False
        try:
            return os.write(descriptor, _MM_HIWATER_RSS) == 1
        except OSError:
            return False
        finally:
            os.close(descriptor)


class PsutilMemory:
    """macOS and Windows, where the mark cannot be reset."""

    def __init__(self) -> None:
        """Raises ImportError where psutil is missing."""
        import psutil  # noqa: PLC0415 - never on Linux

        self._process = psutil.Process()

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Give (resident now, highest of the process); None if not to be had."""
        info = self._process.memory_info()
        highest = getattr(info, "peak_wset", None)
        if highest is None:
            import resource  # noqa: PLC0415 - not on Windows

            highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            highest *= 1 if sys.platform == "darwin" else KIB  # macOS counts bytes
        return int(info.rss), max(int(highest), int(info.rss))

    def reset(self) -> bool:
        """Refuse: no such call here."""
        return False


class NoMemory:
    """Nothing tells."""

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Give None."""
        return None

    def reset(self) -> bool:
        """Refuse."""
        return False


def own_memory() -> OwnMemory:
    """Choose what this machine offers."""
    if os.path.exists("/proc/self/status"):
        return ProcMemory()
    try:
        return PsutilMemory()
    except ImportError:
        return NoMemory()
