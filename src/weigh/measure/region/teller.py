"""When to tell the wrapper what: often enough to survive a kill, never too much."""

from collections.abc import Callable, Mapping

from weigh.measure.region import channel
from weigh.units import MIB, Bytes, Seconds

_INTERVAL = 1.0
_SOON, _LATE = 5, 50  # told again after that part of the time gone by; 1 s between
_PEAK_STEP = 1024  # a new peak is told once it is that part of itself higher
_MOST_WRITTEN = 32 * MIB  # beyond it, only the last word is told


class Teller:
    """Tells a channel, until the channel fails; ``warn`` is told of that.

    ``is_under_weigh_run`` stays true then: the wrapper has heard, and reports. It is
    false where the channel was never reached. With ``at_the_end``, all is told at once.
    """

    def __init__(
        self, env: Mapping[str, str], process: str, warn: Callable[[str], None]
    ) -> None:
        path = env.get(channel.VARIABLE)
        self.is_under_weigh_run = False
        self.at_the_end = False
        self.process = process
        self._warn = warn
        self._has_wrapper = bool(path)
        self._writer = channel.Writer(path) if path else None
        self._peak = 0
        self._began = self._due = channel.clock()
        self.tell(channel.this_process(env, process))
        self.is_under_weigh_run = self.is_open

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
        except OSError as error:
            self._writer = None
            self._say_why(error)

    def tell_peak(self, peak: Bytes) -> bool:
        """Tell the process's own peak before it is lost; False where it would be."""
        if not self._has_wrapper:
            return True
        if peak > self._peak + self._peak // _PEAK_STEP:
            self._peak = peak
            self.tell(channel.PeakLine(self.process, peak))
        return self._writer is not None

    @property
    def has_room(self) -> bool:
        """Tell whether more may be told than the last word."""
        return self._writer is not None and self._writer.written < _MOST_WRITTEN

    def is_due(self, now: Seconds) -> bool:
        """Tell whether it is time to tell all that has changed."""
        return self.has_room and (now >= self._due or self.at_the_end)

    def told_all(self, now: Seconds) -> None:
        """Note that it was told; the longer the run, the longer until the next time."""
        gone = now - self._began
        self._due = now + max(min(_INTERVAL, gone / _SOON), gone / _LATE)

    def _say_why(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._warn(f"weigh run will not hear of regions: {error.strerror}")
        elif not self.is_under_weigh_run:
            self._warn(
                "the file of weigh run is not here (another machine or a container): "
                "regions are reported here instead"
            )  # else the wrapper has read it and gone
