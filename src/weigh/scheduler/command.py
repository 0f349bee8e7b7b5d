"""Run one command of a scheduler, whatever it does: missing, slow, failing, garbled."""

import subprocess
from collections.abc import Callable, Mapping

import msgspec

from weigh.errors import SchedulerError
from weigh.units import Seconds

# user defaults that would change what our queries print
_OFF = ("SQUEUE_", "SACCT_", "SLURM_TIME_FORMAT")
_OURS = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
_LONGEST_WORD = 300


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
    """Run *argv* and read what it prints; bytes that are no UTF-8 as backslashes.

    Raises:
        SchedulerError: it is not there, or takes longer than *timeout* seconds.
    """
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=_environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise SchedulerError(f"{argv[0]} is not on this machine") from error
    except OSError as error:
        raise SchedulerError(f"cannot run {argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SchedulerError(
            f"{argv[0]} did not answer within {timeout:g} seconds"
        ) from error
    return Ran(done.returncode, _text(done.stdout), _text(done.stderr))


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in env.items() if not key.startswith(_OFF)}
    return kept | _OURS


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "backslashreplace")
