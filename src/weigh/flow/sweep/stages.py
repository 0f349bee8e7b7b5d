"""``weigh run FILE``: the steps of an experiment as phases of one record.

[[stage]]
name = "prepare"
run = "python3 prepare.py --lr $lr"    # a line for bash, or a list of words

[[stage]]
name = "train"
run = ["python", "train.py"]
"""

import os
import shlex
import sys
from collections.abc import Mapping
from typing import Annotated

import msgspec

from weigh.errors import FormatError, UsageError, cannot_read
from weigh.flow.run.channel import STEP, VARIABLE
from weigh.flow.run.run_measured import weigh_run
from weigh.runner.shell import LineShell

# started by its path, so that it loads nothing of weigh
_RUNNER = os.path.join(os.path.dirname(__file__), "steps.py")
_HOW = 'a step is [[stage]], name = "train", run = "python3 train.py"'
_Word = Annotated[str, msgspec.Meta(pattern=r"^[^\0]*$")]  # no command can hold a NUL
_Line = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^\0]*$")]
_Words = Annotated[list[_Word], msgspec.Meta(min_length=1)]
# a name goes into the first column of a table
_Name = Annotated[str, msgspec.Meta(pattern=r"^\S(.{0,78}\S)?$")]


class SweepStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step: its name, and a line for a shell or the words of a command."""

    name: _Name
    run: _Line | _Words

    @property
    def line(self) -> str:
        """Return what to run as a line for a shell; words are quoted if necessary."""
        return self.run if isinstance(self.run, str) else shlex.join(self.run)


class _StageFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stage: Annotated[tuple[SweepStep, ...], msgspec.Meta(min_length=1)]


class StagesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the steps, and options of ``weigh run``.

    ``settings`` are words such as ``lr=0.1``.
    """

    settings: tuple[str, ...] = ()
    output: str | None = None  # path; None: no file
    label: str | None = None
    quiet: bool = False


def read_stages(file_and_step: str) -> tuple[SweepStep, ...]:
    """Read the steps of a stage file; of ``FILE:STEP`` from the one of that name on.

    Raises:
        UsageError: it cannot be read, or has no such step.
        FormatError: it is no stage file.
    """
    from msgspec import toml  # noqa: PLC0415 - only for a stage file

    path, start = _stage_file_and_step(file_and_step)
    try:
        with open(path, "rb") as file:
            # msgspec checks what the types demand while it decodes
            stages = toml.decode(file.read(), type=_StageFile).stage
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8: save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {error} ({_HOW})") from error
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise FormatError(f"{path}: two steps have the name {name!r}")
    if start is not None and start not in names:
        raise UsageError(f"no step {start!r} (there are: {', '.join(names)})")
    return stages[0 if start is None else names.index(start) :]


def _stage_file_and_step(text: str) -> tuple[str, str | None]:
    # a folder, a file and a step may have a colon in their names
    for place in [at for at, letter in enumerate(text) if letter == ":"]:
        if not os.path.exists(text) and os.path.isfile(text[:place]):
            return text[:place], text[place + 1 :]
    return text, None


def become_stages(
    file_and_step: str, options: StagesOptions, env: Mapping[str, str]
) -> None:
    """Become the program that runs the steps, or ``weigh run`` of this very verb.

    Under ``weigh run`` or ``weigh exec`` the steps become phases of that record.

    Raises:
        UsageError: the file or the options cannot be carried out as they stand.
        FormatError: it is no stage file.
        OSError: this process cannot become another one.
    """
    stages = read_stages(file_and_step)
    settings = dict(map(_setting, options.settings))
    # no channel: nothing measures yet, so become weigh run of this very command
    if not os.path.exists(env.get(VARIABLE) or ""):
        run = [f"--param={setting}" for setting in options.settings]
        run += ["-q"] if options.quiet else []
        run += [f"--output={options.output}"] if options.output else []
        run += [f"--label={options.label}"] if options.label else []
        again = ("run", file_and_step, *options.settings)
        argv = (*weigh_run(*run), sys.executable, "-P", "-m", "weigh", *again)
        os.execve(argv[0], argv, env)  # noqa: S606 - no shell
    if options.output or options.label:
        raise UsageError(
            "this already runs under weigh: pass -o and --label to the outer one"
        )
    # the shell that runs the lines of a task file
    shell = os.fsdecode(LineShell(os.environb).program)
    path, _ = _stage_file_and_step(file_and_step)
    words = [STEP, shell]
    for stage in stages:
        here = f"{path}:{stage.name}"
        again = ("weigh", "run", here, *options.settings)
        name = msgspec.json.encode(stage.name).decode()
        words += [name, stage.line, shlex.join(again)]
    # -I and -S: neither the user's modules nor site's are loaded
    argv = (sys.executable, "-I", "-S", _RUNNER, *words)
    os.execve(argv[0], argv, {**env, **settings})  # noqa: S606 - no shell


def _setting(word: str) -> tuple[str, str]:
    """Split ``lr=0.1``: a name that a shell takes for a variable's, and its value.

    Raises:
        UsageError: it is no such thing.
    """
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise UsageError(f"not a setting: {word!r} (write it like lr=0.1)")
    return name, value
