"""A node with a shared disk and a scratch disk, and job scripts that run on it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from processes import PATIENCE, children_of
from written_programs import kill_processes_with, programs_without, write_program

from weigh.model.staging import StagedInput, StagingPlan
from weigh.staging.script import staged_script_lines

_MARK = "STAGED_NODE"  # a variable of all that runs on a node


Tools: TypeAlias = Mapping[str, Mapping[str, str]]


class Task:
    """One bash process that runs a job script."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log
        self.output = self.errors = ""

    def end(self) -> int:
        """Wait for the script; return its exit code and keep what it said."""
        code = self.process.wait(timeout=PATIENCE)
        self.output = _text(self._log.with_suffix(".out"))
        self.errors = _text(self._log.with_suffix(".err"))
        return code

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


class Node:
    """Folders for one test: ``home`` is the shared disk, ``scratch`` the node's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.scratch = folder / "scratch"
        self.results = self.home / "results"
        self.home.mkdir(parents=True)
        self.scratch.mkdir()
        self.tasks: list[Task] = []

    def write(self, name: str, text: str = "text\n") -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, errors="surrogateescape")
        return path

    def staging(self, **changes: object) -> StagingPlan:
        usual = StagingPlan(destination=str(self.results), scratch=str(self.scratch))
        return msgspec.structs.replace(usual, **changes)

    def taking(self, name: str, place: str | None = None) -> StagingPlan:
        """Return the usual staging with one input, a path below ``home``."""
        source = StagedInput(str(self.home / name), place or name)
        return self.staging(sources=(source,))

    def start(  # noqa: PLR0913 - what varies from job to job
        self,
        payload: str,
        staging: StagingPlan | None = None,
        *,
        element: int | None = None,
        job: str = "4711",
        env: Mapping[str, str] | None = None,
        before: str = "",
    ) -> Task:
        """Start one task as a scheduler would: bash, in the submission's folder."""
        script = self.folder / f"{len(self.tasks)}.sh"
        text = staged_script_lines(staging or self.staging(), payload)
        script.write_text(f"#!/bin/bash\n{before}\n{text}")
        given = {"SLURM_JOB_ID": job}
        if element is not None:
            given = {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": str(element)}
        with (
            script.with_suffix(".out").open("wb") as output,
            script.with_suffix(".err").open("wb") as errors,
        ):
            process = subprocess.Popen(
                ["bash", str(script)],
                cwd=self.home,
                env={**_environment(), **given, _MARK: str(self.folder), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        self.tasks.append(Task(process, script))
        return self.tasks[-1]

    def run(
        self, payload: str, staging: StagingPlan | None = None, **words: object
    ) -> Task:
        """Run one task to its end."""
        task = self.start(payload, staging, **words)  # type: ignore[arg-type]
        task.end()
        return task

    def left(self) -> list[Path]:
        """List what lies on the scratch disk below the folder that always stays."""
        return [path for base in self.scratch.iterdir() for path in base.iterdir()]

    def result_texts(self) -> dict[str, str]:
        """Return the texts of all files that came home, by their paths."""
        files = (path for path in self.results.rglob("*") if path.is_file())
        return {str(path.relative_to(self.results)): _text(path) for path in files}

    def found(self, pattern: str) -> list[Path]:
        return list(self.scratch.glob(f"weigh-*/*/{pattern}"))

    def counted_copies(self) -> dict[str, str]:
        """Return an environment in which every rsync leaves a line in ``copies``."""
        text = f'echo "$*" >> {self.folder}/copies; exec {real_program("rsync")} "$@"'
        return {"PATH": program(self.folder / "bin", "rsync", text)}

    def slow(self, name: str, word: str, *, at_end: bool = False) -> dict[str, str]:
        """Return an environment in which the program *name* waits for :meth:`let_go`.

        It does before its work with *word*, or *at_end* of its work without it.
        """
        wait = (
            f"touch {self.folder}/held; "
            f"until [ -e {self.folder}/go ]; do sleep 0.1; done"
        )
        pick = f'[[ "$*" {"!=" if at_end else "=="} *{word}* ]]'
        work = f'{real_program(name)} "$@"'
        steps = f"{work}; code=$?; {wait}; exit $code" if at_end else f"{wait}; {work}"
        text = f"if {pick}; then {steps}; else {work}; fi"
        return {"PATH": program(self.folder / "bin", name, text)}

    def is_held(self) -> bool:
        """Return whether a program of :meth:`slow` has come to where it waits."""
        return (self.folder / "held").exists()

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def close_tasks(self) -> None:
        for task in self.tasks:
            if task.process.poll() is None:
                task.process.kill()
                task.process.wait()
        # what a killed script left behind
        kill_processes_with(f"{_MARK}={self.folder}")

    def close(self) -> None:
        self.close_tasks()
        shutil.rmtree(self.folder, ignore_errors=True)


def waits_for_lock(task: Task) -> bool:
    """Return whether a child of *task*'s shell is flock(1) that waits."""
    for child in children_of(task.process.pid):
        with suppress(OSError):  # it ends
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"flock", b"9"]:
                return True
    return False


def real_program(name: str) -> str:
    """Return the absolute path of a program, for a fake of that name to call.

    By its name alone the fake, which comes first on PATH, would call itself for ever.
    """
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} here")
    return path


def program(folder: Path, name: str, text: str) -> str:
    """Put a program in *folder*; return a PATH on which it comes first."""
    write_program(folder / name, text)
    return f"{folder}:{os.environ['PATH']}"


def path_without(above: Path, name: str) -> str:
    """Return a PATH with every program that is here but *name*.

    Only the folders that have it are replaced, by folders of links in *above*.
    """
    return os.pathsep.join(
        str(programs_without(name, above, source))
        if os.path.lexists(os.path.join(source, name))
        else source
        for source in os.environ["PATH"].split(os.pathsep)
    )


def _text(path: Path) -> str:
    return path.read_text(errors="surrogateescape")


def _environment() -> dict[str, str]:
    foreign = ("SLURM", "SGE", "JOB_ID", "WEIGH", "TMPDIR")
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
