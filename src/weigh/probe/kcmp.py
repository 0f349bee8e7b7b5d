"""Tell whether two processes are one memory map: a vfork child before its exec."""

import ctypes
import os

_SYSCALL_NUMBERS = {"x86_64": 312, "aarch64": 272, "ppc64le": 354, "s390x": 343}
_KCMP_VM = 1


def share_memory_map(first: int, second: int) -> bool:
    """Compare two processes' maps; False where the kernel will not tell."""
    number = _SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None:
        return False
    return bool(ctypes.CDLL(None).syscall(number, first, second, _KCMP_VM, 0, 0) == 0)
