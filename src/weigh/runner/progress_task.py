"""One running task that is read along with: its output, its limit, its standstills."""

from contextlib import suppress
from typing import TYPE_CHECKING

from weigh.measure.listener import FileStream, Listener
from weigh.measure.output import OutputFile
from weigh.progress.notices import LimitWatch, StallWatch
from weigh.runner import output
from weigh.runner.attempt import Attempt
from weigh.runner.progress_rules import FIRST_LOOK, ProgressRules
from weigh.units import KIB, Seconds

if TYPE_CHECKING:
    from weigh.measure.sampler import Sampler
    from weigh.model.progress import Forecast

_MOST_READ = 64 * KIB  # of a task's output at one look, the end of it
_COST = 0.001  # CPU seconds for one task's look


class TaskProgress:
    """One attempt that is read along with."""

    def __init__(self, attempt: Attempt, rules: ProgressRules) -> None:
        self.attempt = attempt
        self.due = attempt.began + FIRST_LOOK
        self.forecast: Forecast | None = None
        self.limit = _limit_of(attempt, rules)
        self.limits = None if self.limit is None else LimitWatch(self.limit, rules.ask)
        self.stalls = StallWatch(rules.stalled_after, gpus=rules.gpus)
        self.work: Seconds = 0.0
        self._cpu_time: Seconds = 0.0
        self._rules = rules
        self._listener: Listener | None = None
        self._is_file_open = False
        wanted = rules.checkpoint_signal
        self.signal_at: Seconds | None = None
        if wanted is not None and self.limit is not None:
            self.signal_at = max(self.limit - wanted.before, min(1.0, self.limit / 2))

    @property
    def wrote_at(self) -> Seconds | None:
        """Give when it wrote last, in seconds since it began; 0 for never yet.

        None where its output cannot be seen.
        """
        if not self._is_file_open and isinstance(
            self.attempt.output, output.OutputFile
        ):
            return 0.0
        return None if self._listener is None else self._listener.wrote_at

    def look(self, now: Seconds, *, is_through: bool = False) -> None:
        """Take in what it wrote, *now* seconds into it; or at its good end."""
        if self._listener is None:
            channel = self._rules.channels.get(self.attempt.slot.number)
            self._listener = Listener([], channel, patterns=self._rules.patterns)
        if not self._is_file_open:
            self._open(self._listener)
        self._listener.look(now, cost=_COST)
        self.forecast = self._listener.forecast(now, is_through=is_through)

    def spent(self, sampler: "Sampler", seen: int) -> Seconds:
        """Add up signs of work: CPU time that came or went, and new processes."""
        times = (one.cpu_time for one in reversed(sampler.samples))
        latest = next((one for one in times if one is not None), 0.0)
        self.work += abs(latest - self._cpu_time)
        self._cpu_time = latest
        return self.work + seen

    def close(self) -> None:
        """Let files go."""
        if self._listener is not None:
            self._listener.close()

    def _open(self, listener: Listener) -> None:
        """Open its output, once it has written something and the file has its name."""
        path = None if self.attempt.output is None else self.attempt.output.path
        if path is None:
            return
        with suppress(OSError):
            listener.also(FileStream(OutputFile(path), _MOST_READ))
            self._is_file_open = True


def _limit_of(attempt: Attempt, rules: ProgressRules) -> Seconds | None:
    """Give the seconds that an attempt has from its start, where there is a limit."""
    limits = [] if rules.timeout is None else [rules.timeout]
    if rules.ends_at is not None:
        limits.append(max(0.0, rules.ends_at - attempt.began))
    return min(limits, default=None)
