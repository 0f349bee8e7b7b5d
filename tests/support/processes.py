"""Real processes and real terminals: what the tests of ``weigh run`` share."""

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from written_programs import kill_processes_with, processes_with

WEIGH = (sys.executable, "-m", "weigh")
# with each of its waits a tenth as long
HASTY_WEIGH = (sys.executable, str(Path(__file__).with_name("hasty_weigh.py")))
PORTABLE_WEIGH = (
    sys.executable,
    str(Path(__file__).with_name("portable_weigh.py")),
)
PATIENCE = 90.0  # seconds until a test gives up; none is meant to wait that long
_MARK = "WEIGH_TEST_MARK"
_T = TypeVar("_T")

# A job that writes down each signal it gets, and ends with code 3 on SIGALRM.
COUNTER = r"""
import os, signal, sys
names = "TERM INT HUP QUIT USR1 USR2 CONT TSTP WINCH XCPU ALRM RTMIN".split()
numbers = [getattr(signal, "SIG" + name) for name in names]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(notes, b"ready %d\n" % os.getpid())
while (number := signal.sigwait(numbers)) != signal.SIGALRM:
    os.write(notes, names[numbers.index(number)].encode() + b"\n")
sys.exit(3)
"""


# for a job of weigh run, in which it waits until weigh has looked at it
WAIT_FOR_LOOKS = """
import os, time
WEIGH = os.getppid()
def sleeps_of_weigh():  # it looks between two of them
    with open(f"/proc/{WEIGH}/status") as status:
        return next(int(row.split()[1]) for row in status if row.startswith("volun"))
def wait_for_looks():
    looked = sleeps_of_weigh() + 4
    while sleeps_of_weigh() < looked: time.sleep(0.05)
"""


def until(condition: Callable[[], _T], what: str = "") -> _T:
    """Wait for *condition* to hold; give what it gave.

    It is asked ever less often: many tests wait at a time, and each question costs.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > PATIENCE:
            raise AssertionError(f"waited in vain for {what or condition}")
        time.sleep(min(max(0.005, waited / 20), 0.1))
    return value


def status_of(pid: int) -> dict[str, str]:
    """Read /proc/PID/status; empty when there is no such process."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return {}


def is_running(pid: int) -> bool:
    """Tell whether the process exists and is no zombie."""
    return status_of(pid).get("State", "Z")[0] not in "ZX"


def is_stopped(pid: int) -> bool:
    """Tell whether a signal has stopped the process."""
    return status_of(pid).get("State", "?")[0] == "T"


def pending_signals(pid: int) -> int:
    """Give the mask of the signals that wait for the process."""
    return int(status_of(pid)["ShdPnd"], 16)


