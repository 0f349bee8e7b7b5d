"""The verbs for Python programs: ``from weigh import run``."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from weigh.errors import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    WEIGH_FAILED,
    CommandNotExecutableError,
    CommandNotFoundError,
    FormatError,
    UsageError,
    WeighError,
    writing,
)
from weigh.lazy_modules import lazy_module
from weigh.model.record import Record, Request, Usage

if TYPE_CHECKING:
    import tempfile

    from weigh import request as weigh_request
    from weigh.flow.request import growth
    from weigh.flow.run import run_measured
else:  # each is imported when it is first used
    tempfile = lazy_module("tempfile")
    growth = lazy_module("weigh.flow.request.growth")
    run_measured = lazy_module("weigh.flow.run.run_measured")
    weigh_request = lazy_module("weigh.request")

# what `weigh run` reports by its exit code becomes an exception of the same meaning
_ERRORS: dict[int, type[WeighError]] = {
    WEIGH_FAILED: WeighError,
    NOT_EXECUTABLE: CommandNotExecutableError,
    NOT_FOUND: CommandNotFoundError,
}


class Run(Record, frozen=True, kw_only=True):
    """The record of a run that ended, so its ``usage`` is there."""

    usage: Usage

    def request(
        self, *, headroom: float = 0.2, steps: float | str | None = None
    ) -> Request:
        """Return what to request for this run, as ``weigh request`` prints it.

        *steps* is the length of the full job, 10000, or with what of it this run did,
        ``"500/10000"``.

        Raises:
            UsageError: the run gives no request, because it failed at once; or nobody
                counted its steps.
            FormatError: *steps* is no length.
        """
        reason = weigh_request.why_no_request(self)
        if reason is not None:
            raise UsageError(f"no request from {self.id[:6]}: {reason} (fix it first)")
        length = None if steps is None else growth.parse_job_steps(f"{steps}")
        return growth.carry_on(
            weigh_request.from_usages([self], headroom=headroom), [self], length
        )


def run(  # noqa: PLR0913 - the options of the command line, keyword-only
    command: Sequence[str | os.PathLike[str]],
    *,
    label: str | None = None,
    parameters: dict[str, int | float | str] | None = None,
    interval: float | None = None,
    repeat: int = 1,
    warmup: int = 0,
    wait_orphans: bool = True,
) -> Run:
    """Measure one run of *command*, as ``weigh run`` does, and return its record.

    The command gets this process's streams and environment. It is started by a slim
    ``python -m weigh``, because a large process passes its size on to the ru_maxrss of
    what it starts. *interval* is the seconds between samples at best. A command that
    fails is no error here: see the record's ``state`` and ``exit_code``.

    Raises:
        UsageError: the command is no list of words, or a parameter has no name.
        CommandNotFoundError: no such command.
        CommandNotExecutableError: it cannot be executed.
        WeighError: weigh itself failed; the message says how.
    """
    words = _command_words(command)
    options = [f"--repeat={repeat},{warmup}"]
    options += [] if label is None else [f"--label={label}"]
    options += [] if interval is None else [f"--interval={interval}"]
    options += [] if wait_orphans else ["--no-wait-orphans"]
    options += [_checked_parameter(*pair) for pair in (parameters or {}).items()]
    with writing("a temporary folder", "TMPDIR can name one"):
        folder = tempfile.TemporaryDirectory(prefix="weigh-")
    with folder:
        path = os.path.join(folder.name, "record.json")
        # the options hold values of the caller, too, so they are checked like words
        measured = run_measured.MeasuredRun(
            words, path, options=[_word_of_command(o) for o in options]
        )
        code = measured.wait()
        record = measured.record()
        # without usage nothing was started: the exit code is then weigh's own, not the
        # command's
        if record is None or record.usage is None:
            _refuse(code, words)
        # a Run has all fields of a Record, with usage never None
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        return Run(**fields)


def _command_words(command: object) -> list[str]:
    """Return the words of a command.

    Raises:
        UsageError: it is one text, or a word is none.
    """
    # a text is iterable, too: it would become a command of single letters
    if isinstance(command, str | bytes | os.PathLike) or not isinstance(
        command, Iterable
    ):
        raise UsageError(
            'run: the command is a list of words, such as ["python3", "train.py"], '
            f"not {type(command).__name__}"
        )
    return [_word_of_command(word) for word in command]


def _word_of_command(word: object) -> str:
    if not isinstance(word, str | bytes | os.PathLike):
        raise UsageError(f"run: {word!r:.40} in the command is no text: write str(...)")
    text = os.fsdecode(word)
    if "\0" in text:
        raise UsageError("run: no word of a command can contain a NUL byte")
    return text


def _checked_parameter(name: str, value: object) -> str:
    # the command line splits a parameter at its first "="
    if "=" in name or not name.strip():
        raise UsageError(f"run: a parameter cannot be called {name!r:.40}")
    return f"--param={name}={value}"


def _refuse(code: int, words: list[str]) -> NoReturn:
    if code in _ERRORS:
        what = " ".join(words) or "an empty command"
        raise _ERRORS[code](
            f"weigh run could not start {what}; its line on stderr says why"
        )
    raise FormatError(f"weigh run left no record (exit code {code})")
