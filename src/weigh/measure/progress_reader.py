"""Read a run's progress from its output and from its event file."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.measure.output import Feed, WatchedOutput
from weigh.model.record import ReportedProgress
from weigh.progress.reader import RunProgressReader
from weigh.store.lines import UNREADABLE
from weigh.units import KIB, Seconds

if TYPE_CHECKING:
    from weigh.measure.pty_tee import PtyTee
    from weigh.measure.region import channel
    from weigh.model.progress import EndForecast
else:  # each is imported when it is first used
    channel = lazy_module("weigh.measure.region.channel")

# bytes per look; the event file of a long run is read over several looks
_MOST_EVENTS = 64 * KIB
_STEP_NAMES = frozenset(
    f"{prefix}{name}"
    for name in ("step", "iteration", "iter", "epoch", "batch", "timestep")
    for prefix in ("", "global_", "train_", "n_")
)
_TOTALS = frozenset(
    f"{prefix}{name}s"
    for name in ("step", "iteration", "iter", "epoch", "batche", "timestep")
    for prefix in ("total_", "max_", "num_")
)


class ProgressReader:
    """Reads streams and an event file, and predicts the end from the run's own counts.

    Times are seconds since the run's start. ``wrote_at`` is the time of the last
    output; None if no output can be read.
    """

    def __init__(
        self,
        streams: "Sequence[WatchedOutput | PtyTee]",
        channel: str | None = None,
        *,
        patterns: Sequence[str] = (),
    ) -> None:
        """Prepare to read. Raises FormatError for an invalid pattern."""
        self._patterns = patterns
        self._streams: list[WatchedOutput | PtyTee] = []
        self._channel = None if channel is None else _EventChannel(channel)
        self._readers: list[list[RunProgressReader]] = []
        self._now: Seconds = 0.0
        self._last = b""
        self.wrote_at: Seconds | None = None
        for stream in streams:
            self.also(stream)

    def also(self, stream: "WatchedOutput | PtyTee") -> None:
        """Add a stream."""
        self._streams.append(stream)
        self._readers.append(
            [RunProgressReader(self._patterns) for _ in range(stream.count)]
        )
        self.wrote_at = self.wrote_at or 0.0

    def look(self, current_time: Seconds, *, cost: Seconds) -> bool:
        """Read new output, for *cost* CPU seconds; return whether there was any."""
        self._now = current_time
        has_changed = False
        for stream, readers in zip(self._streams, self._readers, strict=True):
            feeds = [self._feed(reader) for reader in readers]
            # the streams share the CPU time of a look
            has_changed |= stream.look(feeds, cost=cost / len(self._streams))
        if has_changed:
            self.wrote_at = current_time
        if self._channel is not None:
            self._channel.look(current_time)
        return has_changed

    @property
    def is_in_a_line(self) -> bool:
        """Whether the output read last ended within a line."""
        # nothing yet, or the end of a line
        return self._last not in b"\n"

    def feeds(self, current_time: Seconds) -> list[Feed]:
        """Return the feeds for the rest of the last stream."""
        self._now = current_time
        return [self._feed(reader) for reader in self._readers[-1]]

    def forecast(
        self, current_time: Seconds, *, is_through: bool = False
    ) -> "EndForecast | None":
        """Predict the end of the run; of nested loops the outermost counts.

        *is_through*: the run has completed.
        """
        readers = [reader for some in self._readers for reader in some]
        if self._channel is not None:
            readers.append(self._channel.reader)
        seen = (
            reader.forecast(current_time, is_through=is_through) for reader in readers
        )
        found = [one for one in seen if one]
        # of several, the one that ends last is the run's
        return max(found, key=_forecast_order, default=None)

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams:
            if isinstance(stream, WatchedOutput):
                stream.close()
        if self._channel is not None:
            self._channel.close()

    def _feed(self, reader: RunProgressReader) -> Feed:
        def feed(chunk: bytes) -> None:
            self._last = chunk[-1:]
            reader.feed(chunk, self._now)

        return feed


class _EventChannel:
    """The event file that programs with ``import weigh`` write to."""

    def __init__(self, path: str) -> None:
        self.reader = RunProgressReader()
        self._file: WatchedOutput | None = None
        with suppress(OSError):
            self._file = WatchedOutput(path, most=_MOST_EVENTS)
        self._rest = b""  # the beginning of a line that is not complete yet
        self._totals: dict[str, float] = {}  # by what they count, see `_singular`
        self._first: str | None = None  # of several processes, the one that counts
        self._has_loop = False

    def look(self, current_time: Seconds) -> None:
        """Read the new events."""
        if self._file is None:
            return
        chunks = [self._rest]
        self._file.look([chunks.append], cost=1.0)
        if len(chunks) == 1:
            return
        # the last piece is not a whole line yet
        *lines, self._rest = b"".join(chunks).split(b"\n")
        decoder = msgspec.json.Decoder(channel.BatchesLine | channel.EventLine)
        for text in lines:
            # other lines need not be decoded
            if not text.startswith((b'{"line":"batches"', b'{"line":"event"')):
                continue
            with suppress(*UNREADABLE):
                self._take(decoder.decode(text), current_time)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _take(self, line: object, current_time: Seconds) -> None:
        if isinstance(line, channel.BatchesLine):
            self._first = self._first or line.process
            if line.process == self._first:
                self._has_loop = True
                loop = line.batches
                self.reader.report(
                    loop.count, loop.total, current_time, "weigh.batches"
                )
        # a loop that weigh times counts itself, and better than events
        elif isinstance(line, channel.EventLine) and not self._has_loop:
            self._take_event(line.event.name.lower(), line.event.value, current_time)

    def _take_event(self, name: str, value: object, current_time: Seconds) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if name in _TOTALS:
            self._totals[_singular(name)] = value
        elif name in _STEP_NAMES:
            total = self._totals.get(_singular(name))
            self.reader.report(value, total, current_time, f"weigh.event {name!r}")


def headway_of(forecast: "EndForecast | None") -> ReportedProgress | None:
    """Return a forecast in the form of a record."""
    if forecast is None:
        return None
    return ReportedProgress(
        done=forecast.done,
        total=forecast.total,
        source=forecast.source,
        time=forecast.time,
        step_time=forecast.step_time,
        remaining=forecast.remaining,
        low=forecast.low,
        high=forecast.high,
    )


def _singular(name: str) -> str:
    """Return the counted noun: step for both max_steps and global_step."""
    return name.rpartition("_")[2].removesuffix("s").removesuffix("e")


def _forecast_order(forecast: "EndForecast") -> tuple[bool, float, bool]:
    remaining = forecast.remaining
    return remaining is not None, remaining or 0.0, forecast.total is not None
