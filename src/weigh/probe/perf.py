"""Count a process tree's CPU time with a perf event that its children inherit.

It also counts children that nobody waits for, whose time is in no rusage. An ordinary
user may open it if kernel.perf_event_paranoid is at most 2 and no seccomp filter
refuses it.
"""

import ctypes
import os
import struct

from weigh.units import Seconds

# of perf_event_open
_SYSCALL_NUMBERS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331}
_SIZE = 112  # PERF_ATTR_SIZE_VER5
# from linux/perf_event.h: PERF_TYPE_SOFTWARE and PERF_COUNT_SW_TASK_CLOCK; the bits
# disabled, inherit, exclude_kernel, exclude_hv and enable_on_exec. task-clock counts
# kernel mode too; a paranoid level of 2 requires ordinary users to exclude the kernel
# from the *event*
_BITS = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12
_ATTRIBUTES = struct.pack("IIQQQQQ", 1, _SIZE, 1, 0, 0, 0, _BITS).ljust(_SIZE, b"\0")
_CLOSE_ON_EXEC = 1 << 3


class CpuClock:
    """The CPU time of one process since its exec, with all its descendants."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def read(self) -> Seconds | None:
        """Return the CPU seconds so far, ended descendants included."""
        try:
            return float(struct.unpack("q", os.read(self._fd, 8))[0]) / 1e9
        except (OSError, struct.error):
            return None

    def close(self) -> None:
        """Close its descriptors."""
        os.close(self._fd)


def open_cpu_clock(pid: int) -> CpuClock | None:
    """Attach to *pid*, to count from its next exec on; None if refused."""
    number = _SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None:
        return None
    fd = ctypes.CDLL(None, use_errno=True).syscall(
        number, _ATTRIBUTES, pid, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC)
    )
    return CpuClock(fd) if fd >= 0 else None
