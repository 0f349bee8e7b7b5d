"""Read a stage file: the steps of one experiment in order, as TOML.

[[stage]]
name = "prepare"
run = "python3 prepare.py --lr $lr"    # a line for bash, or a list of words

[[stage]]
name = "train"
run = ["python", "train.py"]
"""

import shlex
from collections.abc import Sequence
from typing import Annotated

import msgspec

from weigh.errors import FormatError, UsageError

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


def parse_stages(stages_text: str) -> tuple[SweepStep, ...]:
    """Read the steps from the text of a stage file.

    Raises:
        FormatError: *stages_text* is not TOML, or the steps are not valid.
    """
    from msgspec import toml  # noqa: PLC0415 - only for a stage file

    try:
        # msgspec checks what the types demand while it decodes
        stages = toml.decode(stages_text.encode(), type=_StageFile).stage
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{error} ({_HOW})") from error
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise FormatError(f"two steps have the name {name!r}")
    return stages


def stages_since(
    stages: Sequence[SweepStep], stage_name: str | None
) -> tuple[SweepStep, ...]:
    """Return the steps from *stage_name* on; all steps if *stage_name* is None.

    Raises:
        UsageError: there is no such step; lists the steps.
    """
    names = [stage.name for stage in stages]
    if stage_name is not None and stage_name not in names:
        raise UsageError(f"no step {stage_name!r} (there are: {', '.join(names)})")
    return tuple(stages[0 if stage_name is None else names.index(stage_name) :])
