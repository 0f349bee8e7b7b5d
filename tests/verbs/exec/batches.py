"""A task file, and a hasty ``weigh exec`` run on it: what the tests here share."""

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

from processes import HASTY_WEIGH, is_running, until
from run_captured import CapturedRun, run_captured
from written_programs import processes_with

from weigh.joblog import JoblogEntry, parse_line

_MARK = "WEIGH_TEST_MARK"
HOLD = Path(__file__).with_name("hold.py")

StartedExec = subprocess.Popen[str]


class Batch:
    """A folder with ``tasks.txt``, and what came of running it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks = folder / "tasks.txt"
        self.joblog = folder / "tasks.txt.joblog"
        self.events = folder / "tasks.txt.joblog.events.jsonl"
        self.output = folder / "tasks.txt.out"
        self.started: list[subprocess.Popen[str]] = []
        self._mark = uuid.uuid4().hex

    def write(self, *lines: str) -> "Batch":
        """Write the task file."""
        self.tasks.write_text("".join(f"{line}\n" for line in lines))
        return self

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment that weigh runs in."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WEIGH", "SLURM", "SGE", "CUDA", "OMP_", "BASH_"))
        }
        store = str(self.folder / ".weigh")
        return {**kept, "WEIGH_DIR": store, _MARK: self._mark, **more}

    def run(
        self, *options: str, before: tuple[str, ...] = (), **env: str
    ) -> CapturedRun:
        """Run the tasks to the end."""
        return run_captured(
            [*before, *HASTY_WEIGH, "exec", *options, "tasks.txt"],
            cwd=self.folder,
            env=self.env(**env),
        )

    def weigh(self, *words: str) -> CapturedRun:
        """Run another verb in the folder."""
        return run_captured([*HASTY_WEIGH, *words], cwd=self.folder, env=self.env())

    def start(
        self,
        *options: str,
        before: tuple[str, ...] = (),
        out: int = subprocess.PIPE,
        err: int = subprocess.PIPE,
        **env: str,
    ) -> "subprocess.Popen[str]":
        """Start running the tasks."""
        started = subprocess.Popen(
            [*before, *HASTY_WEIGH, "exec", *options, "tasks.txt"],
            cwd=self.folder,
            env=self.env(**env),
            stdout=out,
            stderr=err,
            text=True,
        )
        self.started.append(started)
        return started

    def begin(self, *options: str, **env: Any) -> "subprocess.Popen[str]":
        """Start running the tasks, and wait until one has written to ``ran``."""
        started = self.start(*options, **env)
        until(self.ran)
        return started

    def kill(self, started: "subprocess.Popen[str]") -> None:
        """End weigh by SIGKILL."""
        started.kill()
        started.wait()

    def next_line(self, started: "subprocess.Popen[str]") -> str:
        """Return the next line of stderr."""
        assert started.stderr is not None
        return started.stderr.readline()

    def entries(self) -> list[JoblogEntry]:
        """Read the joblog."""
        if not self.joblog.exists():
            return []
        _header, *lines = self.joblog.read_text().split("\n")
        return [parse_line(line) for line in lines[:-1]]

    def ended(self) -> dict[int, tuple[int, int]]:
        """Return (exit code, signal) of each task in the joblog."""
        return {one.seq: (one.exit_code, one.signal) for one in self.entries()}

    def ran(self) -> list[str]:
        """Return the lines that tasks wrote to the file ``ran``, in order."""
        ran = self.folder / "ran"
        return ran.read_text().split() if ran.exists() else []

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        if not self.events.exists():
            return []
        lines = self.events.read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["event"] == kind]

    def records(self) -> list[dict[str, Any]]:
        """Return the records, in the order they were written."""
        shards = sorted((self.folder / ".weigh" / "records").rglob("*.jsonl"))
        lines = [line for shard in shards for line in shard.read_text().splitlines()]
        # a write that was made again may leave an empty line before it
        return [json.loads(line) for line in lines if line]

    def record(self, task: int) -> dict[str, Any]:
        """Return the last record of a task."""
        return [one for one in self.records() if one["job"]["task"] == task][-1]

    def marked(self) -> list[int]:
        """Return the ids of all processes that came of this batch and are alive."""
        found = processes_with(variable=f"{_MARK}={self._mark}")
        return [pid for pid in found if is_running(pid)]
