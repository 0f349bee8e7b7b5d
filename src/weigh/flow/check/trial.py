"""One task under ``weigh run`` for a while: started, told to end, ended for certain."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from weigh.errors import WeighError
from weigh.model.record import Record
from weigh.probe.proc import ProcTree
from weigh.runner.shell import Shell
from weigh.runner.slots import Layout, Slot, thread_settings
from weigh.store.lines import UNREADABLE
from weigh.units import Bytes, Seconds

Stop: TypeAlias = Literal["time", "output", "memory", "told"]

_LAST_PATIENCE = 2.0  # seconds for `weigh run` to write a record when all is dead


class TaskToTry(msgspec.Struct, frozen=True):
    """A task, its line as it stands, and its parameters as far as a table says them."""

    seq: int
    line: bytes
    texts: dict[str, str] = {}


class Setup(msgspec.Struct, frozen=True):
    """Where tasks run: slots, environment, folders for their output and records."""

    layout: Layout
    env: Mapping[str, str]
    output: str
    records: str
    label: str


class Ended(msgspec.Struct, frozen=True):
    """A task that ended, why weigh stopped it if it did, and what is known of it.

    ``was_killed``: it did not end when told to.
    """

    seq: int
    record: Record | None
    stop: Stop | None
    log: str
    was_killed: bool


class Running:
    """One task that runs. ``now`` and ``peak`` are the bytes it was seen to hold."""

    def __init__(self, task: TaskToTry, setup: Setup, slot: Slot, now: Seconds) -> None:
        """Start it.

        Raises:
            WeighError: its output cannot be written, or no process can be made.
        """
        self.task, self.slot, self.began = task, slot, now
        self.stop: Stop | None = None
        self.now = self.peak = 0
        self.log = os.path.join(setup.output, f"task-{task.seq}.log")
        self._record = os.path.join(setup.records, f"{task.seq}.json")
        self._told_at = now
        self._was_killed = False
        self._child = self._start(setup)
        is_linux = sys.platform == "linux"
        self._tree = ProcTree(self._child.pid) if is_linux else None

    def has_ended(self) -> bool:
        """Tell whether nothing of it is left."""
        return self._child.poll() is not None

    def look(self) -> None:
        """See what it holds now."""
        if self._tree is not None:
            self.now = sum(reading.resident for reading in self._tree.read())
            self.peak = max(self.peak, self.now)

    def output_size(self) -> Bytes:
        """Give the bytes it has written."""
        with suppress(OSError):
            return os.stat(self.log).st_size
        return 0

    def tell_to_end(self, why: Stop, now: Seconds) -> None:
        """Send TERM, which ``weigh run`` passes on."""
        self.stop, self._told_at = why, now
        self._child.terminate()

    def insist(self, now: Seconds, grace: Seconds) -> None:
        """Kill what does not end within *grace* seconds of being told to."""
        if now < self._told_at + grace:
            return
        self._was_killed = True
        self._kill_tree()
        if now > self._told_at + grace + _LAST_PATIENCE:
            self._child.kill()

    def end_at_once(self) -> None:
        """Kill everything, and wait for it."""
        if self._child.poll() is None:
            self._kill_tree()
            self._child.kill()
            self._child.wait()

    def ended(self) -> Ended:
        """Say what is known of a task that has ended, and let go of it."""
        if self._tree is not None:
            self._tree.close()
        record = None
        with suppress(OSError, *UNREADABLE), open(self._record, "rb") as file:
            record = msgspec.json.decode(file.read(), type=Record)
        return Ended(self.task.seq, record, self.stop, self.log, self._was_killed)

    def _kill_tree(self) -> None:
        if self._tree is None:
            return
        self._tree.read()
        for pid in self._tree.pids():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, setup: Setup) -> subprocess.Popen[bytes]:
        shell = Shell(os.environb)
        program, words = shell.shell_words(self.task.line)
        options = [f"--label={setup.label}"]
        options += [f"--param={name}={text}" for name, text in self.task.texts.items()]
        weigh = [sys.executable, "-P", "-m", "weigh", "run", "-q", "-o", self._record]
        try:
            with open(self.log, "wb") as out:
                return subprocess.Popen(
                    [*weigh, *options, "--", program, *words[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=self._environment(setup),
                )
        except OSError as error:
            raise WeighError(f"{self.log}: {error.strerror}") from error

    def _environment(self, setup: Setup) -> dict[str, str]:
        """Give what ``weigh exec`` would; Python speaks at once, to be overheard."""
        number = str(self.slot.number)
        env = {
            "PYTHONUNBUFFERED": "1",
            **setup.env,
            **thread_settings(setup.env, setup.layout.threads),
            "PARALLEL_SEQ": str(self.task.seq),
            "PARALLEL_JOBSLOT": number,
            "WEIGH_SLOT": number,
            "WEIGH_DIR": setup.records,
        }
        if self.slot.gpu is not None:
            env["CUDA_VISIBLE_DEVICES"] = self.slot.gpu
        return env
