"""Text and JSON of ``weigh sweep``: the number of tasks, a few of them, files."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from weigh.model.mask import MASK
from weigh.model.plan import Task
from weigh.render.printable import (
    WIDTH,
    indented_json,
    printable_text,
    shortened_from_start,
)
from weigh.units import count_with_noun

SCHEMA = "weigh.sweep/1"

State: TypeAlias = Literal["written", "unchanged", "printed", "dry run"]


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep.

    ``dimensions`` are parameters, or groups of them, with their numbers of values;
    ``combinations`` is the product, ``kept`` how many of them become tasks before
    repeated lines are left out; ``first`` and ``last`` are a few tasks.
    """

    tasks: int  # lines of the task file
    dimensions: tuple[tuple[str, int], ...]
    combinations: int
    kept: int
    conditions: int = 0
    random: int | None = None  # drawn combinations; None: all
    seed: int | None = None  # None: nothing was drawn
    first: tuple[Task, ...] = ()
    last: tuple[Task, ...] = ()
    output: str | None = None  # path; None: standard output
    table: str | None = None  # path of the table of parameters; None: not written
    state: State


def sweep_screen_lines(sweep: SweepResult) -> Iterator[str]:
    """Write the screen."""
    yield head_line(sweep)
    number = len(f"{sweep.tasks:,}")
    for task in sweep.first:
        yield _sweep_task_line(task, number)
    if sweep.tasks > len(sweep.first) + len(sweep.last):
        yield f"  {'...':>{number}}"
    for task in sweep.last:
        yield _sweep_task_line(task, number)
    if sweep.state == "dry run":
        yield f"nothing written (dry run): {sweep.output}, {sweep.table}"
    elif sweep.output is not None:
        yield f"{sweep.state:<9} {sweep.output}   parameters: {sweep.table}"


def head_line(sweep: SweepResult) -> str:
    """Write how many tasks there are, and how the number arises."""
    # a parameter with a single value does not multiply anything
    several = [one for one in sweep.dimensions if one[1] > 1] or sweep.dimensions
    product = " x ".join(f"{size:,} {name}" for name, size in several)
    head = count_with_noun(sweep.tasks, "task")
    if sweep.random is not None:
        return f"{head} drawn from {product} by --random {sweep.random}:{sweep.seed}"
    less = f", less {sweep.combinations - sweep.kept:,} by conditions"
    return f"{head}: {product}{less if sweep.conditions else ''}"


def sweep_warnings(sweep: SweepResult) -> Iterator[str]:
    """Yield warnings on repeated lines, and on fewer tasks than were to be drawn."""
    if sweep.kept > sweep.tasks:
        repeated = count_with_noun(sweep.kept - sweep.tasks, "task")
        yield f"left out {repeated} with a repeated line"
    if sweep.random is not None and sweep.kept < sweep.random:
        yield f"only {sweep.kept:,} combinations to draw from"


def sweep_json(sweep: SweepResult) -> str:
    """Write one JSON document, the schema first."""
    fields = {
        "schema": SCHEMA,
        **msgspec.to_builtins(sweep),
        "dimensions": [
            {"name": name, "values": size} for name, size in sweep.dimensions
        ],
        "notes": list(sweep_warnings(sweep)),
    }
    return indented_json(fields)


def _sweep_task_line(task: Task, number_width: int) -> str:
    number = f"  {task.seq:>{number_width},}  "
    line = printable_text(MASK.line(task.line))
    return number + shortened_from_start(line, WIDTH - len(number))
