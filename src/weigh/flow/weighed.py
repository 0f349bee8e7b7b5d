"""One run of a command under ``weigh run``, with its output in a file.

A process of its own, because a large one passes its size on to the ru_maxrss of what
it starts; and so that whoever waits for it adds nothing to what it measures.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import FrameType

import msgspec

from weigh.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    WeighError,
)
from weigh.model.record import Record

_ERRORS: dict[int, type[WeighError]] = {
    126: CommandNotExecutableError,
    127: CommandNotFoundError,
}


class Told(KeyboardInterrupt):
    """weigh was told to end by signal ``number`` while a command ran."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run_weighed(
    command: Sequence[str],
    *,
    label: str,
    texts: Mapping[str, str],
    log: str,
    env: Mapping[str, str],
) -> Record:
    """Run *command* once and return its record; its output goes to the file *log*.

    *texts* are the parameters as typed. A signal to this process is passed on, and the
    run is waited for before ``Told`` is raised.

    Raises:
        CommandNotFoundError: no such command.
        CommandNotExecutableError: it cannot be executed.
        WeighError: weigh failed, or the file cannot be written; says why.
        Told: this process was told to end.
    """
    options = [f"--label={label}", *(f"--param={n}={t}" for n, t in texts.items())]
    with tempfile.TemporaryDirectory(prefix="weigh-") as folder:
        path = os.path.join(folder, "record.json")
        argv = [sys.executable, "-m", "weigh", "run", "-q", "-o", path, *options]
        code = _run([*argv, "--", *command], log, env)
        try:
            with open(path, "rb") as file:
                return msgspec.json.decode(file.read(), type=Record)
        except (OSError, msgspec.DecodeError) as error:
            said = last_line(log) or f"weigh run left no record (exit code {code})"
            said = said.removeprefix("weigh: ")
            raise _ERRORS.get(code, WeighError)(said) from error


def last_line(log: str) -> str:
    """Return the last line of a file that says something, at most 200 letters."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def _run(argv: Sequence[str], log: str, env: Mapping[str, str]) -> int:
    try:
        out = open(log, "wb")  # noqa: SIM115 - closed below, after another error's text
    except OSError as error:
        raise WeighError(f"{log}: {error.strerror}") from error
    with out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(env)
        )
        return _wait(child)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait, passing on what is sent to this process alone (^C reaches both)."""
    told: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        if number != signal.SIGINT:
            child.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        code = child.wait()
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    if told:
        raise Told(told[0])
    return code
