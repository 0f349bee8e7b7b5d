"""The verbs for Python programs: ``from weigh import run``."""

import os
import sys
from collections.abc import Sequence

import msgspec

from weigh.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    FormatError,
    WeighError,
)
from weigh.model.record import Record

_ERRORS: dict[int, type[WeighError]] = {
    125: WeighError,
    126: CommandNotExecutableError,
    127: CommandNotFoundError,
}


def run(  # noqa: PLR0913 - the options of the command line, keyword-only
    command: Sequence[str | os.PathLike[str]],
    *,
    label: str | None = None,
    parameters: dict[str, int | float | str] | None = None,
    interval: float | None = None,
    repeat: int = 1,
    warmup: int = 0,
    wait_orphans: bool = True,
) -> Record:
    """Measure one run of *command*, as ``weigh run`` does, and return its record.

    The command gets this process's streams and environment. It is started by a slim
    ``python -m weigh``, because a large process passes its size on to the ru_maxrss of
    what it starts. *interval* is the seconds between samples at best. A command that
    fails is no error here: see the record's ``state`` and ``exit_code``.

    Raises:
        CommandNotFoundError: no such command.
        CommandNotExecutableError: it cannot be executed.
        WeighError: weigh itself failed; the message says how.
    """
    import subprocess  # noqa: PLC0415 - start-up time
    import tempfile  # noqa: PLC0415 - start-up time

    options = [f"--repeat={repeat}", f"--warmup={warmup}"]
    options += [] if label is None else [f"--label={label}"]
    options += [] if interval is None else [f"--interval={interval}"]
    options += [] if wait_orphans else ["--no-wait-orphans"]
    for name, value in (parameters or {}).items():
        options.append(f"--param={name}={value}")
    with tempfile.TemporaryDirectory(prefix="weigh-") as folder:
        path = os.path.join(folder, "record.json")
        words = [os.fspath(word) for word in command]
        argv = [sys.executable, "-m", "weigh", "run", "-q", "-o", path, *options]
        done = subprocess.run([*argv, "--", *words], check=False)
        return _read(path, done.returncode, words)


def _read(path: str, code: int, words: list[str]) -> Record:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        if code in _ERRORS:
            what = " ".join(words) or "an empty command"
            raise _ERRORS[code](f"weigh run could not start {what}") from error
        raise FormatError(f"weigh run left no record (exit code {code})") from error
