"""Text and JSON of a plan: what a task needs, tasks per element, the request."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from os.path import commonprefix
from typing import TypeAlias

import msgspec

from weigh.model.plan import (
    RESOURCES,
    KindForecast,
    Plan,
    PlannedQueue,
    TargetGpu,
    TaskKind,
    TogetherRun,
)
from weigh.planning.bin_packing import most_work
from weigh.planning.queue_order import AT_ONCE, time_to_start
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import indented_json, printable_text
from weigh.render.request_lines import folded_note_lines
from weigh.render.words import element_request_text
from weigh.request import LEAST_TIME, RUNNER_MEMORY, round_time
from weigh.units import (
    MIB,
    count_with_noun,
    duration_or_dash,
    format_duration,
    format_limit,
    format_size,
    size_or_dash,
)

COMPARISON_SCHEMA = "weigh.plan-comparison/1"
_MOST_KINDS = 12  # rows of a table that is shown whole
_FIRST_KINDS, _LAST_KINDS = 4, 2  # shown of more
_SHOWN_RUNNERS = 50  # with more memory than that of so many runners it is no 2 %
_NO_RUNS = "-"  # of a kind without records
_WORDS = {"gpu_memory": "GPU memory", "memory": "memory", "cpus": "CPUs"}


def plan_screen_lines(
    plans: Sequence[Plan], forecasts: Sequence[KindForecast] = ()
) -> Iterator[str]:
    """Write a plan, or several side by side, for kinds of GPU with *forecasts*."""
    first = plans[0]
    yield from _task_needs_lines(first)
    if len(plans) > 1 or forecasts:
        yield from _plan_comparison_lines(plans, forecasts)
    else:
        yield from _packing_lines(first)


def plan_json(plans: Sequence[Plan], forecasts: Sequence[KindForecast] = ()) -> str:
    """Write a plan as in ``plan.json``, or several plans in one document."""
    several = {"schema": COMPARISON_SCHEMA, "plans": list(plans)}
    if forecasts:
        return indented_json(several | {"forecasts": list(forecasts)})
    return indented_json(plans[0] if len(plans) == 1 else several)


def _task_needs_lines(plan: Plan) -> Iterator[str]:
    rows = _merged_kind_rows(plan.kinds)
    if len(rows) == 1:
        # a single kind needs no table
        needs = ", ".join(_kind_need_texts(rows[0].kind))
        runs = f" ({rows[0].runs})" if rows[0].runs != _NO_RUNS else ""
        each = ", each" if plan.tasks > 1 else ":"
        # what was typed or measured is smaller: the line says what was added
        item, above = rows[0].kind.item, ""
        if plan.headroom and (item.memory or item.gpu_memory or item.time):
            above = f", with {_headroom_percent_text(plan.headroom)} headroom"
            above += _fit_bound_suffix(plan)
        text = f"{count_with_noun(plan.tasks, 'task')}{each} {needs}{runs}{above}"
        yield from folded_note_lines([text], indent="  ")
        return
    yield (
        f"  {count_with_noun(plan.tasks, 'task')} of {len(rows):,} kinds, "
        f"each figure with {_headroom_percent_text(plan.headroom)} "
        f"headroom{_fit_bound_suffix(plan)}"
    )
    if len(rows) <= _MOST_KINDS:
        yield from _kind_table_lines(rows)
        return
    held = [kind.item.memory for kind in plan.kinds]
    yield from _kind_table_lines((*rows[:_FIRST_KINDS], *rows[-_LAST_KINDS:]))
    sizes = dict.fromkeys((format_size(min(held)), format_size(max(held))))
    yield (
        f"    and {len(rows) - _FIRST_KINDS - _LAST_KINDS:,} kinds between them; "
        f"of all, RAM {' to '.join(sizes)}"
    )


_ComparedPlan: TypeAlias = tuple[Plan, KindForecast | None]


class _PlanRow(msgspec.Struct, frozen=True):
    """A row of the table: tasks whose figures look the same, and their runs."""

    kind: TaskKind
    tasks: int
    runs: str


def _merged_kind_rows(kinds: Sequence[TaskKind]) -> list[_PlanRow]:
    """Return one row for kinds that differ in nothing that is shown but their runs."""
    alike: dict[tuple[object, ...], list[TaskKind]] = {}
    for kind in kinds:
        item, used = kind.item, kind.used
        sizes = (item.gpu_memory, used.gpu_memory, item.memory)
        # kinds are alike if their rows would be
        shown = (
            *(size_or_dash(size or None) for size in sizes),
            item.gpus,
            item.cpus,
            _kind_time_text(kind),
        )
        alike.setdefault((*shown, bool(kind.predictions)), []).append(kind)
    return [
        _PlanRow(same[0], sum(kind.tasks for kind in same), _run_counts_text(same))
        for same in alike.values()
    ]


def _fit_bound_suffix(plan: Plan) -> str:
    is_fitted = any(kind.predictions for kind in plan.kinds)
    return ", or a fit's bound" if is_fitted else ""


def _kind_need_texts(task_kind: TaskKind) -> Iterator[str]:
    item = task_kind.item
    if item.gpus:
        yield count_with_noun(item.gpus, "GPU")
    if item.gpu_memory:
        of = "each GPU" if item.gpus > 1 else "GPU"
        yield f"{format_size(item.gpu_memory)} of {of}"
    yield count_with_noun(item.cpus, "CPU")
    if item.memory:
        yield f"{format_size(item.memory)} RAM"
    if item.time is not None:
        yield _kind_time_text(task_kind)


def _kind_table_lines(plan_rows: Sequence[_PlanRow]) -> Iterator[str]:
    examples = _abbreviated_examples([row.kind.example for row in plan_rows])
    shown = dict(zip(map(id, plan_rows), map(printable_text, examples), strict=True))
    example = TableColumn(
        "example",
        lambda row: shown[id(row)],
        right=False,
        flexible=True,
        keeps_end=True,
    )
    tasks, *figures = _KIND_COLUMNS
    yield from table_lines(plan_rows, (tasks, example, *figures))


def _abbreviated_examples(examples: Sequence[str]) -> list[str]:
    """Leave out the first words that all examples share."""
    shared = commonprefix(list(examples)).rpartition(" ")[0]  # noqa: RUF071 - to a blank
    before, _, last = shared.rpartition(" ")
    if last.startswith("-"):  # an option stays with its value
        shared = before
    if not shared:
        return list(examples)
    return [f"...{example.removeprefix(shared)}" for example in examples]


def _run_counts_text(kinds: Sequence[TaskKind]) -> str:
    numbers = [kind.runs for kind in kinds]
    least, most = min(numbers), max(numbers)
    if not most:
        return _NO_RUNS
    count = str(most) if least == most else f"{least} to {most}"
    if kinds[0].predictions:
        return f"fit of {count}"
    return f"{count} run{'' if count == '1' else 's'}"


def _kind_time_text(task_kind: TaskKind) -> str:
    time_limit = task_kind.item.time
    if time_limit is None or not task_kind.runs:
        return _limit_or_dash(time_limit)
    # as requested: measured times of equal tasks differ by seconds
    return format_limit(round_time(time_limit))


def _limit_or_dash(time_limit: float | None) -> str:
    return "-" if time_limit is None else format_limit(time_limit)


_KIND_COLUMNS = (
    TableColumn("tasks", lambda row: f"{row.tasks:,}"),
    TableColumn(
        "GPU", lambda row: size_or_dash(row.kind.item.gpu_memory or None), optional=True
    ),
    TableColumn("RAM", lambda row: size_or_dash(row.kind.item.memory or None)),
    TableColumn("CPUs", lambda row: str(row.kind.item.cpus)),
    TableColumn("time", lambda row: _kind_time_text(row.kind)),
    TableColumn("from", lambda row: row.runs, drop=1),
)


def _packing_lines(plan: Plan) -> Iterator[str]:
    together = _tasks_per_element_text(plan)
    if plan.gpu:
        size = format_size(plan.gpu.memory)
        yield f"  {plan.gpu.name} {size}: {_share_of_gpu_text(plan)}"
    yield from _probed_speed_lines(plan.probe)
    if plan.queue is not None:
        yield from _pull_queue_lines(plan, plan.queue)
        return
    # the last element takes what is left
    if together.isdecimal() and len(plan.elements[-1].tasks) < int(together):
        together = f"up to {together}"
    yield from _element_lines(
        plan, f"{together} {'task' if together == '1' else 'tasks'}"
    )


def _share_of_gpu_text(plan: Plan) -> str:
    """Write how many tasks a GPU has and why no more, or that each has whole ones."""
    # "4 per GPU" has no meaning where a task has whole GPUs
    if plan.request.gpus > 1 or any(kind.item.gpus for kind in plan.kinds):
        return f"each task has {count_with_noun(plan.request.gpus, 'GPU')} of its own"
    together, limit = _tasks_per_element_text(plan), _limiting_resource(plan)
    noun = "task" if together == "1" else "tasks"
    return f"{together} {noun} per GPU" + (f", limited by {limit}" if limit else "")


def chosen_gpu_line(plan: Plan, forecast: KindForecast, directory: str) -> str:
    """Write for which kind of GPU the plan in *directory* is."""
    return f"{directory} is for {forecast.gpu}: {_share_of_gpu_text(plan)}"


def _element_lines(plan: Plan, tasks: str) -> Iterator[str]:
    """Write how many elements there are, what each runs, and what it requests."""
    each = " each" if len(plan.elements) > 1 else ""
    elements = count_with_noun(len(plan.elements), "array element")
    text = f"{elements}, {tasks}{each}: {element_request_text(plan.request)}"
    # a typed --memory grows by it, which is seen in small ones
    if 0 < (plan.request.memory or 0) < _SHOWN_RUNNERS * RUNNER_MEMORY:
        text += f" ({RUNNER_MEMORY // MIB} MiB for weigh)"
    yield from folded_note_lines([text], indent="  ")


def _pull_queue_lines(plan: Plan, queue: PlannedQueue) -> Iterator[str]:
    """Write the elements that pull from one queue, and when they should be done."""
    yield from _element_lines(plan, f"{count_with_noun(queue.slots, 'task')} at a time")
    limit = plan.request.time_limit or 0
    if limit > LEAST_TIME:
        # else nobody knows why it is longer than what tasks take one after another
        needed = max(time_to_start(kind) or 0.0 for kind in plan.kinds)
        text = (
            f"{format_limit(limit)}, as each task waits its turn, and starts only if "
            f"{format_duration(needed)} are left (twice the longest)"
        )
        yield from folded_note_lines([text], indent="  ")
    if queue.expected is not None:
        about = format_duration(queue.expected)
        most = len(plan.elements)
        jobs = f" (submit --jobs {most})" if most > AT_ONCE else ""
        yield f"  all tasks take about {about} if all elements start at once{jobs}"


def _probed_speed_lines(together_runs: Sequence[TogetherRun]) -> Iterator[str]:
    """Write how many tasks side by side do the most work, as measured."""
    if together_runs:
        best = most_work(together_runs)
        does = "does" if best.count == 1 else "do"
        work = f"{best.count} together {does} the most work per hour"
        yield f"  measured: {work}, {best.speed_up:.2f} times that of one alone"


def _tasks_per_element_text(plan: Plan) -> str:
    """Write how many tasks an element has: ``4``, or ``2 to 5``."""
    if plan.queue is not None:
        return str(plan.queue.slots)
    sizes = [len(element.tasks) for element in plan.elements]
    # the last element takes what is left: it counts only if it is the only one
    least, most = min(sizes[:-1] or sizes), max(sizes)
    return str(most) if least == most else f"{least} to {most}"


def _limiting_resource(plan: Plan) -> str | None:
    """Return the resource that limits tasks per GPU, if all tasks need the same."""
    # different tasks are limited by different resources
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


def _plan_comparison_lines(
    plans: Sequence[Plan], forecasts: Sequence[KindForecast]
) -> Iterator[str]:
    columns: Sequence[TableColumn] = _COMPARED_COLUMNS
    if forecasts:
        columns = (_FREE_GPUS, *columns[1:], *_FORECAST_COLUMNS)
    yield from table_lines([*zip_longest(plans, forecasts)], columns)


def _compared_gpu(compared: _ComparedPlan) -> TargetGpu:
    return compared[0].gpu or TargetGpu("-", 0)


def _count_per_gpu_text(compared: _ComparedPlan) -> str:
    return _tasks_per_element_text(compared[0]) if compared[0].elements else "0"


_COMPARED_COLUMNS = (
    TableColumn("GPU", lambda one: _compared_gpu(one).name, right=False),
    TableColumn("memory", lambda one: size_or_dash(_compared_gpu(one).memory or None)),
    TableColumn("per GPU", _count_per_gpu_text),
    TableColumn("elements", lambda one: f"{len(one[0].elements):,}"),
    TableColumn("CPUs", lambda one: str(one[0].request.cpus), drop=2),
    TableColumn("RAM", lambda one: size_or_dash(one[0].request.memory or None), drop=1),
    TableColumn("time", lambda one: _limit_or_dash(one[0].request.time_limit)),
    TableColumn("too big", lambda one: f"{len(one[0].left_out):,}", optional=True),
)


def _wait_text(compared: _ComparedPlan) -> str:
    wait = None if compared[1] is None else compared[1].wait
    return "none" if wait == 0 else duration_or_dash(wait)


def _free_of_kind_text(compared: _ComparedPlan) -> str:
    forecast = compared[1]
    if forecast is None:
        return "-"
    return f"{forecast.gpu} ({forecast.free} of {forecast.total} free)"


_FREE_GPUS = TableColumn("GPU", _free_of_kind_text, right=False)
_FORECAST_COLUMNS = (
    TableColumn("wait", _wait_text),
    TableColumn("done in", lambda one: duration_or_dash(one[1] and one[1].done_in)),
)


def _headroom_percent_text(share: float) -> str:
    return f"{round(share * 100, 1):g} %"
