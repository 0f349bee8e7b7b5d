"""Run a short command, such as a query, in the background of a measured run."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from weigh.units import KIB, Seconds

# in the environment of what weigh starts for itself: agents of nodes leave it out
OWN = "WEIGH_OWN_PROCESS"
_MOST = 64 * KIB  # bytes of an answer; more is no answer


class AsyncCommand:
    """One running command; ``pid`` is its process, a child of weigh."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        patience: Seconds,
        unset: tuple[str, ...] = (),
    ) -> None:
        """Start it without variables that begin with one of *unset*. Raises OSError."""
        self._ends = time.monotonic() + patience
        self._text = b""
        self._fd, write = os.pipe()
        os.set_blocking(self._fd, False)
        kept = {k: v for k, v in env.items() if not k.startswith(unset)}
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                {**kept, "LC_ALL": "C", OWN: "1"},
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, write, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ),
                setsigmask=(),
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(write)

    def answer(self) -> str | None:
        """Return its output once it has ended, None before; "" after the time-out."""
        while self._fd >= 0:
            try:
                chunk = os.read(self._fd, _MOST)
            except BlockingIOError:
                if time.monotonic() < self._ends:
                    return None
                self._give_up()
                break
            self._text += chunk
            # it has closed its output, or prints without end
            if not chunk or len(self._text) > _MOST:
                self._end()
        return self._text.decode(errors="replace")

    def close(self) -> None:
        """Kill it if it is still running."""
        if self.answer() is None:
            self._give_up()

    def _give_up(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._text = b""
        self._end()

    def _end(self) -> None:
        os.close(self._fd)
        self._fd = -1
        with suppress(ChildProcessError):  # the measured run's loop reaps all children
            os.waitpid(self.pid, 0)
