"""``weigh run --stages FILE``: the steps of an experiment as phases of one record."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

import msgspec

from weigh.errors import FormatError, UsageError, cannot_read
from weigh.flow.run.channel import STEP, VARIABLE
from weigh.flow.run.run_measured import weigh_run
from weigh.runner.shell import Shell
from weigh.sweep.stages import Stage, parse_stages, since

_RUNNER = os.path.join(os.path.dirname(__file__), "steps.py")


class StagesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The first step, the settings of the steps, and options of ``weigh run``.

    ``settings`` are words such as ``lr=0.1``.
    """

    start: str | None = None
    settings: tuple[str, ...] = ()
    output: str | None = None
    label: str | None = None
    quiet: bool = False


class Launch(msgspec.Struct, frozen=True):
    """A program to become: its arguments and extra environment variables."""

    argv: tuple[str, ...]
    settings: dict[str, str]


def read_stages(path: str, start: str | None = None) -> tuple[Stage, ...]:
    """Read the steps of a stage file from the one called *start* on.

    Raises:
        UsageError: it cannot be read, or has no such step.
        FormatError: it is no stage file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8: save it as UTF-8") from error
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error
    try:
        return since(parse_stages(text), start)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def plan_stages(path: str, options: StagesOptions, env: Mapping[str, str]) -> Launch:
    """Work out what to become: the steps' runner, or ``weigh run`` of this very verb.

    Under ``weigh run`` or ``weigh exec`` the steps become phases of that record.

    Raises:
        UsageError: the file or the options cannot be carried out as they stand.
        FormatError: it is no stage file.
    """
    stages = read_stages(path, options.start)
    settings = dict(map(_setting, options.settings))
    if not os.path.exists(env.get(VARIABLE) or ""):
        return Launch(_measured(path, options), {})
    if options.output or options.label:
        raise UsageError(
            "this already runs under weigh: pass -o and --label to the outer one"
        )
    shell = Shell(os.environb)
    program = os.fsdecode(shell.program)
    words = [word for stage in stages for word in (_quoted(stage.name), stage.line)]
    python = (sys.executable, "-I", "-S", _RUNNER)
    again = shlex.join(("weigh", "run", "--stages", path, *options.settings))
    return Launch((*python, again, STEP, program, *words), settings)


def become(launch: Launch, env: Mapping[str, str]) -> None:
    """Replace this process.

    Raises:
        OSError: that is not possible.
    """
    os.execve(launch.argv[0], launch.argv, {**env, **launch.settings})  # noqa: S606 - no shell


def _measured(path: str, options: StagesOptions) -> tuple[str, ...]:
    """Return the ``weigh run`` command that runs the same steps."""
    weigh = (sys.executable, "-P", "-m", "weigh")
    run = ["-q"] if options.quiet else []
    run += [f"--output={options.output}"] if options.output else []
    run += [f"--label={options.label}"] if options.label else []
    run += [f"--param={setting}" for setting in options.settings]
    start = [f"--from={options.start}"] if options.start else []
    again = ("run", "--stages", path, *options.settings, *start)
    return (*weigh_run(*run), *weigh, *again)


def _setting(word: str) -> tuple[str, str]:
    """Split ``lr=0.1``: a name that a shell takes for a variable's, and its value.

    Raises:
        UsageError: it is no such thing.
    """
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise UsageError(f"not a setting: {word!r} (write it like lr=0.1)")
    return name, value


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def planned(stages: Sequence[Stage]) -> list[str]:
    """Write what ``--dry-run`` would run, one line per step."""
    width = max(len(stage.name) for stage in stages)
    return [f"{stage.name:<{width}}  {stage.line}" for stage in stages]
