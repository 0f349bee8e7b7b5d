"""Commands of weigh's own that run during a measured run: queries and node agents.

The agents' figures come as lines over the output of the command that started them, so
no folder has to be shared. The newest part of each node counts; a node that is lost
keeps its last one.
"""

import binascii
import os
import signal
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from weigh.joined_ranks import part_later
from weigh.measure.launcher import end_child, has_child_ended
from weigh.model.record import RunMeasurement
from weigh.probe.job_members import OWN
from weigh.units import KIB, Seconds

_MOST = 64 * KIB  # bytes of an answer; more is no answer
# bytes of what starting the agents printed; only its last line is shown
_MOST_WORDS = 4 * KIB
_TICK = 0.02  # seconds between looks whether the agents have ended
_DECODER = msgspec.json.Decoder(RunMeasurement)


class AsyncProcess:
    """A running process ``pid``, a child of weigh, whose output is read as it comes.

    Its standard input is a pipe that is open until :meth:`close_input`.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it. Raises OSError."""
        stdin, self._input = os.pipe()
        self._output, stdout = os.pipe()
        self._errors, stderr = os.pipe()
        os.set_blocking(self._output, False)
        os.set_blocking(self._errors, False)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                {**env, OWN: "1"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, end, number)
                    for number, end in enumerate((stdin, stdout, stderr))
                ],
                setsid=True,  # Ctrl-C and signals to the job's group are not for it
                setsigmask=(),
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError:
            self._close()
            raise
        finally:
            for end in (stdin, stdout, stderr):
                os.close(end)

    def close_input(self) -> None:
        """Close its standard input, if it is open."""
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def received(self) -> tuple[bytes, bytes]:
        """Return what it has written since the last call, to stdout and to stderr."""
        return _received(self._output), _received(self._errors)

    def end(self) -> None:
        """Kill it if it is still running, and reap it: at the end of its use."""
        end_child(self.pid)
        self._close()

    def _close(self) -> None:
        self.close_input()
        os.close(self._output)
        os.close(self._errors)


def _received(descriptor: int) -> bytes:
    text = b""
    with suppress(BlockingIOError):
        while len(text) <= _MOST and (chunk := os.read(descriptor, _MOST)):
            text += chunk
    return text


class AsyncCommand(AsyncProcess):
    """A short command, such as a query, whose answer is fetched once it is there."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        patience: Seconds,
        unset: tuple[str, ...],
    ) -> None:
        """Start it without variables that begin with one of *unset*. Raises OSError."""
        kept = {k: v for k, v in env.items() if not k.startswith(unset)}
        super().__init__(argv, {**kept, "LC_ALL": "C"})
        self.close_input()
        self._patient_until = time.monotonic() + patience
        self._text = b""

    def answer(self) -> str | None:
        """Return its output once it has ended, None before; "" after the time-out.

        An answer is the end of its use.
        """
        # asked first: all that it wrote is in the pipe then
        has_ended = has_child_ended(self.pid)
        self._text += self.received()[0]
        is_late = time.monotonic() >= self._patient_until
        if not has_ended and not is_late and len(self._text) <= _MOST:
            return None
        self.end()
        return self._text.decode(errors="replace") if has_ended else ""


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
        while not has_child_ended(self.pid) and time.monotonic() < until:
            time.sleep(_TICK)
            self.read(current_time)
        self.read(current_time)
        self.end()

    def complaint(self) -> str | None:
        """Return the last line that starting them printed, if any."""
        lines = self._words.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), None)
