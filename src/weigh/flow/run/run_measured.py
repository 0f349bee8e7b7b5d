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
from weigh.model.record import Measurement, Monitor, Record, Series
from weigh.runner import retry
from weigh.store import identity, shards
from weigh.store.lines import UNREADABLE

_TAIL = 16384  # bytes of output: a traceback, and what torch says below it
_ERRORS: dict[int, type[WeighError]] = {
    126: CommandNotExecutableError,
    127: CommandNotFoundError,
}


class Told(KeyboardInterrupt):
    """weigh was told to end by signal ``number`` while a command ran."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run_weighed(  # noqa: PLR0913 - one run, fully described
    command: Sequence[str],
    *,
    label: str,
    texts: Mapping[str, str],
    log: str,
    root: str,
    cwd: str,
    env: Mapping[str, str],
) -> Record:
    """Run *command* once and return its record; its output goes to the file *log*.

    *texts* are the parameters as typed, *root* is the store. What the output says of
    memory counts: a MemoryError is OUT_OF_MEMORY, in the store too. A signal to this
    process is passed on, and the run is waited for before ``Told`` is raised.

    Raises:
        CommandNotFoundError: no such command.
        CommandNotExecutableError: it cannot be executed.
        WeighError: weigh failed, or the file cannot be written; says why.
        Told: this process was told to end.
    """
    options = [f"--label={label}", *(f"--param={n}={t}" for n, t in texts.items())]
    with tempfile.TemporaryDirectory(prefix="weigh-") as folder:
        path = os.path.join(folder, "record.json")
        # -P: no module of the user's folder stands in for one of weigh's
        argv = [sys.executable, "-P", "-m", "weigh", "run", "-q", "-o", path, *options]
        code = _run([*argv, "--", *command], log, cwd=cwd, env=env)
        try:
            with open(path, "rb") as file:
                record = msgspec.json.decode(file.read(), type=Record)
        except (OSError, *UNREADABLE) as error:
            said = last_line(log) or f"weigh run left no record (exit code {code})"
            said = said.removeprefix("weigh: ")
            raise _ERRORS.get(code, WeighError)(said) from error
    judged = _judged(record, _tail(log))
    if judged is not record:  # of one id, the last line counts
        shards.append(root, judged, identity.this_machine())
    return judged


def _judged(record: Record, tail: bytes) -> Record:
    """Say that it ran out of memory where its last words do."""
    if record.state != "FAILED" or record.usage is None:
        return record
    ended = retry.end(
        Measurement(
            started=0,
            ended=0,
            exit_code=record.exit_code,
            signal=record.signal,
            usage=record.usage,
            series=Series(),
            monitor=Monitor(),
        ),
        tail=tail,
    )
    if ended.state != "OUT_OF_MEMORY":
        return record
    return msgspec.structs.replace(record, state=ended.state, outcome=ended.outcome)


def last_line(log: str) -> str:
    """Return the last line of a file that says something, at most 200 letters."""
    lines = _tail(log).decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def _tail(log: str) -> bytes:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - _TAIL))
            return file.read()
    except OSError:
        return b""


def _run(argv: Sequence[str], log: str, *, cwd: str, env: Mapping[str, str]) -> int:
    try:
        out = open(log, "wb")  # noqa: SIM115 - closed below, after another error's text
    except OSError as error:
        raise WeighError(f"{log}: {error.strerror}") from error
    with out:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env=dict(env),
            )
        except OSError as error:
            raise WeighError(f"cannot run in {cwd}: {error.strerror}") from error
        return wait_for_all([child])[0]


def wait_for_all(children: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait, passing on what is sent to this process alone (^C reaches all).

    Raises:
        Told: this process was told to end; all children have ended.
    """
    told: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        if number != signal.SIGINT:
            for child in children:
                child.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        codes = [child.wait() for child in children]
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    if told:
        raise Told(told[0])
    return codes
