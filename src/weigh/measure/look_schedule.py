"""Decide when to look at a process tree; no access to the machine.

Looks come fast at first, then at an interval; of an idle tree less and less often. They
may take a small share of a core, and some CPU time before any of that is earned.
"""

from weigh.units import Seconds

_LOOK_SHARE = 0.005  # of one core; below 1 % together with the counts of pages
# CPU seconds of looks before any are earned, which grow with what the job itself has
# used: they load modules and meet the processes, and a short job is not to feel it
_FIRST_CREDIT, _MOST_CREDIT = 0.02, 0.04
_CREDIT_SHARE = 0.02  # of the job's own CPU time
# Loading modules costs most of a second where they are not compiled yet, once
_LOADING_COST = 0.0005  # CPU seconds that count of a look that does
_FIRST_INTERVAL = 0.002  # a run of 30 ms needs some samples too
_STRETCH = 1.25  # of the interval, at each look at an idle tree
_LONGEST_STRETCH = 10.0  # times the interval
_LONGEST_BLIND = 4.0  # seconds without a look, whatever it costs or the tree does
_IDLE_BLIND = 0.5  # seconds without a look at an idle tree, if looks are cheap
_IDLE_SHARE = 0.00025  # of one core, for looks at a tree that seems idle


class LookSchedule:
    """Says when to look next, from what the looks cost and whether the tree works."""

    def __init__(self, interval: Seconds) -> None:
        self.interval = interval
        self._next_interval = min(_FIRST_INTERVAL, interval)
        self._stretch = 1.0
        self._cost: Seconds = 0.0  # CPU time of all looks
        # CPU seconds of a look at an idle tree
        self._usual_cost: Seconds = _IDLE_SHARE * _IDLE_BLIND
        self._looked_at: Seconds = float("-inf")

    def begin_look(self, *, is_idle: bool) -> None:
        """Note that a look is due at a tree that has used no CPU time, or has."""
        self._next_interval = min(2 * self._next_interval, self.interval)
        if not is_idle:
            self._stretch = 1.0
        # only after the fast looks at the start
        elif self._next_interval == self.interval:
            self._stretch = min(_STRETCH * self._stretch, _LONGEST_STRETCH)

    def may_skip(self, current_time: Seconds) -> bool:
        """Return whether an idle tree was looked at lately enough."""
        blind = max(_IDLE_BLIND, self._usual_cost / _IDLE_SHARE)
        return current_time - self._looked_at <= min(blind, _LONGEST_BLIND)

    def least_wait(self) -> Seconds:
        """Return the seconds until the next look, if it were for free."""
        return self._next_interval * self._stretch

    def wait_after(
        self, looked_at: Seconds, current_time: Seconds, cost: Seconds, used: Seconds
    ) -> Seconds:
        """Return the seconds until the look after one that cost so much CPU time.

        *used* is the CPU time that the job itself has used so far; *looked_at* is
        minus infinity if no process was there, for the next look may not be skipped.
        """
        self._looked_at = looked_at
        self._cost += max(0.0, cost)
        # one slow look, as on a busy machine, must not stretch the pause for long
        self._usual_cost = min(cost, 2 * self._usual_cost)
        credit = min(_FIRST_CREDIT + _CREDIT_SHARE * used, _MOST_CREDIT)
        # seconds until the looks so far have earned their cost
        owed = (self._cost - credit) / _LOOK_SHARE - current_time
        return max(self.least_wait(), min(owed, _LONGEST_BLIND))


def cost_of_look(cost: Seconds, *, has_loaded: bool) -> Seconds:
    """Return what counts of the CPU time of a look, which may have loaded modules."""
    return min(cost, _LOADING_COST) if has_loaded else cost
