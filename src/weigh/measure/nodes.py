"""Measure a job on all of its nodes: start an agent on each, and read its figures.

The agents' figures come as lines over the output of the command that started them, so
no folder has to be shared. The newest part of each node counts; a node that is lost
keeps its last one.
"""

import binascii
import time
import zlib
from collections.abc import Mapping, Sequence

import msgspec

from weigh.joined_ranks import part_later
from weigh.measure.async_command import AsyncProcess
from weigh.model.record import RunMeasurement
from weigh.units import KIB, Seconds

# bytes of what starting the agents printed; only its last line is shown
_MOST_WORDS = 4 * KIB
_TICK = 0.02  # seconds between looks whether the agents have ended
_DECODER = msgspec.json.Decoder(RunMeasurement)


class PartReader:
    """Puts parts together from the lines of all nodes; damaged ones are skipped."""

    def __init__(self) -> None:
        # by node, the number of its newest part and the pieces that have come
        self._waiting: dict[bytes, tuple[int, dict[int, bytes]]] = {}
        self._rest = b""

    def feed(self, text: bytes) -> list[RunMeasurement]:
        """Return the parts that *text* completes."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        # the last piece is not a whole line yet
        found = (self._take(line) for line in lines)
        return [part for part in found if part is not None]

    def _take(self, line: bytes) -> RunMeasurement | None:
        words = line.split(b" ")
        # a line that a scheduler wrote, or a damaged one
        if len(words) != 5 or not all(word.isdigit() for word in words[1:4]):  # noqa: PLR2004 - see part_lines
            return None
        number, turn, count = map(int, words[1:4])
        newest, pieces = self._waiting.get(words[0], (number, {}))
        # one that lost a line will never be complete, and a newer one has all it had
        if number != newest:
            pieces = {}
        if number >= newest:
            self._waiting[words[0]] = number, pieces
        pieces[turn] = words[4]
        if len(pieces) < count:
            return None
        try:
            packed = binascii.a2b_base64(b"".join(pieces[i] for i in range(count)))
            return _DECODER.decode(zlib.decompress(packed))
        except (ValueError, KeyError, zlib.error, msgspec.MsgspecError):
            return None


class NodeAgents(AsyncProcess):
    """The agents of a job's nodes: the process that has started them is ours."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start them. Raises OSError."""
        # by node, its newest part and when its watch began, in seconds since the run
        # began, by this machine's clock alone
        self.parts: dict[str, RunMeasurement] = {}
        self.began: dict[str, Seconds] = {}
        self._reader = PartReader()
        self._words = b""
        super().__init__(argv, env)

    def read(self, current_time: Seconds) -> None:
        """Take what has arrived; *current_time* is the time since the run began."""
        lines, words = self.received()
        self._words = (self._words + words)[:_MOST_WORDS]
        for part in self._reader.feed(lines):
            name = part.nodes[0].name
            began = max(0.0, current_time - part.usage.wall_time)
            # a part may come late but never early: the earliest of the starts is the
            # nearest
            began = self.began[name] = min(began, self.began.get(name, began))
            self.parts[name] = part_later(part, began, heard=current_time)

    def finish(self, current_time: Seconds, patience: Seconds) -> None:
        """Let the agents end; wait for their last parts for *patience* at most."""
        # the agents end when their standard input is closed
        self.close_input()
        until = time.monotonic() + patience
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(_TICK)
            self.read(current_time)
        self.read(current_time)
        self.end()

    def complaint(self) -> str | None:
        """Return the last line that starting them printed, if any."""
        lines = self._words.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), None)
