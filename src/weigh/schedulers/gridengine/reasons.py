"""Why a job waits, by qstat's states; Grid Engine prints nothing when it ends a job."""

from weigh.model.job import ON_HOLD, STUCK
from weigh.schedulers.backend import SchedulerReasons
from weigh.schedulers.protocol import EndMessages

_REASONS = {"error": "in error: qstat -j JOB shows why"}


class GridEngineReasons(SchedulerReasons):
    """Grid Engine: its words on why jobs wait and end."""

    MESSAGES = EndMessages()

    def in_words(self, reason: str, throttle: int | None = None) -> str:
        """Return a reason in plain English; an unknown one unchanged."""
        return _REASONS.get(reason, reason)

    def is_hopeless(self, reason: str) -> bool:
        """Return False: every reason may pass."""
        return False

    def freed_by(self, reason: str | None) -> str | None:
        """Return the command that clears an error or releases a user's hold."""
        return {STUCK: "qmod -cj {}", ON_HOLD: "qrls {}"}.get(reason or "")


REASONS = GridEngineReasons()
