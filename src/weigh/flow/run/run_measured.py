"""Run a command under ``weigh run``, in a process of its own.

A separate process, because a large process passes its size on to the ru_maxrss of its
children, and because the process that waits then adds nothing to the figures.
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
    NOT_EXECUTABLE,
    NOT_FOUND,
    CommandNotExecutableError,
    CommandNotFoundError,
    WeighError,
    writing,
)
from weigh.model.record import Record, RunMeasurement
from weigh.store import identity, shards
from weigh.store.lines import UNREADABLE, read_tail
from weigh.why_run_ended import failure_line

_TAIL = 16384  # bytes of output: a traceback, and what torch prints below it
_ERRORS: dict[int, type[WeighError]] = {
    NOT_EXECUTABLE: CommandNotExecutableError,
    NOT_FOUND: CommandNotFoundError,
}


class InterruptedRun(KeyboardInterrupt):
    """weigh received the ending signal ``number`` while a command ran."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def weigh_run(*options: str) -> tuple[str, ...]:
    """Return the argv of ``weigh run`` with *options*, up to the command."""
    # -P: no module of the user's folder replaces one of weigh's
    return (sys.executable, "-P", "-m", "weigh", "run", *options, "--")


class MeasuredRun:
    """One command under ``weigh run -q``; ``process`` is that of ``weigh run``."""

    def __init__(  # noqa: PLR0913 - one run, fully described
        self,
        command: Sequence[str | bytes],
        record: str,
        *,
        options: Sequence[str] = (),
        log: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            command: the command's argv.
            record: the file for the record.
            options: further options of ``weigh run``.
            log: the file for all output; None to share this process's streams.
            cwd: the working directory.
            env: the environment; None for this process's.

        Raises:
            WeighError: *log* cannot be written, or the process cannot be started.
        """
        self._record = record
        self.log = log
        argv: list[str | bytes] = [*weigh_run("-q", "-o", record, *options), *command]
        environ = None if env is None else dict(env)
        with writing(log or ""):
            output = None if log is None else open(log, "wb")  # noqa: SIM115 - closed below
        try:
            self.process = subprocess.Popen(
                argv,
                # several runs cannot share standard input
                stdin=None if output is None else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=environ,
            )
        except OSError as error:
            where = os.curdir if cwd is None else cwd
            raise WeighError(f"cannot run in {where}: {error.strerror}") from error
        finally:
            if output is not None:
                output.close()

    def wait(self) -> int:
        """Return its exit code; kill it if the wait is interrupted."""
        with self.process:
            try:
                return self.process.wait()
            # Ctrl-C while waiting: the command does not stay behind
            except BaseException:
                self.process.kill()
                raise

    def record(self) -> Record | None:
        """Return the record that it wrote; None if it wrote none."""
        try:
            with open(self._record, "rb") as file:
                return msgspec.json.decode(file.read(), type=Record)
        except (OSError, *UNREADABLE):
            return None


def run_measured(  # noqa: PLR0913 - one run, fully described
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

    *texts* are the parameters as typed, *root* is the store. A MemoryError in the
    output makes the state OUT_OF_MEMORY, in the store too. A signal to this process is
    passed on; ``Interrupted`` is raised after the run has ended.

    Raises:
        CommandNotFoundError: no such command.
        CommandNotExecutableError: it cannot be executed.
        WeighError: weigh failed, or the log cannot be written; the message has the
            cause.
        Interrupted: this process received an ending signal.
    """
    options = [f"--label={label}", *(f"--param={n}={t}" for n, t in texts.items())]
    with tempfile.TemporaryDirectory(prefix="weigh-") as folder:
        path = os.path.join(folder, "record.json")
        run = MeasuredRun(command, path, options=options, log=log, cwd=cwd, env=env)
        code = wait_for_all([run])[0]
        record = run.record()
    # weigh run failed itself: its last line is in the log
    if record is None:
        message = last_line(log) or f"weigh run left no record (exit code {code})"
        raise _ERRORS.get(code, WeighError)(message.removeprefix("weigh: "))
    judged = _record_judged_by_output(record, read_tail(log, _TAIL))
    if judged is not record:  # of one id, the last line counts
        shards.append_record(root, judged, identity.this_machine())
    return judged


def _record_judged_by_output(record: Record, tail: bytes) -> Record:
    """Return the record, OUT_OF_MEMORY where the end of its output shows that."""
    from weigh.runner import retry  # noqa: PLC0415 - start-up time

    if record.state != "FAILED" or record.usage is None:
        return record
    ended = retry.judge_attempt_end(
        RunMeasurement(
            started=0,
            ended=0,
            exit_code=record.exit_code,
            signal=record.signal,
            usage=record.usage,
        ),
        tail=tail,
    )
    if ended.state != "OUT_OF_MEMORY":
        return record
    return msgspec.structs.replace(record, state=ended.state, outcome=ended.outcome)


def last_line(log: str) -> str:
    """Return the last line of a file that is not blank, at most 200 letters."""
    lines = read_tail(log, _TAIL).decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def error_in(log: str) -> str:
    """Return the line of a failed command's log that states why, cut to 200 letters."""
    return failure_line(read_tail(log, _TAIL).decode(errors="replace"))[:200]


def wait_for_all(runs: Sequence[MeasuredRun]) -> list[int]:
    """Wait for all *runs*, and pass on signals sent to this process alone.

    Ctrl-C reaches the runs without help: the terminal sends it to the whole group.

    Raises:
        Interrupted: this process received an ending signal; all runs have ended.
    """
    received: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if number != signal.SIGINT:
            for run in runs:
                run.process.send_signal(number)

    # before waiting: a signal in between would end this process alone
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        codes = [run.process.wait() for run in runs]
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    if received:
        raise InterruptedRun(received[0])
    return codes
