"""How much CPU time measuring may take."""

from weigh.units import Seconds

_CREDIT = 0.05  # a short run deserves some looks too


class Allowance:
    """CPU time earned as a share of the time that goes by, with some credit."""

    def __init__(self, share: float, now: Seconds, credit: Seconds = _CREDIT) -> None:
        self._share = share
        self._credit = credit
        self._left = credit
        self._at = now

    def spend(self, cost: Seconds, now: Seconds) -> None:
        """Take *cost* off what is left."""
        self._earn(now)
        self._left -= cost

    def wait(self, now: Seconds) -> Seconds:
        """Give the seconds until there is something to spend again."""
        self._earn(now)
        return max(0.0, -self._left / self._share)

    def _earn(self, now: Seconds) -> None:
        earned = (now - self._at) * self._share
        self._left = min(self._credit, self._left + earned)
        self._at = now
