"""``weigh`` as a test calls it, and waits for what it sets going."""

import glob
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from weigh.cli.main import run_cli
from weigh.schedulers import KINDS

PATIENCE = 240.0


class Weigh:
    """Calls weigh in a folder; ``scheduler`` is who runs the jobs."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.scheduler = "local"
        self._capsys = capsys

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        """Return the exit code, and what was printed to stdout and stderr."""
        self._capsys.readouterr()
        code = run_cli(argv, [])
        out, err = self._capsys.readouterr()
        return code, out, err

    def with_cluster(
        self, scheduler: str, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> "Weigh":
        """Send jobs to a scheduler whose commands need *env*."""
        self.scheduler = scheduler
        for key, value in env.items():
            monkeypatch.setenv(key, value)
        return self

    def needs_waiting(self) -> None:
        """Skip a test of jobs that wait for others where they cannot."""
        kind = KINDS.get(self.scheduler)
        if kind is not None and not kind.traits.waits:
            pytest.skip(f"{kind.title} lets no job wait for another one")

    def plan(
        self,
        *lines: str,
        name: str = "p",
        together: int = 1,
        memory: str = "100M",
        words: tuple[str, ...] = (),
    ) -> str:
        """Plan these tasks, so many side by side; give the plan's folder."""
        tasks = self.folder / f"{name}.txt"
        tasks.write_text("".join(f"{line}\n" for line in lines))
        said = ("--memory", memory, "--cpus", "1", "--time", "4m")
        node = ("--node", str(together)) if together > 1 else ()
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("WEIGH_HEADROOM", "0")
            code, _, err = self("plan", str(tasks), *said, *node, *words)
        assert code == 0, err
        return f"plan/{name}"

    def submit(self, *words: str) -> str:
        """Submit; give the job's id."""
        code, out, err = self("submit", "--json", "--on", self.scheduler, *words)
        assert code == 0, err
        return str(json.loads(out)["job"]["id"])

    def resume(self, job: str, *words: str) -> dict[str, Any]:
        """Resume; give the document about it."""
        code, out, err = self("resume", job, "--json", *words)
        assert code == 0, err
        document: dict[str, Any] = json.loads(out)
        return document

    def status(self, job: str) -> dict[str, Any]:
        """Return the state of each element."""
        code, out, err = self("status", job, "--json")
        assert code == 0, err
        standing: dict[str, Any] = json.loads(out)["jobs"][0]
        return standing

    def finish(self, job: str) -> dict[str, int]:
        """Wait until nothing runs or waits; give how many tasks are in which state."""
        standing = self.wait_for(
            job, lambda one: not {"PENDING", "RUNNING", "UNKNOWN"} & set(one["tasks"])
        )
        states: dict[str, int] = standing["tasks"]
        return states

    def wait_for(
        self, job: str, is_so: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Wait until a job stands so."""
        standing: dict[str, Any] = {}

        def look() -> bool:
            nonlocal standing
            standing = self.status(job)
            return is_so(standing)

        until(
            look, what=lambda: json.dumps(standing, indent=1), sign=self.events_written
        )
        return standing

    def wait_until_held_back(self, job: str) -> None:
        """Wait until a job that may not start has ended, or can never start."""
        self.wait_for(
            job,
            lambda one: (
                "FAILED" in one["tasks"]
                or any(wait["hopeless"] for wait in one["waiting"])
            ),
        )

    def wait_until_blocked(self, job: str) -> None:
        """Wait until *job* shows that what it needs cannot succeed as things are."""
        self.wait_for(job, lambda one: any(need["is_blocked"] for need in one["needs"]))

    def order(self) -> list[str]:
        """Return which tasks have run, in order: each writes a line."""
        path = self.folder / "order"
        return path.read_text().splitlines() if path.exists() else []

    def events_written(self) -> int:
        """Return how many bytes the jobs of this folder have written about tasks."""
        written = 0
        # glob.glob: folders come and go meanwhile, on which Path.glob fails
        files = "plan/**/*.events.jsonl"
        for path in glob.glob(files, root_dir=self.folder, recursive=True):
            with suppress(FileNotFoundError):
                written += (self.folder / path).stat().st_size
        return written


def until(
    is_so: Callable[[], bool],
    *,
    what: Callable[[], str] = lambda: "it is not so",
    sign: Callable[[], object] = lambda: None,
) -> None:
    """Wait until *is_so*, or fail with *what* there is instead.

    Each look may start programs of a scheduler: they are far apart where *sign* shows
    nothing new.
    """
    end = time.monotonic() + PATIENCE
    longest = pause = 0.1
    while not is_so():
        assert time.monotonic() < end, what()
        before, due = sign(), time.monotonic() + pause
        while time.monotonic() < due and sign() == before:
            time.sleep(0.1)
        pause = 0.1 if sign() != before else min(longest, pause * 1.4)
        longest = min(2.0, longest + 0.2)
