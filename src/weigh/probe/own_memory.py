"""This process's own memory: the current size, and the peak since the last reset.

Files are opened for each reading: a program may close all descriptors (daemons do), and
a write must never go to a file of the user. Unlike those of ``os``, the calls keep the
interpreter's lock: a thread that is busy in Python would hold it for 5 ms after each,
and a phase took 20 ms more with one such thread, 80 ms with two.
"""

import os
import sys

from weigh.units import KIB, Bytes

_USUAL = 4096  # bytes; enough unless a process is in very many groups
_LONGEST = 1 << 20  # a process may be in 65,536 groups, and they come first
_NOT_FOR_CHILDREN = getattr(os, "O_CLOEXEC", 0)
_MM_HIWATER_RSS = b"5"  # proc(5): reset VmHWM to VmRSS


class OwnMemory:
    """A source of this process's memory figures; this one knows none."""

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Return (resident now, peak since the last reset); None if unknown."""
        return None

    def reset(self) -> bool:
        """Reset the high-water mark; False if that is not allowed."""
        return False


class ProcMemory(OwnMemory):
    """Linux: VmRSS and VmHWM of /proc/self/status, reset through clear_refs."""

    def __init__(self, folder: str = "/proc/self") -> None:
        """Raises ImportError where Python was built without ctypes."""
        import ctypes  # noqa: PLC0415 - the others do without

        self._status = os.fsencode(f"{folder}/status")
        self._clear_refs = os.fsencode(f"{folder}/clear_refs")
        self._system = ctypes.PyDLL(None)
        self._buffer_of_size = ctypes.create_string_buffer
        self._buffer = self._buffer_of_size(_USUAL)

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Return (resident now, peak since the last reset); None if unknown."""
        try:
            text = self._text()
            if b"\nVmRSS:" not in text:
                self._buffer = self._buffer_of_size(_LONGEST)
                text = self._text()
            at = text.index(b"\nVmHWM:")
            # VmRSS is in the line after VmHWM
            _, peak, _, _, resident, *_ = text[at : at + 100].split(None, 5)
            return int(resident) * KIB, int(peak) * KIB
        except ValueError:
            return None

    def _text(self) -> bytes:
        descriptor = self._system.open(self._status, _NOT_FOR_CHILDREN)
        size = self._system.read(descriptor, self._buffer, len(self._buffer))
        self._system.close(descriptor)
        return self._buffer.raw[: max(0, size)]

    def reset(self) -> bool:
        """Reset the high-water mark; False if that is not allowed."""
        descriptor = self._system.open(
            self._clear_refs, os.O_WRONLY | _NOT_FOR_CHILDREN
        )
        written = self._system.write(descriptor, _MM_HIWATER_RSS, 1)
        self._system.close(descriptor)
        return bool(written == 1)


def max_rss_bytes(ru_maxrss: int, platform: str = sys.platform) -> Bytes:
    """Return ru_maxrss in bytes: macOS counts them, others count KiB."""
    return ru_maxrss if platform == "darwin" else ru_maxrss * KIB


class PsutilMemory(OwnMemory):
    """macOS and Windows, where the mark cannot be reset."""

    def __init__(self) -> None:
        """Raises ImportError where psutil is missing."""
        import psutil  # noqa: PLC0415 - never on Linux

        self._process = psutil.Process()

    def read(self) -> tuple[Bytes, Bytes] | None:
        """Return (resident now, peak of the process); None if unknown."""
        info = self._process.memory_info()
        # only Windows has the peak here; elsewhere getrusage has it
        highest = getattr(info, "peak_wset", None)
        if highest is None:
            import resource  # noqa: PLC0415 - not on Windows

            used = resource.getrusage(resource.RUSAGE_SELF)
            highest = max_rss_bytes(used.ru_maxrss)
        return int(info.rss), max(int(highest), int(info.rss))


def own_memory() -> OwnMemory:
    """Return the best source on this machine."""
    has_proc = os.path.exists("/proc/self/status")
    try:
        return ProcMemory() if has_proc else PsutilMemory()
    except (ImportError, OSError):  # a Python without ctypes, or linked statically
        return OwnMemory()
