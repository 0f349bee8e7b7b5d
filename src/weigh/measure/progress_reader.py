"""Listens to one run: to what it prints, and to what it tells of itself."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from weigh.measure.output import OutputFile
from weigh.model.record import Headway
from weigh.progress.reader import Reader
from weigh.store.lines import UNREADABLE
from weigh.units import KIB, MIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.model.progress import Forecast

MOST_READ = 16 * MIB  # of a file, at one look: beyond it, the end of it
_MOST_TOLD = 64 * KIB
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
Feed = Callable[[bytes], None]


class Stream(Protocol):
    """Where output passes: ``count`` feeds for it, ``size`` bytes so far."""

    @property
    def count(self) -> int:
        """Count the feeds that it wants."""

    @property
    def size(self) -> Bytes:
        """Give how much has passed."""

    def look(self, feeds: Sequence[Feed], *, cost: Seconds) -> bool:
        """Hand on what is new, for *cost* CPU seconds; say whether anything was."""


class FileStream:
    """A file as a stream, of which at most *most* bytes are read at a look."""

    count = 1

    def __init__(self, file: OutputFile, most: Bytes = MOST_READ) -> None:
        self._file = file
        self._most = most

    @property
    def size(self) -> Bytes:
        """Give how much is in it."""
        return self._file.size

    def look(self, feeds: Sequence[Feed], *, cost: Seconds) -> bool:
        """Hand what is new to the feed."""
        return self._file.look(feeds[0], cost=cost, most=self._most)

    def close(self) -> None:
        """Let it go."""
        self._file.close()


class Listener:
    """Reads streams and a channel, and says what the run's own counts make of it.

    Times are seconds since the run began. ``wrote_at`` is when anything was written
    last; None where no output can be seen.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        channel: str | None = None,
        *,
        patterns: Sequence[str] = (),
    ) -> None:
        """Take what to read. Raises FormatError for a pattern that is none."""
        self._patterns = patterns
        self._streams: list[Stream] = []
        self._channel = None if channel is None else _Channel(channel)
        self._readers: list[list[Reader]] = []
        self._now: Seconds = 0.0
        self._last = b""
        self.wrote_at: Seconds | None = None
        for stream in streams:
            self.also(stream)

    def also(self, stream: Stream) -> None:
        """Read one more stream from now on."""
        self._streams.append(stream)
        self._readers.append([Reader(self._patterns) for _ in range(stream.count)])
        self.wrote_at = self.wrote_at or 0.0

    def look(self, now: Seconds, *, cost: Seconds) -> bool:
        """Take in what is new, for *cost* CPU seconds; say whether anything was."""
        self._now = now
        has_changed = False
        for stream, readers in zip(self._streams, self._readers, strict=True):
            feeds = [self._feed(reader) for reader in readers]
            has_changed |= stream.look(feeds, cost=cost / len(self._streams))
        if has_changed:
            self.wrote_at = now
        if self._channel is not None:
            self._channel.look(now)
        return has_changed

    @property
    def is_in_a_line(self) -> bool:
        """Say whether what was read last was no whole line."""
        return self._last not in b"\n"

    def feeds(self, now: Seconds) -> list[Feed]:
        """Give what takes in the rest of the last stream."""
        self._now = now
        return [self._feed(reader) for reader in self._readers[-1]]

    def forecast(self, now: Seconds, *, is_through: bool = False) -> "Forecast | None":
        """Say when the run ends: of loops within each other the outermost counts.

        *is_through*: it has ended well.
        """
        readers = [reader for some in self._readers for reader in some]
        if self._channel is not None:
            readers.append(self._channel.reader)
        seen = (reader.forecast(now, is_through=is_through) for reader in readers)
        found = [one for one in seen if one]
        return max(found, key=_reach, default=None)

    def close(self) -> None:
        """Let files go."""
        for stream in self._streams:
            if isinstance(stream, FileStream):
                stream.close()
        if self._channel is not None:
            self._channel.close()

    def _feed(self, reader: Reader) -> Feed:
        def feed(chunk: bytes) -> None:
            self._last = chunk[-1:]
            reader.feed(chunk, self._now)

        return feed


class _Channel:
    """The event file that programs with ``import weigh`` write to."""

    def __init__(self, path: str) -> None:
        self.reader = Reader()
        self._file: OutputFile | None = None
        with suppress(OSError):
            self._file = OutputFile(path)
        self._rest = b""
        self._totals: dict[str, float] = {}
        self._first: str | None = None  # the process whose word counts, of several
        self._has_loop = False

    def look(self, now: Seconds) -> None:
        """Take in what was told."""
        if self._file is None:
            return
        chunks = [self._rest]
        self._file.look(chunks.append, cost=1.0, most=_MOST_TOLD)
        if len(chunks) == 1:
            return
        *lines, self._rest = b"".join(chunks).split(b"\n")
        from weigh.measure.region import channel  # noqa: PLC0415 - few programs tell

        decoder = msgspec.json.Decoder(channel.BatchesLine | channel.EventLine)
        for text in lines:
            if not text.startswith((b'{"line":"batches"', b'{"line":"event"')):
                continue
            with suppress(*UNREADABLE):
                self._take(decoder.decode(text), now)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()

    def _take(self, line: object, now: Seconds) -> None:
        from weigh.measure.region import channel  # noqa: PLC0415 - as above

        if isinstance(line, channel.BatchesLine):
            self._first = self._first or line.process
            if line.process == self._first:
                self._has_loop = True
                told = line.batches
                self.reader.report(told.count, told.total, now, "weigh.batches")
        elif isinstance(line, channel.EventLine) and not self._has_loop:
            self._take_event(line.event.name.lower(), line.event.value, now)

    def _take_event(self, name: str, value: object, now: Seconds) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if name in _TOTALS:
            self._totals[_singular(name)] = value
        elif name in _STEP_NAMES:
            total = self._totals.get(_singular(name))
            self.reader.report(value, total, now, f"weigh.event {name!r}")


def headway_of(forecast: "Forecast | None") -> Headway | None:
    """Give a forecast as a record keeps it."""
    if forecast is None:
        return None
    return Headway(
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
    """Give what is counted: of max_steps and global_step alike, step."""
    return name.rpartition("_")[2].removesuffix("s").removesuffix("e")


def _reach(forecast: "Forecast") -> tuple[bool, float, bool]:
    remaining = forecast.remaining
    return remaining is not None, remaining or 0.0, forecast.total is not None
