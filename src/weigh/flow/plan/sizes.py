"""The sizes of a task: the numbers in its command, by the names of their options."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from weigh.sweep.seeds import is_seed

Sizes = dict[str, float]

_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_PLACE = "argument "
_SHELL_LINE = 3  # sh -c LINE
_QUOTING = frozenset("'\"\\$`")
# numbers that say where or which, and never how much
_PLACES = ("port", "master_port", "device", "gpu", "cuda", "rank", "local_rank")
_NO_SIZES = frozenset((*_PLACES, "node_rank", "fold", "run", "trial", "id"))


def words_of(line: str) -> list[str]:
    """Split a task's line as a shell would, as far as that can be told."""
    if _QUOTING.isdisjoint(line):
        return line.split()
    try:
        return shlex.split(line)
    except ValueError:  # a shell may read what shlex cannot
        return line.split()


def words_run(command: Sequence[str]) -> list[str]:
    """Give the words of a record's command; those of the line if a shell ran it."""
    words = list(command)
    if len(words) == _SHELL_LINE and words[0] in _SHELLS and words[1] == "-c":
        return words_of(words[2])
    return words


def is_assignment(word: str) -> bool:
    """Tell whether *word* is ``NAME=value``."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def is_number(word: str) -> bool:
    """Tell whether *word* reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def sizes_in(
    words: Sequence[str], parameters: Mapping[str, int | float | str]
) -> Sizes:
    """Give the numbers above 0 of a command, and those of its *parameters*.

    A number is known by its option (``--batch-size 50``), its parameter or its place;
    of what always agrees the first is taken, and every line has the option. Seeds are
    none, nor ports and the like.
    """
    named = dict(_named(words))
    options = {_plain(name) for name in named}
    told = {
        name: float(value)
        for name, value in parameters.items()
        if not isinstance(value, str) and _plain(name) not in options
    }
    places = {name: named.pop(name) for name in [*named] if name.startswith(_PLACE)}
    found = {**named, **told, **places}
    return {
        name: value
        for name, value in found.items()
        if 0 < value < math.inf and not _is_label(name)
    }


def _named(words: Sequence[str]) -> Iterator[tuple[str, float]]:
    option = None
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and is_number(value) and name:
            yield name, float(value)
        elif is_number(word):
            yield option or f"{_PLACE}{place}", float(word)
        option = word if word.startswith("-") and not is_number(word) else None


@cache
def _is_label(name: str) -> bool:
    plain = _plain(name)
    return is_seed(plain) or plain in _NO_SIZES or not {"*", ","}.isdisjoint(name)


def _plain(name: str) -> str:
    """Write ``--batch-size`` and ``batch_size`` alike."""
    return name.lstrip("-").replace("-", "_").lower()
