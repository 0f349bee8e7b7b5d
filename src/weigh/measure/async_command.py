"""Commands of weigh's own that run during a measured run: queries and node agents."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from weigh.units import KIB, Seconds

# in the environment of what weigh starts for itself: agents of nodes leave it out
OWN = "WEIGH_OWN_PROCESS"
_MOST = 64 * KIB  # bytes of an answer; more is no answer


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

    def has_ended(self) -> bool:
        """Return whether it has ended; it is not reaped yet."""
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, flags) is not None
        except ChildProcessError:  # the run's loop reaps all children
            return True

    def end(self) -> None:
        """Kill it if it is still running, and reap it."""
        if not self.has_ended():  # once it is reaped, the id may be another's
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
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
        unset: tuple[str, ...] = (),
    ) -> None:
        """Start it without variables that begin with one of *unset*. Raises OSError."""
        kept = {k: v for k, v in env.items() if not k.startswith(unset)}
        super().__init__(argv, {**kept, "LC_ALL": "C"})
        self.close_input()
        self._patient_until = time.monotonic() + patience
        self._text = b""
        self._has_answered = False

    def answer(self) -> str | None:
        """Return its output once it has ended, None before; "" after the time-out."""
        if not self._has_answered:
            # asked first: all that it wrote is in the pipe then
            has_ended = self.has_ended()
            self._text += self.received()[0]
            is_late = time.monotonic() >= self._patient_until
            if not has_ended and not is_late and len(self._text) <= _MOST:
                return None
            self._finish(self._text if has_ended else b"")
        return self._text.decode(errors="replace")

    def close(self) -> None:
        """Kill it if it is still running."""
        if self.answer() is None:
            self._finish(b"")

    def _finish(self, text: bytes) -> None:
        self._text, self._has_answered = text, True
        self.end()
