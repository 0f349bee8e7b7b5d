"""What to know about a plan, in words."""

from collections.abc import Iterator, Sequence

from weigh.flow.plan_needs import Needs
from weigh.flow.plan_targets import Target
from weigh.model.plan import Element, Plan
from weigh.units import format_size

_NAMED = 3  # tasks too big that are named one by one


def too_big(plan: Plan) -> str:
    """Name the tasks that no element holds, and the way out."""
    first = plan.left_out[0]
    more = len(plan.left_out) - _NAMED
    numbers = ", ".join(str(short.task) for short in plan.left_out[:_NAMED])
    tasks = f"tasks {numbers}" if len(plan.left_out) > 1 else f"task {numbers}"
    if first.resource == "cpus":
        need, has = f"{first.need} CPUs", str(first.capacity)
    else:
        need, has = format_size(first.need), format_size(first.capacity)
        need += " of GPU memory" if first.resource == "gpu_memory" else " of memory"
    where = plan.card.name if plan.card and first.resource == "gpu_memory" else "a bin"
    if where == "a bin":
        where = "a GPU's share of the node" if plan.card else "the node"
    out = "" if len(plan.left_out) == plan.tasks else "; --leave-out plans the rest"
    return (
        f"{tasks}{f' and {more:,} more' if more > 0 else ''}: {need} with headroom, "
        f"and {where} has {has}{out}"
    )


def plan_notes(
    needs: Needs,
    elements: Sequence[Element],
    target: Target,
    *,
    time_is_said: bool,
    slow_down: float | None,
) -> Iterator[str]:
    """Give what rests on a guess; *slow_down* is None where none was measured."""
    kinds = needs.kinds
    if target.note:
        yield target.note
    yield from dict.fromkeys(note for kind in kinds for note in kind.notes)
    if not any(kind.item.memory for kind in kinds):
        yield "memory is not known: --memory, or measure a task with weigh run"
    if any(kind.item.time is None for kind in kinds):
        yield "the time is not known: --time, or measure a task with weigh run"
    together = any(len(element.tasks) > 1 for element in elements)
    shares_a_guess = together and target.card and slow_down is None
    if shares_a_guess and not time_is_said:
        unknown = any(kind.busy is None for kind in kinds)
        yield (
            "how far tasks on one GPU slow each other down was not measured: the time "
            + ("is that of tasks alone" if unknown else "is if they take turns on it")
        )
    elif shares_a_guess:
        yield "the time is taken as said, whatever the neighbours on the GPU do"
    unlike = sum(kind.tasks for kind in kinds if not kind.records)
    if 0 < unlike < len(needs.places):
        yield f"{unlike:,} tasks are like no record: only what was said counts for them"
