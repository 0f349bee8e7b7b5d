"""A user's road through weigh, typed into a folder, and what the tasks did on it.

The oracle is a file to which each task appends its own lines: weigh does not write it.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from processes import WEIGH
from run_captured import run_captured

PATIENCE = 240  # seconds, of a busy machine: an event ends each wait
NOT_OVER = frozenset({"PENDING", "RUNNING", "UNKNOWN"})
# what a task does: hold memory, take time, and fail as its words say
PROGRAM = """\
import json, os, signal, sys, time
words = sys.argv[1:]
given = dict(zip(words[::2], words[1::2]))
def note(what):
    line = json.dumps([what, words]) + "\\n"
    file = os.open({ran!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, line.encode())
    os.close(file)
note("begun")
print("output of", json.dumps(words), flush=True)
held = bytearray(int(float(given.get("--mb", 1)) * 2**20))
held[::4096] = b"x" * len(held[::4096])
time.sleep(float(given.get("--seconds", 0)))
number = int(given.get("--x", 0))
if int(given.get("--each", 0)) and number % int(given["--each"]) == 0:
    if not os.path.exists({fixed!r}):
        how = given["--fails"]
        if how == "exit":
            sys.exit(3)
        if how == "bug":
            raise ValueError("no value for x")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            time.sleep(1e5)
        if how == "once" and not os.path.exists(f"{{{ran!r}}}.{{number}}"):
            open(f"{{{ran!r}}}.{{number}}", "w").close()
            sys.exit(4)
note("ended")
"""


class Road:
    """``weigh`` as its user calls it, in a folder of its own without settings.

    Jobs go to *scheduler*; *env* is what its rig needs.
    """

    def __init__(
        self, folder: Path, scheduler: str = "local", env: dict[str, str] | None = None
    ) -> None:
        self.folder, self.scheduler = folder, scheduler
        ours = ("WEIGH_", "SLURM_", "SGE_", "_CONDOR")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self.env = kept | (env or {})
        self.env |= {"XDG_CONFIG_HOME": str(folder / "xdg"), "WEIGH_POLL": "0s"}

    def __call__(self, *words: str | Path, ok: tuple[int, ...] = (0,)) -> str:
        """Call ``weigh``; return what it printed if its exit code is one of *ok*."""
        code, text = self.called(*words)
        assert code in ok, (words, code, text)
        return text

    def called(self, *words: str | Path, cwd: Path | None = None) -> tuple[int, str]:
        """Call ``weigh``; return its exit code, and what it printed."""
        folder = cwd or self.folder
        done = run_captured([*WEIGH, *words], cwd=folder, env=self.env, merged=True)
        assert "Traceback" not in done.stdout or "weigh/" not in done.stdout, words
        return done.returncode, done.stdout

    def read(self, *words: str, ok: tuple[int, ...] = (0, 1)) -> Any:
        """Return what ``weigh`` prints with ``--json``."""
        return json.loads(self(*words, "--json", ok=ok))

    # the tasks

    @property
    def ran(self) -> Path:
        """Return the file that the tasks write."""
        return self.folder / "ran"

    def program(self, text: str = PROGRAM, name: str = "job.py") -> Path:
        """Write the program of the tasks; return its path."""
        path, fixed = self.folder / name, self.folder / "fixed"
        path.write_text(text.format(ran=str(self.ran), fixed=str(fixed)))
        return path

    def fix(self) -> None:
        """Let no task fail any more."""
        (self.folder / "fixed").touch()

    def forget(self) -> None:
        """Forget what ran so far, such as measured runs."""
        self.ran.unlink(missing_ok=True)

    def _noted(self, what: str) -> Counter[tuple[str, ...]]:
        lines = self.ran.read_text().splitlines() if self.ran.exists() else []
        notes = (json.loads(line) for line in lines)
        return Counter(tuple(words) for kind, words in notes if kind == what)

    def begun(self) -> Counter[tuple[str, ...]]:
        """Return how often a task was begun, by its words."""
        return self._noted("begun")

    def ended(self) -> Counter[tuple[str, ...]]:
        """Return how often a task ran to its end, by its words."""
        return self._noted("ended")

    # the jobs

    def submit(self, *words: str | Path, ok: tuple[int, ...] = (0,)) -> str:
        """Submit a plan, a script or a command to the road's scheduler."""
        return self("submit", "--on", self.scheduler, *words, ok=ok)

    def states(self, name: str = "last") -> dict[str, int]:
        """Return how many tasks of a job are in which state, as status says."""
        job = self.read("status", name)["jobs"][0]
        states: dict[str, int] = {k: v for k, v in job["tasks"].items() if v}
        assert sum(states.values()) == job["total"], job
        return states

    def wait(self, name: str = "last") -> dict[str, int]:
        """Wait until no task of a job waits or runs; return the states."""
        end = time.monotonic() + PATIENCE
        while NOT_OVER & {*(states := self.states(name))}:
            assert time.monotonic() < end, states
            # a look costs more CPU time than most tasks: sooner where one has ended
            before, longest = self.begun() + self.ended(), time.monotonic() + 1
            time.sleep(0.3)
            while self.begun() + self.ended() == before and time.monotonic() < longest:
                time.sleep(0.05)
        return states

    def wait_for_tasks_that_hang(self, number: int) -> None:
        """Wait until so many tasks have begun that do not end before they are fixed.

        If that is how many run at once, no other task runs, or ends later.
        """
        end = time.monotonic() + PATIENCE
        while sum("1" in words[-1:] for words in self.begun()) < number:
            assert time.monotonic() < end
            time.sleep(0.1)

    def succeeded(self) -> int:
        """Return how many tasks the joblogs of all plans have as successful."""
        rows = [
            line.split("\t")
            for path in self.folder.glob("plan/**/log/*.joblog")
            for line in path.read_text().splitlines()[1:]
        ]
        return sum(row[6:8] == ["0", "0"] for row in rows)

    def check_screens(self, name: str = "last") -> dict[str, int]:
        """Check that all screens and files say what ran; return the states.

        No task of the job may wait or run.
        """
        states, done = self.states(name), sum(self.ended().values())
        assert not NOT_OVER & {*states}
        assert states.get("COMPLETED", 0) == done
        all_done = done == sum(states.values())
        assert self.called("status", name, "--wait")[0] == (0 if all_done else 1)
        report = self.read("report", name)
        assert {k: v for k, v in report["states"].items() if v} == states
        assert self.succeeded() == done
        return states

    def lose_node(self) -> None:
        """End all processes in the road's folder at once, as a power cut does."""
        while running := list(self.processes()):
            for process, _ in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def processes(self) -> Iterator[tuple[int, str]]:
        """Yield id and command line of each process that runs in the road's folder."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                cwd = os.readlink(path / "cwd")
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if Path(cwd).is_relative_to(self.folder) and command:
                yield int(path.name), command

    def check_nothing_runs(self) -> None:
        """Wait until no process is left in the road's folder."""
        end = time.monotonic() + 60
        while left := list(self.processes()):
            assert time.monotonic() < end, left
            time.sleep(0.2)
