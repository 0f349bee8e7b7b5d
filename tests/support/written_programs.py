"""Programs and files that a test writes, and processes that it looks for."""

import os
import re
import resource
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_program(path: Path, body: str) -> Path:
    """Write a program of bash; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    return path


def programs_without(names: str, above: Path, source: str = "/usr/bin") -> Path:
    """Return a folder with a link to each program of *source* but those called *names*.

    It lies in *above*, where the first process that needs it makes it for all: so many
    links take half a second. *names* is a pattern.
    """
    key = f"programs-of{os.path.realpath(source)}-without-{names}"
    folder = above / re.sub(r"\W+", "-", key)
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=above))
        for program in os.listdir(source):
            if not re.fullmatch(names, program):
                (made / program).symlink_to(Path(source, program))
        with suppress(OSError):  # another process was faster
            made.rename(folder)
    return folder


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let files grow to so many bytes: the kernel writes what fits, as on a disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def processes_with(*, cwd: Path | None = None, variable: str = "") -> list[int]:
    """Return other processes that stand in a folder or have *variable* set so."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "environ").read_bytes() if variable else b""
            is_there = cwd is None or (process / "cwd").samefile(cwd)
            if is_there and (not variable or variable.encode() in words.split(b"\0")):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]


def kill_processes_with(variable: str) -> None:
    """Kill all processes that have *variable* at once, as the kernel does."""
    for pid in processes_with(variable=variable):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
