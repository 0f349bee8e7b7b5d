"""Why a job waits, by qstat's states; Grid Engine prints nothing when it ends a job."""

from weigh.model.job import ON_HOLD, STUCK
from weigh.schedulers.protocol import EndMessages

MESSAGES = EndMessages()
_REASONS = {"error": "in error: qstat -j JOB shows why"}


def in_words(reason: str, throttle: int | None = None) -> str:  # noqa: ARG001
    """Return a reason in plain English; an unknown one unchanged."""
    return _REASONS.get(reason, reason)


def is_hopeless(reason: str) -> bool:  # noqa: ARG001
    """Return False: every reason may pass."""
    return False


def freed_by(reason: str | None) -> str | None:
    """Return the command that clears an error or releases a user's hold."""
    return {STUCK: "qmod -cj {}", ON_HOLD: "qrls {}"}.get(reason or "")
