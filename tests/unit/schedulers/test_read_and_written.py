"""What schedulers read and write, one row each: read_and_written.txt."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from weigh.errors import FormatError
from weigh.schedulers import KINDS

ROWS = Path(__file__).with_name("read_and_written.txt").read_text()
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
UNITS |= {"m": 60, "h": 3600, "d": 86400}


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
        elif not line.startswith("#"):
            question = line.partition(":")[0]


def written(found: object) -> str:
    """Return an answer as a row states it: of a struct, the fields that are known."""
    if isinstance(found, tuple):
        return " ".join(found)
    if isinstance(found, dict):  # of each element of each job
        jobs = ((job, *one) for job, ended in found.items() for one in ended.items())
        return "; ".join(f"{job}_{number} {written(one)}" for job, number, one in jobs)
    if isinstance(found, msgspec.Struct):
        known = msgspec.structs.asdict(found).items()
        return " ".join(f"{k}={v}" for k, v in known if v not in (None, ()))
    return str(found)


@pytest.mark.parametrize("row", [*rows()], ids=" ".join)
def test_a_scheduler_reads_and_writes_as_its_commands_do(
    row: tuple[str, str, str],
) -> None:
    question, argument, answer = row
    scheduler, part, name = question.split()
    ask = getattr(getattr(KINDS[scheduler], part), name)
    words: object = argument.replace("\\n", "\n")
    if name.startswith("format"):
        words = figure(argument)
    elif name.endswith("_from_environment"):
        words = dict(word.split("=") for word in argument.split())

    if answer == "refused":
        with pytest.raises(FormatError):
            ask(words)
        return
    found = ask(words)
    if isinstance(found, int | float) and not isinstance(found, bool):
        assert found == figure(answer)
    else:
        assert written(found) == answer
