"""When to tell the wrapper what: often enough to survive a kill, never too much."""

from collections.abc import Callable, Mapping

from weigh.measure import channel
from weigh.units import MIB, Bytes, Seconds

_INTERVAL = 1.0
_SHARE = 50  # totals are told again after that part of the time gone by
_PEAK_STEP = 1024  # a new peak is told once it is that part of itself higher
_MOST_WRITTEN = 32 * MIB  # beyond it, only the last word is told


class Teller:
    """Tells a channel, until the channel fails; ``warn`` is told of that.

    ``is_under_weigh_run`` stays true then: the wrapper is there, and reports.
    """

    def __init__(
        self, env: Mapping[str, str], process: str, warn: Callable[[str], None]
    ) -> None:
        path = env.get(channel.VARIABLE)
        self.is_under_weigh_run = bool(path)
        self.process = process
        self._warn = warn
        self._writer = channel.Writer(path) if path else None
        self._peak = 0
        self._began = channel.clock()
        self._due = self._began + _INTERVAL
        if path:
            self.tell(channel.this_process(env, process))

    @property
    def is_open(self) -> bool:
        """Tell whether somebody is told."""
        return self._writer is not None

    def tell(self, *lines: channel.Line) -> None:
        """Tell *lines* at once."""
        if self._writer is None or not lines:
            return
        try:
            self._writer.write(lines)
        except FileNotFoundError:  # the wrapper has read it and gone
            self._writer = None
        except OSError as error:
            self._writer = None
            self._warn(f"weigh run will not hear of regions: {error}")

    def tell_peak(self, peak: Bytes) -> bool:
        """Tell the process's own peak before it is lost; False where it would be."""
        if not self.is_under_weigh_run:
            return True
        if peak > self._peak + self._peak // _PEAK_STEP:
            self._peak = peak
            self.tell(channel.PeakLine(self.process, peak))
        return self._writer is not None

    def is_due(self, now: Seconds) -> bool:
        """Tell whether it is time to tell all that has changed."""
        return (
            self._writer is not None
            and now >= self._due
            and self._writer.written < _MOST_WRITTEN
        )

    def told_all(self, now: Seconds) -> None:
        """Note that it was told; the longer the run, the longer until the next time."""
        self._due = now + max(_INTERVAL, (now - self._began) / _SHARE)
