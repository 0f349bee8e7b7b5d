"""Read a sweep from a TOML file, for sweeps that are too long to type.

command = ["python", "run.py", "--lr", "{lr}", "--seed", "{seed}"]
where = "lr < 1e-2 or seed == 1"      # or a list

[grid]
lr = [1e-2, 1e-3]                     # values as they stand
seed = "1..5"                         # or the grammar of the command line

[zip]                                 # value by value; [[zip]] for several
model = ["small", "large"]
batch = [64, 16]

[random]
tasks = 20
seed = 1
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard

import msgspec

from weigh.errors import FormatError
from weigh.sweep.values import Axis, FindFiles, make_axis, parse_values, typed

FEW = 3  # so few seeds do not show the spread between them

_SEED = re.compile(r"(.*[_.-])?(seeds?|random_state)([_.-].*)?", re.IGNORECASE)


def few_seeds(axes: Iterable[Axis]) -> Axis | None:
    """Return the parameter that is a seed by its name and has 3 values or fewer."""
    seeds = [axis for axis in axes if is_seed(axis.name)]
    few = [axis for axis in seeds if len(axis.texts) <= FEW]
    # if one of several seeds has enough values, runs do differ by chance
    return few[0] if few and len(few) == len(seeds) else None


def is_seed(name: str) -> bool:
    """Return whether a parameter is a seed, by its name."""
    return _SEED.fullmatch(name) is not None


_LIKE_COUNTING = re.compile(r"([0-9]{1,9})[-:]([0-9]{1,9})", re.ASCII)


def like_counting(axes: Iterable[Axis]) -> tuple[str, str] | None:
    """Return the name of a parameter whose only value is ``1-5`` or ``1:5``, as 1..5.

    That is how a range is written elsewhere; it may still be meant as it is.
    """
    for axis in axes:
        ends = _LIKE_COUNTING.fullmatch(axis.texts[0]) if len(axis.texts) == 1 else None
        if ends is not None:
            return axis.name, f"{ends[1]}..{ends[2]}"
    return None


Table: TypeAlias = Mapping[str, Any]

_KEYS = ("command", "grid", "zip", "where", "random")


class Spec(msgspec.Struct, frozen=True):
    """The parts of a sweep, from a file or the command line."""

    command: tuple[str, ...] = ()
    axes: tuple[Axis, ...] = ()
    zips: tuple[tuple[str, ...], ...] = ()
    where: tuple[str, ...] = ()
    random: int | None = None
    seed: int | None = None


class _Written(str):
    """A number with a point or exponent, as written in the file."""

    __slots__ = ()


def parse_spec(text: str, find_files: FindFiles | None = None) -> Spec:
    """Read a sweep from the text of a TOML file; *find_files* as in `parse_axis`.

    Raises:
        FormatError: *text* is not TOML, or not a valid sweep.
    """
    import tomllib  # noqa: PLC0415 - only for a sweep from a file

    try:
        table = tomllib.loads(text, parse_float=_Written)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not TOML: {error}") from error
    for key in table:
        if key not in _KEYS:
            raise FormatError(f"no such key: {key} (there are: {', '.join(_KEYS)})")
    groups = tuple(
        tuple(_axes(one, "zip", find_files)) for one in _zips(table.get("zip", []))
    )
    tasks, seed = _random(table.get("random"))
    return Spec(
        command=_command(table.get("command", [])),
        axes=(
            *_axes(_table(table.get("grid", {}), "grid"), "grid", find_files),
            *(axis for group in groups for axis in group),
        ),
        zips=tuple(tuple(axis.name for axis in group) for group in groups),
        where=_conditions(table, "where"),
        random=tasks,
        seed=seed,
    )


def _axes(table: Table, path: str, find_files: FindFiles | None) -> Iterator[Axis]:
    """Read a table of axes; a nested table prefixes its name and a dot to theirs."""
    for key, given in table.items():
        if isinstance(given, Mapping):
            yield from _axes(
                {f"{key}.{name}": one for name, one in given.items()}, path, find_files
            )
        elif isinstance(given, str) and not isinstance(given, _Written):
            yield parse_values(key, given, find_files)
        else:
            items = given if isinstance(given, list) else [given]
            texts = [_text(item, f"{path}.{key}") for item in items]
            values = [
                text if type(item) is str else typed(text)
                for item, text in zip(items, texts, strict=True)
            ]
            yield make_axis(key, values, texts)


def _text(item: object, path: str) -> str:
    """Return a value as it is written in the file, for a command."""
    if isinstance(item, _Written):
        return item.replace("_", "")
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str | int):
        return str(item)
    raise FormatError(f"{path}: numbers and text only (dates go in quotes)")


def _zips(given: object) -> list[Table]:
    groups = given if isinstance(given, list) else [given]
    return [_table(group, "zip") for group in groups]


def _table(given: object, path: str) -> Table:
    if not isinstance(given, Mapping):
        raise FormatError(f"{path}: a table such as [{path}] with seed = [1, 2]")
    return given


def _command(given: object) -> tuple[str, ...]:
    """Read the words of the command: a list, or text split as by a shell."""
    try:
        words = shlex.split(given) if isinstance(given, str) else given
    except ValueError as error:
        raise FormatError(f"command: {error}".lower()) from error
    if not isinstance(words, list) or not all(type(word) is str for word in words):
        raise FormatError('command: a list of words, such as ["python", "run.py"]')
    return tuple(words)


def _conditions(table: Table, key: str) -> tuple[str, ...]:
    given = table.get(key, [])
    texts = given if isinstance(given, list) else [given]
    if not all(type(text) is str for text in texts):
        raise FormatError(f'{key}: text such as "lr < 1e-2", or a list of such')
    return tuple(texts)


def _random(given: object) -> tuple[int | None, int | None]:
    """Read ``random = 20``, or a table of tasks and seed."""
    table = given if isinstance(given, Mapping) else {"tasks": given}
    tasks, seed = table.get("tasks"), table.get("seed")
    is_plain = table.keys() <= {"tasks", "seed"} and (tasks is not None or not given)
    if is_plain and _is_count(tasks) and _is_count(seed):
        return tasks, seed
    raise FormatError("random: a number of tasks, or tasks = 20 and seed = 1")


def _is_count(value: object) -> TypeGuard[int | None]:
    return value is None or type(value) is int
