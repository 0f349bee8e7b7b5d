"""Combinations to tasks: the command filled in and quoted, one line each."""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from weigh.model.plan import Task
from weigh.sweep.fields import fields, fill
from weigh.sweep.grid import Grid
from weigh.sweep.quoting import shell_line

_HASH_SIZE = 16  # two different lines of one hash: once in 10**26 sweeps of a million


class Entry(msgspec.Struct, frozen=True):
    """A task, and its parameters as they were written."""

    task: Task
    texts: dict[str, str]


def make_entry(grid: Grid, index: int, argv: Sequence[str], *, seq: int) -> Entry:
    """Make the task of one combination."""
    combination = grid.combination(index)
    line = shell_line(fill(argv, combination.texts))
    return Entry(Task(seq, line, combination.values), combination.texts)


def make_entries(
    grid: Grid, indices: Sequence[int], argv: Sequence[str]
) -> Iterator[Entry]:
    """Make the tasks one by one, counted from 1."""
    for seq, index in enumerate(indices, start=1):
        yield make_entry(grid, index, argv, seq=seq)


def with_distinct_lines(
    grid: Grid, indices: Sequence[int], argv: Sequence[str]
) -> Sequence[int]:
    """Leave out combinations whose line another has: of ``{a}{b}``, 1,11 and 11,1."""
    if _tells_all_apart(grid, argv):
        return indices
    seen: set[bytes] = set()
    kept: list[int] = []
    for index in indices:
        line = make_entry(grid, index, argv, seq=0).task.line.encode()
        digest = blake2b(line, digest_size=_HASH_SIZE).digest()
        if digest not in seen:
            seen.add(digest)
            kept.append(index)
    return kept if grid.size >= 1 << 64 else array("Q", kept)


def _tells_all_apart(grid: Grid, argv: Sequence[str]) -> bool:
    """Return whether every parameter has a word of the command without another's field.

    Then no two combinations can give the same line.
    """
    alone = {
        name for word in argv for name in fields((word,)) if fields((word,)) == (name,)
    }
    return alone >= set(grid.names)
