"""``weigh sweep``: parameters and a command in, a task file and its table out."""

import filecmp
import os
import random
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from glob import glob
from typing import BinaryIO

import msgspec

from weigh.errors import StoreError, UsageError, cannot_write
from weigh.model.plan import Task
from weigh.render.sweep_lines import State, SweepResult
from weigh.sweep import table
from weigh.sweep.grid import (
    ParameterGrid,
    drawn_combinations,
    make_grid,
    matching_combinations,
    parse_condition,
)
from weigh.sweep.task_file import table_path
from weigh.sweep.tasks import (
    SweepTask,
    make_entries,
    make_entry,
    match_fields,
    with_distinct_lines,
)
from weigh.sweep.values import parse_axis

STDOUT = "-"

_SHOWN_FIRST, _SHOWN_LAST = 3, 2  # tasks that are shown
_SEEDS = 1 << 31  # drawn seeds are below it


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to sweep over, and where to write it."""

    axes: tuple[str, ...] = ()  # as typed: NAME=VALUES
    command: tuple[str, ...] = ()
    zips: tuple[str, ...] = ()  # as typed: A,B
    where: tuple[str, ...] = ()  # conditions as typed
    random: int | None = None  # combinations to draw; None: all
    seed: int | None = None  # None: drawn as well, and shown
    output: str = "tasks.txt"
    force: bool = False
    dry_run: bool = False


def write_sweep(options: SweepOptions, *, stdout: BinaryIO) -> SweepResult:
    """Write the task file, and next to it the table of each task's parameters.

    ``-`` writes the lines to *stdout*, and no table.

    Raises:
        UsageError: the command and the parameters do not go together, no task is
            left, or another file is in the way.
        FormatError: values or a condition do not parse.
        WeighError: a file cannot be written.
    """
    made = _expand_sweep(options)
    paths = _sweep_output_paths(options.output)
    if options.dry_run:
        return _summary(made, paths, "dry run")
    entries = make_entries(made.grid, made.indices, options.command)
    if paths is None:
        stdout.writelines(entry.task.line.encode() + b"\n" for entry in entries)
        stdout.flush()
        return _summary(made, paths, "printed")
    changed = _write_sweep_files(entries, paths, made.grid.names, force=options.force)
    return _summary(made, paths, "written" if changed else "unchanged")


class _ExpandedSweep(msgspec.Struct, frozen=True):
    """A sweep worked out: ``indices`` are those of ``kept`` with a line of its own."""

    options: SweepOptions
    grid: ParameterGrid
    kept: Sequence[int]
    indices: Sequence[int]


def _expand_sweep(options: SweepOptions) -> _ExpandedSweep:
    axes = tuple(parse_axis(text, _matching) for text in options.axes)
    if not axes:
        raise UsageError(
            "no parameters: weigh sweep lr=0.1,0.01 -- python3 run.py --lr {lr}"
        )
    zips = [[part.strip() for part in words.split(",")] for words in options.zips]
    grid = make_grid(axes, zips)
    _check_command(options.command, grid)
    conditions = tuple(parse_condition(text, grid.names) for text in options.where)
    task_count = options.random
    if task_count is None:
        kept = matching_combinations(grid, conditions)
    else:
        # the seed is stated, so that the same tasks can be drawn again
        if options.seed is None:
            drawn = random.SystemRandom().randrange(_SEEDS)
            options = msgspec.structs.replace(options, seed=drawn)
        generator = random.Random(options.seed)  # noqa: S311
        kept = drawn_combinations(grid, conditions, task_count, generator)
    if not kept:
        raise UsageError(f"no task is left: the conditions rule out all {grid.size:,}")
    indices = with_distinct_lines(grid, kept, options.command)
    return _ExpandedSweep(options, grid, kept, indices)


def _summary(
    expanded_sweep: _ExpandedSweep, paths: tuple[str, str] | None, state: State
) -> SweepResult:
    grid, tasks = expanded_sweep.grid, len(expanded_sweep.indices)
    return SweepResult(
        tasks=tasks,
        dimensions=tuple((one.name, len(one)) for one in grid.dimensions),
        combinations=grid.size,
        kept=len(expanded_sweep.kept),
        conditions=len(expanded_sweep.options.where),
        random=expanded_sweep.options.random,
        seed=expanded_sweep.options.seed,
        first=_tasks_of_places(expanded_sweep, range(min(_SHOWN_FIRST, tasks))),
        # no task is shown twice: not before the end of the first ones
        last=_tasks_of_places(
            expanded_sweep, range(max(_SHOWN_FIRST, tasks - _SHOWN_LAST), tasks)
        ),
        output=None if paths is None else paths[0],
        table=None if paths is None else paths[1],
        state=state,
    )


def _tasks_of_places(expanded_sweep: _ExpandedSweep, places: range) -> tuple[Task, ...]:
    return tuple(
        make_entry(
            expanded_sweep.grid,
            expanded_sweep.indices[place],
            expanded_sweep.options.command,
            task_number=place + 1,
        ).task
        for place in places
    )


def _matching(pattern: str) -> list[str]:
    """Return the files that a pattern matches, in the order of a shell's.

    Raises:
        UsageError: its folder cannot be read: then no file matches, for another reason.
    """
    found = sorted(glob(pattern, recursive=True))
    if not found:
        folder = os.path.dirname(re.split(r"[*?[]", pattern)[0]) or os.curdir
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise UsageError(f"cannot read {folder}: {error.strerror}") from error
    return found


def _check_command(argv: Sequence[str], grid: ParameterGrid) -> None:
    if not (argv and argv[0]):
        raise UsageError("no command: put it after --, with {name} where a value goes")
    if len(argv) == 1 and len(argv[0].split()) > 1:
        raise UsageError(
            "the command is one word with spaces: write it without quotes, "
            "or for a shell as: bash -c '...'"
        )
    # the table has columns of these names
    for name in (table.SEQ, table.COMMAND):
        if name in grid.names:
            raise UsageError(f"{name} is a column of every table: choose another name")
    match_fields(argv, grid.names)


def _sweep_output_paths(output: str) -> tuple[str, str] | None:
    """Name the task file and its table; None for standard output."""
    if output == STDOUT:
        return None
    paths = output, table_path(output)
    if paths[0] == paths[1]:
        better = output.removesuffix(".tsv") + ".txt"
        raise UsageError(f"{output} is where the table goes: write to {better}")
    for path in paths:
        # a device or FIFO would be replaced by a file
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise UsageError(f"{path} is no plain file (-o - prints the tasks)")
    return paths


def _write_sweep_files(
    entries: Iterable[SweepTask],
    paths: tuple[str, str],
    names: Sequence[str],
    *,
    force: bool,
) -> bool:
    """Replace both files or neither; return whether anything changed."""
    # written in full next to the files, and renamed at the end
    fresh = [f"{path}.{os.getpid()}.new" for path in paths]
    try:
        _write_fresh(entries, fresh, names)
        changed = [
            path
            for path, new in zip(paths, fresh, strict=True)
            # by content: the same sweep again changes nothing
            if not (os.path.exists(path) and filecmp.cmp(path, new, shallow=False))
        ]
        in_the_way = [path for path in changed if os.path.exists(path)]
        if in_the_way and not force:
            raise UsageError(
                f"{in_the_way[0]} is there and differs "
                "(--replace overwrites it; or use -o FILE)"
            )
        if changed:
            for path, new in zip(paths, fresh, strict=True):
                # a link keeps pointing to its file
                os.replace(new, os.path.realpath(path))
    except OSError as error:
        raise StoreError(
            cannot_write(paths[0], error, "choose another -o FILE")
        ) from error
    finally:
        for new in fresh:
            with suppress(OSError):
                os.remove(new)
    return bool(changed)


def _write_fresh(
    entries: Iterable[SweepTask], fresh: Sequence[str], names: Sequence[str]
) -> None:
    # bytes that are no UTF-8 are escaped in a line, and pass as they are in the table
    with (
        open(fresh[0], "w", encoding="utf-8", newline="") as lines,
        open(
            fresh[1], "w", encoding="utf-8", errors="surrogateescape", newline=""
        ) as rows,
    ):
        rows.write(table.table_header(names))
        for entry in entries:
            lines.write(f"{entry.task.line}\n")
            rows.write(table.table_row(entry.task, entry.texts))
