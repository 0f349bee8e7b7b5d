"""Which runs count as the same kind of command."""

import shlex
from pathlib import Path

import pytest
from transcript import named_rows

from weigh.planning.record_match import command_parts, kind_of_command

ROWS = named_rows(Path(__file__).with_name("kinds_of_commands.texts"))


@pytest.mark.parametrize(
    ("command", "general"),
    ROWS["general"],
)
def test_a_line_of_a_shell_counts_as_its_words(command: str, general: str) -> None:
    assert " ".join(kind_of_command(shlex.split(command), {})) == general


@pytest.mark.parametrize(
    ("command", "stem"),
    ROWS["programs"],
)
def test_programs_are_known_by_their_name_and_their_script(
    command: str, stem: str
) -> None:
    assert command_parts(command.split())[0] == tuple(stem.split())
