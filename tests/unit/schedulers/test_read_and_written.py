"""What schedulers read and write, one row each: read_and_written.txt."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from captured_text import captured
from read_structs import written

from weigh.errors import FormatError
from weigh.schedulers import KINDS

ROWS = Path(__file__).with_name("read_and_written.txt").read_text()
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
UNITS |= {"m": 60, "h": 3600, "d": 86400}
TEXTS = dict(row[2:].split(": ", 1) for row in ROWS.splitlines() if row[:2] == "= ")


def figure(text: str) -> int:
    """Return the sum of terms such as ``36 h + 15``."""
    terms = (term.strip().partition(" ") for term in text.split("+"))
    return sum(int(number) * UNITS[unit] for number, _, unit in terms)


def rows() -> Iterator[tuple[str, str, str]]:
    question = ""
    for line in ROWS.splitlines():
        if line.startswith(" "):
            argument, _, answer = line.strip().partition(" -> ")
            yield question, argument, answer
        elif not line.startswith(("#", "= ")):
            question = line.partition(":")[0]


def text_of(argument: str) -> str:
    """Return the text of an argument, which may name one and what is exchanged."""
    if argument.startswith("@"):
        name, *exchanged = argument[1:].split(" | ")
        text = TEXTS[name] if name in TEXTS else captured(name)
        for old, new in (pair.split(" => ") for pair in exchanged):
            assert old in text
            text = text.replace(old, new)
        return text.replace("\\n", "\n")
    return argument.replace("\\n", "\n")


def reader(question: str) -> Any:
    """Return the function of a part of a scheduler, or else of a module."""
    *place, name = question.split()
    if len(place) == 1:
        return getattr(import_module(f"weigh.schedulers.{place[0]}"), name)
    return getattr(getattr(KINDS[place[0]], place[1]), name)


@pytest.mark.parametrize("row", [*rows()], ids=" ".join)
def test_a_scheduler_reads_and_writes_as_its_commands_do(
    row: tuple[str, str, str],
) -> None:
    question, argument, answer = row
    words: object = text_of(argument)
    if " format" in question:
        words = figure(argument)
    elif question.endswith("_from_environment"):
        words = dict(word.split("=") for word in argument.split())
    elif question.endswith("read_past"):
        words = text_of(argument).splitlines(keepends=True)

    if answer == "refused":
        with pytest.raises(FormatError):
            reader(question)(words)
        return
    found = reader(question)(words)
    if isinstance(found, int | float) and not isinstance(found, bool):
        assert found == figure(answer)
    else:
        assert written(found) == answer.removeprefix("nothing")