def children_of(pid: int) -> list[int]:
    """Give the ids of the process's own children, whichever thread started them."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread ends
            found += map(int, path.read_text().split())
    return found


def job_of(pid: int, name: str) -> int:
    """Wait until the weigh of this id runs a program of that name; give its id."""

    def find() -> list[int]:
        own = children_of(pid)
        return [one for one in own if status_of(one).get("Name", "").strip() == name]

    return until(find, f"{name} to run")[0]


class Counted:
    """A job that notes its signals, under weigh."""

    def __init__(self, weigh: Any, notes: Path) -> None:
        self.weigh = weigh
        self._notes = notes
        first = until(lambda: self._lines()[:1], "the job to start")
        self.job = int(first[0].split()[1])

    def _lines(self) -> list[str]:
        with suppress(OSError):
            return self._notes.read_text().splitlines()
        return []

    def counts(self) -> Counter[str]:
        """Count the signals that the job got so far."""
        return Counter(self._lines()[1:])

    def wait_for(self, name: str, count: int = 1) -> None:
        """Wait until the job has got a signal so often."""
        until(lambda: self.counts()[name] >= count, f"{name} to reach the job")

    def wait_for_witness(self, pid: int | None = None) -> None:
        """Wait until weigh can tell a signal to the group from one to itself."""
        top = pid or self.weigh.pid
        until(lambda: len(children_of(top)) > 1, "the witness")

    def finish(self, pid: int | None = None) -> Counter[str]:
        """End the job; give its signals, with all that weigh may have passed on."""
        top = pid or self.weigh.pid
        os.kill(top, signal.SIGRTMIN)  # weigh takes signals by their number
        until(lambda: self.counts()["RTMIN"], "the last signal")
        os.kill(top, signal.SIGALRM)
        until(lambda: not is_running(self.job), "the job to end")
        counts = self.counts()
        del counts["RTMIN"]
        return counts


class Terminal:
    """A program on a pseudo-terminal of its own, 24 x 80."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self.shown = ""
        self._seen = 0
        self.pid, self._master = os.forkpty()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execvpe(argv[0], list(argv), env)
            finally:
                os._exit(127)
        self.resize(24, 80)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        """Type as a user would, Enter as a newline."""
        os.write(self._master, text.encode())

    def expect(self, pattern: str) -> "re.Match[str]":
        """Wait until the screen shows *pattern* beyond what was expected before."""
        deadline = time.monotonic() + PATIENCE
        while True:
            match = re.compile(pattern).search(self.shown, self._seen)
            if match:
                self._seen = match.end()
                return match
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"no {pattern!r} in {self.shown!r}")

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the program to end; give its exit code, minus n for signal n."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                self._drain()
                return os.waitstatus_to_exitcode(status)
            self._read(0.01)
        raise AssertionError(f"still running, and shows {self.shown!r}")

    def hang_up(self) -> None:
        """Close the window."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def close(self) -> None:
        """Close the window and see the program off."""
        self.hang_up()
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _drain(self) -> None:
        """Read what a program that has ended wrote last."""
        with suppress(OSError):  # the other side is closed, and all is read
            while select.select([self._master], [], [], 0.01)[0]:
                if not (text := os.read(self._master, 4096)):
                    return
                self.shown += text.decode(errors="replace")

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, seconds))[0]:
            return False
        try:
            self.shown += os.read(self._master, 4096).decode(errors="replace")
        except OSError:  # the other side is closed
            time.sleep(0.01)
            return seconds > 0
        return True


class Weigh:
    """weigh in a folder of its own; what it starts is known by a mark."""

    def __init__(
        self,
        folder: Path,
        prefix: Sequence[str] = (),
        program: Sequence[str] = WEIGH,
    ) -> None:
        self.folder = folder
        self.prefix = tuple(prefix)
        self.program = program
        self.store = folder / "store"
        self.mark = uuid.uuid4().hex
        self.started: list[subprocess.Popen[bytes]] = []
        self.terminals: list[Terminal] = []

    def env(self, **more: str) -> dict[str, str]:
        """Give this process's environment, with the mark and the store's place."""
        ours = {"WEIGH_DIR": str(self.store), "WEIGH_LOGIN_NODE": "no"}
        return {**os.environ, **ours, _MARK: self.mark, **more}

    def start(
        self, *words: str | bytes, prefix: Sequence[str] = (), **options: Any
    ) -> "subprocess.Popen[bytes]":
        """Start ``weigh WORDS``, behind *prefix* if any."""
        options.setdefault("env", self.env())
        options.setdefault("cwd", self.folder)
        argv = [*self.prefix, *prefix, *self.program, *words]
        process = subprocess.Popen(argv, **options)
        self.started.append(process)
        return process

    def start_ready(
        self, *words: str, **options: Any
    ) -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
        """Start ``weigh run WORDS``; return it and its stdout after the first line."""
        process = self.start("run", *words, stdout=subprocess.PIPE, **options)
        assert process.stdout is not None
        assert process.stdout.readline().endswith(b"\n")
        return process, process.stdout

    def run(
        self, *words: str | bytes, prefix: Sequence[str] = (), **options: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run ``weigh run WORDS`` to its end; give code and streams, as bytes."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        with self.start("run", *words, prefix=prefix, **options) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()  # else `with` waits for it without an end
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def count_signals(self, *options: str, **more: Any) -> Counted:
        """Start a job that notes its signals, and wait until it is ready."""
        notes = self.folder / "signals"
        job = (sys.executable, "-c", COUNTER, str(notes))
        return Counted(self.start("run", *options, "--", *job, **more), notes)

    def terminal(self, *argv: str, **more: str) -> Terminal:
        """Run a program on a terminal; *more* goes to its environment."""
        env = self.env(TERM="xterm", **more)
        terminal = Terminal(argv, env, self.folder)
        self.terminals.append(terminal)
        return terminal

    def shell(self) -> Terminal:
        """Open a terminal with bash as a person's shell, job control and all."""
        return self.terminal("bash", "--norc", "--noediting", "-i", PS1="PROMPT> ")

    def record(self) -> dict[str, Any]:
        """Read the one record in the store."""
        (shard,) = self.store.glob("records/*/*.jsonl")
        (line,) = shard.read_bytes().splitlines()
        record: dict[str, Any] = json.loads(line)
        return record

    def left(self) -> list[int]:
        """Give the processes that descend from what was started here and still run."""
        found = processes_with(variable=f"{_MARK}={self.mark}")
        return [pid for pid in found if is_running(pid)]

    def close(self) -> None:
        """Leave nothing behind."""
        for terminal in self.terminals:
            terminal.close()
        kill_processes_with(f"{_MARK}={self.mark}")
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
