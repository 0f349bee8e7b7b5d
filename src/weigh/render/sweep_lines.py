"""Text and JSON of ``weigh sweep``: the number of tasks, a few of them, files."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from weigh.model.mask import MASK
from weigh.model.plan import Task
from weigh.render.columns import shortened
from weigh.render.printable import count, indented_json, printable
from weigh.units import counted

SCHEMA = "weigh.sweep/1"
WIDTH = 80

State: TypeAlias = Literal["written", "unchanged", "printed", "dry run"]

_REPEATED_NAMED = 3


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep.

    ``dimensions`` are parameters, or groups of them, with their numbers of values;
    ``combinations`` is the product, ``kept`` how many of them become tasks before
    repeated lines are left out; ``first`` and ``last`` are a few tasks.
    ``like_counting`` is a parameter with the value 1-5 or 1:5, and that as a range.
    """

    tasks: int
    dimensions: tuple[tuple[str, int], ...]
    combinations: int
    kept: int
    conditions: int = 0
    random: int | None = None
    seed: int | None = None
    repeated: tuple[str, ...] = ()
    first: tuple[Task, ...] = ()
    last: tuple[Task, ...] = ()
    output: str | None = None
    table: str | None = None
    state: State
    few_seeds: tuple[str, int] | None = None
    like_counting: tuple[str, str] | None = None


def render_text(sweep: Sweep, width: int = WIDTH) -> Iterator[str]:
    """Write the screen."""
    yield head_line(sweep)
    number = len(count(sweep.tasks))
    for task in sweep.first:
        yield _task_line(task, number, width)
    if sweep.tasks > len(sweep.first) + len(sweep.last):
        yield f"  {'...':>{number}}"
    for task in sweep.last:
        yield _task_line(task, number, width)
    if sweep.state == "dry run":
        yield f"nothing written (dry run): {sweep.output}, {sweep.table}"
    elif sweep.output is not None:
        yield f"{sweep.state:<9} {sweep.output}   parameters: {sweep.table}"


def head_line(sweep: Sweep) -> str:
    """Write how many tasks there are, and how the number arises."""
    several = [one for one in sweep.dimensions if one[1] > 1] or sweep.dimensions
    product = " x ".join(f"{size:,} {name}" for name, size in several)
    head = counted(sweep.tasks, "task")
    if sweep.random is not None:
        return f"{head} drawn from {product}, --seed {sweep.seed}"
    if sweep.conditions:
        less = count(sweep.combinations - sweep.kept)
        return f"{head}: {product}, less {less} by conditions"
    return f"{head}: {product}"


def notes(sweep: Sweep) -> Iterator[str]:
    """Yield warnings on repeated values, repeated lines and few seeds."""
    if sweep.repeated:
        named = ", ".join(map(printable, sweep.repeated[:_REPEATED_NAMED]))
        more = len(sweep.repeated) - _REPEATED_NAMED
        rest = f" and {more:,} more" if more > 0 else ""
        yield shortened(f"given more than once, used once: {named}{rest}", WIDTH)
    if sweep.kept > sweep.tasks:
        repeated = counted(sweep.kept - sweep.tasks, "task")
        yield f"left out {repeated} with a repeated line"
    if sweep.random is not None and sweep.kept < sweep.random:
        yield f"only {count(sweep.kept)} combinations to draw from"
    if sweep.like_counting is not None:
        name, counted_up = sweep.like_counting
        yield f"{name} has one value: to count, write {name}={counted_up}"
    elif sweep.few_seeds is not None:
        name, size = sweep.few_seeds
        values = "1 value" if size == 1 else f"{size} values"
        yield f"{name} has {values}: a difference may be chance (use 5 or more)"


def render_json(sweep: Sweep) -> str:
    """Write one JSON document, the schema first."""
    fields = {
        "schema": SCHEMA,
        **_without_surrogates(msgspec.to_builtins(sweep)),
        "dimensions": [
            {"name": name, "values": size} for name, size in sweep.dimensions
        ],
        "notes": _without_surrogates(list(notes(sweep))),
    }
    return indented_json(fields)


def _without_surrogates(tree: Any) -> Any:  # noqa: ANN401 - what JSON is made of
    """Replace bytes that are not UTF-8: JSON cannot hold them."""
    if isinstance(tree, str):
        return tree.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(tree, dict):
        return {key: _without_surrogates(one) for key, one in tree.items()}
    if isinstance(tree, list | tuple):
        return [_without_surrogates(one) for one in tree]
    return tree


def _task_line(task: Task, number: int, width: int) -> str:
    line = f"  {count(task.seq):>{number}}  {printable(MASK.line(task.line))}"
    return shortened(line, width)
