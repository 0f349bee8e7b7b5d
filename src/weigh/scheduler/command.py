"""Run one command, whatever it does: missing, slow, failing, garbled."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import SchedulerError
from weigh.units import Seconds

# user defaults that would change what our queries print
_OFF = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT")
_OURS = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_LONGEST_WORD = 300
_AFTER_THE_KILL: Seconds = 1.0


class Ran(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def complaint(self) -> str:
        """Give what it had to say of itself, on one line."""
        lines = [line.strip() for line in (self.err or self.out).splitlines()]
        text = "; ".join(line for line in lines if line)
        return text[:_LONGEST_WORD] or f"exit code {self.code} and no word"


Runner = Callable[..., Ran]


def run(
    argv: tuple[str, ...], *, cwd: str | None, env: Mapping[str, str], timeout: Seconds
) -> Ran:
    """Run *argv* as a scheduler's command: in forms that we read.

    Raises:
        SchedulerError: it is not there, or takes longer than *timeout* seconds.
    """
    return run_as_is(argv, cwd=cwd, env=_environment(env), timeout=timeout)


def run_as_is(
    argv: Sequence[str], *, cwd: str | None, env: Mapping[str, str], timeout: Seconds
) -> Ran:
    """Run *argv* without input and read what it prints; odd bytes as backslashes.

    Raises:
        SchedulerError: it is not there, or takes longer than *timeout* seconds.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if cwd is not None and error.filename == cwd:
            raise SchedulerError(f"cannot run {argv[0]}: there is no {cwd}") from error
        raise SchedulerError(f"{argv[0]} is not on this machine") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SchedulerError(f"cannot run {argv[0]}: {why}") from error
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise SchedulerError(
            f"{argv[0]} did not answer within {timeout:g} seconds"
        ) from error
    except BaseException:
        _end(process)
        raise
    return Ran(process.returncode, _text(out), _text(err))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill *process* and what it started; do not wait for one that cannot die.

    What it started may hold our pipe open after it.
    """
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:
        return
    try:
        process.communicate(timeout=_AFTER_THE_KILL)
    except subprocess.TimeoutExpired:
        return


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in env.items() if not key.startswith(_OFF)}
    return kept | _OURS


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "backslashreplace")
