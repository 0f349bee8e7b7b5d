"""Text and JSON of a plan: what a task needs, tasks per element, the request."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.plan import (
    RESOURCES,
    Item,
    Kind,
    Plan,
    PlanRequest,
    Queue,
    Together,
)
from weigh.planning.bin_packing import most_work
from weigh.render.columns import Column, table
from weigh.render.printable import indented_json, printable
from weigh.render.request_lines import WIDTH, folded
from weigh.render.submit_lines import with_ranks
from weigh.units import counted, format_duration, format_limit, format_size

COMPARISON_SCHEMA = "weigh.plan-comparison/1"
_MOST_KINDS = 12
_FIRST_KINDS, _LAST_KINDS = 4, 2  # shown of more
_NO_RUNS = "-"
_MOST_PROBED = 9
_WORDS = {"gpu_memory": "GPU memory", "memory": "memory", "cpus": "CPUs"}


def render_text(plans: Sequence[Plan]) -> Iterator[str]:
    """Write a plan, or several side by side."""
    first = plans[0]
    yield from _tasks(first)
    if len(plans) > 1:
        yield from _comparison(plans)
    else:
        yield from _packing(first)


def render_json(plans: Sequence[Plan]) -> str:
    """Write a plan as in ``plan.json``, or several plans in one document."""
    several = {"schema": COMPARISON_SCHEMA, "plans": list(plans)}
    return indented_json(plans[0] if len(plans) == 1 else several)


def _tasks(plan: Plan) -> Iterator[str]:
    rows = _rows(plan.kinds)
    if len(rows) == 1:
        needs = ", ".join(_needs(rows[0].kind, plan.headroom))
        runs = f" ({rows[0].runs})" if rows[0].runs != _NO_RUNS else ""
        each = ", each" if plan.tasks > 1 else ":"
        text = f"{counted(plan.tasks, 'task')}{each} {needs}{runs}"
        yield from (f"  {line}" for line in folded(text, WIDTH - 2))
        return
    yield (
        f"  {counted(plan.tasks, 'task')} of {len(rows):,} kinds, "
        f"each figure with {_percent(plan.headroom)} headroom{_or_bound(plan)}"
    )
    if len(rows) <= _MOST_KINDS:
        yield from _kinds(rows)
        return
    held = [kind.item.memory for kind in plan.kinds]
    yield from _kinds((*rows[:_FIRST_KINDS], *rows[-_LAST_KINDS:]))
    sizes = dict.fromkeys((format_size(min(held)), format_size(max(held))))
    yield (
        f"    and {len(rows) - _FIRST_KINDS - _LAST_KINDS:,} kinds between them; "
        f"of all, RAM {' to '.join(sizes)}"
    )


class _Row(msgspec.Struct, frozen=True):
    """A row of the table: tasks whose figures look the same, and their runs."""

    kind: Kind
    tasks: int
    runs: str


def _rows(kinds: Sequence[Kind]) -> list[_Row]:
    """Return one row for kinds that differ in nothing that is shown but their runs."""
    alike: dict[tuple[object, ...], list[Kind]] = {}
    for kind in kinds:
        item, used = kind.item, kind.used
        sizes = (item.gpu_memory, used.gpu_memory, item.memory)
        shown = (*map(_size, sizes), item.gpus, item.cpus, _time(item))
        alike.setdefault((*shown, bool(kind.predictions)), []).append(kind)
    return [
        _Row(same[0], sum(kind.tasks for kind in same), _runs(same))
        for same in alike.values()
    ]


def _or_bound(plan: Plan) -> str:
    is_fitted = any(kind.predictions for kind in plan.kinds)
    return ", or a fit's bound" if is_fitted else ""


def _needs(kind: Kind, headroom: float) -> Iterator[str]:
    item, used = kind.item, kind.used
    if item.gpus:
        yield counted(item.gpus, "GPU")
    if item.gpu_memory:
        above = f" ({format_size(used.gpu_memory)} + {_percent(headroom)})"
        if any(one.quantity == "gpu_memory" for one in kind.predictions):
            above = f" ({format_size(used.gpu_memory)} predicted)"
        of = "each GPU" if item.gpus > 1 else "GPU"
        yield f"{format_size(item.gpu_memory)} of {of}{above if headroom else ''}"
    yield counted(item.cpus, "CPU")
    if item.memory:
        yield f"{format_size(item.memory)} RAM"
    if item.time is not None:
        yield format_limit(item.time)


def _kinds(rows: Sequence[_Row]) -> Iterator[str]:
    items = [row.kind.item for row in rows]
    columns = [
        Column("tasks", tuple(f"{row.tasks:,}" for row in rows)),
        Column(
            "example",
            tuple(map(printable, _abbreviated([row.kind.example for row in rows]))),
            right=False,
            flexible=True,
        ),
        Column("GPU", tuple(_size(item.gpu_memory) for item in items)),
        Column("RAM", tuple(_size(item.memory) for item in items)),
        Column("CPUs", tuple(str(item.cpus) for item in items)),
        Column("time", tuple(_time(item) for item in items)),
        Column("from", tuple(row.runs for row in rows), drop=1),
    ]
    if not any(item.gpu_memory for item in items):
        del columns[2]
    yield from table(columns, WIDTH)


def _abbreviated(examples: Sequence[str]) -> list[str]:
    """Leave out the first and last words that all examples share."""
    split = [example.split(" ") for example in examples]
    same = _same_words(split)
    if same and split[0][same - 1].startswith("-"):
        same -= 1
    rest = [words[same:] for words in split]
    end = _same_words([words[::-1] for words in rest])
    before, after = ["..."] if same else [], ["..."] if end else []
    return [" ".join((*before, *w[: len(w) - end], *after)) for w in rest]


def _same_words(split: Sequence[Sequence[str]]) -> int:
    """Count the first words that all share; 0 for a single example."""
    same = 0
    for words in zip(*split, strict=False):
        if len(split) == 1 or len(set(words)) > 1:
            break
        same += 1
    return same


def _runs(kinds: Sequence[Kind]) -> str:
    numbers = [kind.runs for kind in kinds]
    least, most = min(numbers), max(numbers)
    if not most:
        return _NO_RUNS
    count = str(most) if least == most else f"{least} to {most}"
    if kinds[0].predictions:
        return f"fit of {count}"
    return f"{count} run{'' if count == '1' else 's'}"


def _size(size: int) -> str:
    return format_size(size) if size else "-"


def _time(item: Item) -> str:
    return "-" if item.time is None else format_limit(item.time)


def _packing(plan: Plan) -> Iterator[str]:
    together = _together(plan)
    if plan.gpu:
        limit = _limit(plan)
        by = f", limited by {limit}" if limit else ""
        size = format_size(plan.gpu.memory)
        noun = "task" if together == "1" else "tasks"
        fit = f"{together} {noun} per GPU{by}"
        if plan.request.gpus > 1 or any(kind.item.gpus for kind in plan.kinds):
            fit = f"each task has {counted(plan.request.gpus, 'GPU')} of its own"
        yield f"  {plan.gpu.name} {size}: {fit}"
    yield from _probe(plan.probe)
    if plan.left_out:
        numbers = [str(short.task) for short in plan.left_out[:5]]
        dots = ", ..." if len(plan.left_out) > len(numbers) else ""
        yield (
            f"  too big, left out: {counted(len(plan.left_out), 'task')} "
            f"({', '.join(numbers)}{dots})"
        )
    if plan.queue is not None:
        yield from _queue(plan, plan.queue)
        return
    if together.isdecimal() and len(plan.elements[-1].tasks) < int(together):
        together = f"up to {together}"
    yield from (
        f"  {line}"
        for line in folded(
            f"{counted(len(plan.elements), 'array element')} x {together} "
            f"{'task' if together == '1' else 'tasks'}, {_ask(plan.request)} each",
            WIDTH - 2,
        )
    )


def _queue(plan: Plan, queue: Queue) -> Iterator[str]:
    """Write the elements that pull from one queue, and when they should be done."""
    text = (
        f"{counted(len(plan.elements), 'array element')} x "
        f"{counted(queue.slots, 'task')} at a time, {_ask(plan.request)} each"
    )
    yield from (f"  {line}" for line in folded(text, WIDTH - 2))
    if queue.expected is not None:
        yield (
            "  each takes the longest task left: about "
            f"{format_duration(queue.expected)} if all elements start at once"
        )


def _probe(found: Sequence[Together]) -> Iterator[str]:
    """Write the measured throughput of tasks side by side."""
    if not found:
        return
    best = most_work(found).count
    does = "does" if best == 1 else "do"
    yield f"  measured: {best} together {does} the most work per hour"
    rows = {
        "together": [str(one.count) for one in found],
        "speed-up": [f"{one.speed_up:.2f}" for one in found],
        "each takes": [f"{one.slow_down:.2f}x" for one in found],
    }
    for name, cells in rows.items():
        yield f"    {name:<10}" + "".join(f"{cell:>7}" for cell in cells[:_MOST_PROBED])


def _together(plan: Plan) -> str:
    """Write how many tasks an element has: ``4``, or ``2 to 5``."""
    if plan.queue is not None:
        return str(plan.queue.slots)
    sizes = [len(element.tasks) for element in plan.elements]
    least, most = min(sizes[:-1] or sizes), max(sizes)
    return str(most) if least == most else f"{least} to {most}"


def _limit(plan: Plan) -> str | None:
    """Return the resource that limits tasks per GPU, if all tasks need the same."""
    if len(plan.kinds) > 1:
        return None
    item, counts = plan.kinds[0].item, {}
    for resource in RESOURCES:
        has, need = getattr(plan.capacity, resource), getattr(item, resource)
        if has is not None and need:
            counts[_WORDS[resource]] = has // need
    if plan.capacity.count is not None:
        counts["--per-gpu"] = plan.capacity.count
    return min(counts, key=lambda name: counts[name], default=None)


def _ask(ask: PlanRequest) -> str:
    parts = [counted(ask.gpus, "GPU")] if ask.gpus else []
    parts.append(counted(ask.cpus, "CPU"))
    if ask.memory is not None:
        parts.append(format_size(ask.memory))
    if ask.time_limit is not None:
        parts.append(format_limit(ask.time_limit))
    return with_ranks(", ".join(parts), ask.nodes, ask.ntasks)


def _comparison(plans: Sequence[Plan]) -> Iterator[str]:
    gpus = [plan.gpu for plan in plans]
    columns = [
        Column("GPU", tuple(gpu.name if gpu else "-" for gpu in gpus), right=False),
        Column(
            "memory", tuple(format_size(gpu.memory) if gpu else "-" for gpu in gpus)
        ),
        Column(
            "per GPU",
            tuple(_together(p) if p.elements else "0" for p in plans),
        ),
        Column("elements", tuple(f"{len(plan.elements):,}" for plan in plans)),
        Column("CPUs", tuple(str(plan.request.cpus) for plan in plans), drop=1),
        Column("RAM", tuple(_size(plan.request.memory or 0) for plan in plans)),
        Column("time", tuple(_limit_of(plan.request) for plan in plans)),
        Column("too big", tuple(f"{len(p.left_out):,}" for p in plans)),
    ]
    if not any(plan.left_out for plan in plans):
        columns.pop()
    yield from table(columns, WIDTH)


def _limit_of(ask: PlanRequest) -> str:
    return "-" if ask.time_limit is None else format_limit(ask.time_limit)


def _percent(share: float) -> str:
    return f"{round(share * 100, 1):g} %"
