"""Read a stage file: the steps of one experiment in order, as TOML.

[[stage]]
name = "prepare"
run = "python3 prepare.py --lr $lr"    # a line for bash, or a list of words

[[stage]]
name = "train"
run = ["python", "train.py"]
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from weigh.errors import FormatError, UsageError

_KEYS = ("name", "run")
_LONGEST_NAME = 80  # characters; a name goes into a table's first column


class Stage(msgspec.Struct, frozen=True):
    """One step: its name, and a line for a shell."""

    name: str
    line: str


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Read the steps from the text of a stage file.

    Raises:
        FormatError: *text* is not TOML, or the steps are not valid.
    """
    import tomllib  # noqa: PLC0415 - only for a stage file

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not TOML: {error}") from error
    for key in table:
        if key != "stage":
            raise FormatError(f"no such key: {key} (steps are tables: [[stage]])")
    given = table.get("stage", [])
    if not isinstance(given, list) or not given:
        raise FormatError('no steps: write [[stage]], name = "train", run = "..."')
    stages = tuple(_stage(one, number) for number, one in enumerate(given, start=1))
    for stage, name in _repeated(stages):
        raise FormatError(f"two steps have the name {name!r}: {stage.line[:40]}")
    return stages


def since(stages: Sequence[Stage], name: str | None) -> tuple[Stage, ...]:
    """Return the steps from *name* on; all steps if *name* is None.

    Raises:
        UsageError: there is no such step; lists the steps.
    """
    names = [stage.name for stage in stages]
    if name is None:
        return tuple(stages)
    if name not in names:
        raise UsageError(f"no step {name!r} (there are: {', '.join(names)})")
    return tuple(stages[names.index(name) :])


def _stage(given: Any, number: int) -> Stage:  # noqa: ANN401 - what TOML is made of
    if not isinstance(given, Mapping):
        raise FormatError(f"step {number} is not a table: write [[stage]]")
    for key in given:
        if key not in _KEYS:
            raise FormatError(f"step {number}: no such key: {key} (name and run)")
    name, run = given.get("name"), given.get("run")
    if not isinstance(name, str) or not name.strip():
        raise FormatError(f'step {number} has no name: name = "train"')
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise FormatError(f"step {number}: its name must be short, and one line")
    return Stage(name, _line(run, name))


def _line(run: Any, name: str) -> str:  # noqa: ANN401 - what TOML is made of
    """Return what to run as a line for a shell; words are quoted if necessary."""
    if isinstance(run, list) and run and all(isinstance(word, str) for word in run):
        run = shlex.join(run)
    if not isinstance(run, str) or not run.strip():
        raise FormatError(f'step {name!r} has nothing to run: run = "python3 train.py"')
    if "\0" in run:
        raise FormatError(f"step {name!r}: a NUL byte, which no command can hold")
    return run


def _repeated(stages: Sequence[Stage]) -> Iterator[tuple[Stage, str]]:
    seen: set[str] = set()
    for stage in stages:
        if stage.name in seen:
            yield stage, stage.name
        seen.add(stage.name)
