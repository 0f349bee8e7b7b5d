"""Adopt orphans, so that what daemonises below the job stays in its tree."""

import ctypes

_PR_SET_CHILD_SUBREAPER = 36  # Linux 3.4


def adopt_orphans() -> bool:
    """Become the parent of every orphan below; False where the kernel refuses."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
