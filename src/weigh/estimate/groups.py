"""Which records can be compared: one command but for its sizes, one host, one GPU."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.record import Record

_NUMBER = re.compile(r"(?<![\d.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\d)")
_WORD_END, _A_NUMBER = "\0", "\1"

Marks = tuple[str | None, ...]


class Group(msgspec.Struct, frozen=True):
    """What records have in common; ``command`` with ``{name}`` where a size stands."""

    command: tuple[str, ...]
    host: str | None
    gpus: tuple[str, ...]


class _Command(msgspec.Struct, frozen=True):
    """A command taken apart: the text around its numbers, and the numbers.

    ``marks`` are the numbers again, None where one is a parameter's value.
    """

    text: str
    numbers: tuple[str, ...]
    marks: Marks


def groups_of(records: Sequence[Record]) -> list[Group]:
    """Return the group of each record.

    A number in the command that is a parameter's value may be so by chance, as 1 often
    is. Where other records have that very number in its place, it is none.
    """
    commands = [_taken_apart(record) for record in records]
    fixed: dict[str, set[tuple[int, str]]] = {}
    for command in commands:
        fixed.setdefault(command.text, set()).update(_unmarked(command))
    shown: dict[tuple[str, Marks], tuple[str, ...]] = {}
    found = []
    for record, command in zip(records, commands, strict=True):
        key = command.text, _marks(command, fixed[command.text])
        if key not in shown:
            shown[key] = _shown(record, command, key[1])
        host = record.host.name if record.host else None
        found.append(Group(shown[key], host, _gpus(record)))
    return found


def _gpus(record: Record) -> tuple[str, ...]:
    usage = record.usage
    return tuple(sorted(gpu.name for gpu in usage.gpus)) if usage else ()


def _taken_apart(record: Record) -> _Command:
    whole = _WORD_END.join(record.command)
    numbers = tuple(_NUMBER.findall(whole))
    values = {abs(v) for v in record.parameters.values() if not isinstance(v, str)}
    marks = tuple(None if float(n) in values else n for n in numbers)
    return _Command(_NUMBER.sub(_A_NUMBER, whole), numbers, marks)


def _unmarked(command: _Command) -> Iterator[tuple[int, str]]:
    """Give the places and numbers that are no parameter's value."""
    for place, mark in enumerate(command.marks):
        if mark is not None:
            yield place, mark


def _marks(command: _Command, fixed: set[tuple[int, str]]) -> Marks:
    """Take the mark off a number that another record has in its place by chance."""
    numbers = enumerate(command.numbers)
    return tuple(
        number if (place, number) in fixed else mark
        for (place, number), mark in zip(numbers, command.marks, strict=True)
    )


def _shown(record: Record, command: _Command, marks: Marks) -> tuple[str, ...]:
    pieces = command.text.split(_A_NUMBER)
    names = _names(record, command, marks)
    whole = pieces[0] + "".join(
        f"{name}{piece}" for name, piece in zip(names, pieces[1:], strict=True)
    )
    return tuple(whole.split(_WORD_END)) if record.command else ()


def _names(record: Record, command: _Command, marks: Marks) -> Iterator[str]:
    named = {
        abs(value): name
        for name, value in record.parameters.items()
        if not isinstance(value, str)
    }
    for mark, number in zip(marks, command.numbers, strict=True):
        yield f"{{{named[float(number)]}}}" if mark is None else mark
