"""Recognize runs of one kind: the same command except its arguments, and its sizes.

A command's template keeps the program, its options and plain words. A parameter's
value, a number or the path of data is replaced by a placeholder. Scripts are kept: they
are the program.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from weigh.units import is_number

Parameters: TypeAlias = Mapping[str, int | float | str]

NUMBER, FILE = "{number}", "{file}"
MOST_SIZES = 4  # parameters to learn from: each takes more runs

_PROGRAMS = frozenset(("py", "r", "sh", "jl", "pl", "m", "rb", "lua", "js", "jar"))
_LONGEST_ENDING = 8  # letters of a file name's ending; a longer one is part of a word


def template(command: Sequence[str], parameters: Parameters) -> tuple[str, ...]:
    """Return *command* with placeholders for what varies from run to run."""
    values = {str(value): f"{{{name}}}" for name, value in parameters.items()}
    program = tuple(_word_before_ending(word) for word in command[:1])
    return program + tuple(_general(word, values) for word in command[1:])


def choose_sizes(runs: Iterable[Parameters]) -> list[str]:
    """Choose the parameters to learn from: numbers that vary, the most frequent first.

    Half of the *runs* must have them.
    """
    seen: dict[str, list[float | str]] = {}
    count = 0
    for parameters in runs:
        count += 1
        for name, value in parameters.items():
            if is_size(value):
                seen.setdefault(name, []).append(value)
    varying = [
        name
        for name, values in seen.items()
        if len(values) * 2 >= count and len(set(values)) > 1
    ]
    return sorted(varying, key=lambda name: (-len(seen[name]), name))[:MOST_SIZES]


def is_size(value: float | str) -> bool:
    """Return whether a parameter's value is a number to fit a line to."""
    return not isinstance(value, (str, bool)) and math.isfinite(value)


def _general(word: str, values: Mapping[str, str]) -> str:
    # a parameter is often given as name=value: the name stays, the value varies
    name, equals, value = word.partition("=")
    if equals and name and not _is_path(name):
        return f"{name}={_general(value, values)}"
    # the parameter's own name says more than {number}
    if word in values:
        return values[word]
    if is_number(word):
        return NUMBER
    if _is_path(word):
        # a script is the program, wherever it lies; a data file varies
        return _word_before_ending(word) if _ending_of_word(word) in _PROGRAMS else FILE
    return word


def _is_path(word: str) -> bool:
    if word.startswith("-"):  # an option, even with a dot or a slash in it
        return False
    return "/" in word or bool(_ending_of_word(word))


def _ending_of_word(word: str) -> str:
    stem, dot, ending = word.rpartition(".")
    plain = ending.isalnum() and len(ending) <= _LONGEST_ENDING
    return ending.lower() if dot and stem and plain else ""


def _word_before_ending(word: str) -> str:
    return word.rpartition("/")[2] or word
