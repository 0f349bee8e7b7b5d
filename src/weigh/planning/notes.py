"""Write the notes on a plan: what is not known, estimated or left out."""

from collections.abc import Iterator, Sequence

from weigh.estimate.fit import FEWEST_SIZES, TRUSTED_RATIO
from weigh.estimate.samples import size_text
from weigh.model.plan import Element, Foretold, Kind, Plan
from weigh.planning.needs import Needs
from weigh.planning.targets import Target
from weigh.units import format_size

_NAMED = 3  # tasks or parameters that are listed by name
_MOST_SIZES = 6  # sizes that are listed one by one
_WORDS = {"gpu_memory": "GPU memory", "memory": "memory", "time": "time"}
_Grounds = tuple[str, tuple[float, ...], int]


def too_big(plan: Plan) -> str:
    """Return the message on tasks that fit into no element, and what to do."""
    first = plan.left_out[0]
    more = len(plan.left_out) - _NAMED
    numbers = ", ".join(str(short.task) for short in plan.left_out[:_NAMED])
    tasks = f"tasks {numbers}" if len(plan.left_out) > 1 else f"task {numbers}"
    if first.resource == "cpus":
        need = f"{first.need} CPU{'s' if first.need > 1 else ''}"
        has = str(first.capacity)
    else:
        need, has = format_size(first.need), format_size(first.capacity)
        need += " of GPU memory" if first.resource == "gpu_memory" else " of memory"
        need += " with headroom"
    where = plan.card.name if plan.card and first.resource == "gpu_memory" else "a bin"
    if where == "a bin":
        where = "a GPU's share of the node" if plan.card else "the node"
    out = "" if len(plan.left_out) == plan.tasks else "; --leave-out plans the rest"
    return (
        f"{tasks}{f' and {more:,} more' if more > 0 else ''}: {need}, "
        f"and {where} has {has}{out}"
    )


def plan_notes(  # noqa: PLR0913 - keyword-only past the third
    needs: Needs,
    elements: Sequence[Element],
    target: Target,
    *,
    has_time_option: bool,
    slow_down: float | None,
    nodes: int = 1,
) -> Iterator[str]:
    """Yield notes on assumptions; *slow_down* is None where it was not measured."""
    kinds = needs.kinds
    if target.note:
        yield target.note
    if nodes > 1:
        yield (
            f"srun starts each task once on each of its {nodes} nodes (not a task that "
            "begins with srun or mpirun): torchrun finds the other nodes by itself, "
            "other programs use MASTER_ADDR, MASTER_PORT and SLURM_NODEID"
        )
    yield from dict.fromkeys(note for kind in kinds for note in kind.notes)
    if not any(kind.item.memory for kind in kinds):
        yield "memory is not known: --memory, or measure a task with weigh run"
    if any(kind.item.time is None for kind in kinds):
        yield "the time is not known: --time, or measure a task with weigh run"
    together = any(len(element.tasks) > 1 for element in elements)
    shares_a_guess = together and target.card and slow_down is None
    if shares_a_guess and not has_time_option:
        unknown = any(kind.busy is None for kind in kinds)
        yield (
            "the slow-down of tasks that share a GPU was not measured: the time "
            + ("is that of tasks alone" if unknown else "assumes that they take turns")
        )
    elif shares_a_guess:
        yield "the time is taken from --time: no slow-down by sharing a GPU is added"
    yield from _prediction_notes(kinds)
    if needs.unlike:
        names = list(needs.unlike)
        named = ", ".join(f"{n} {size_text(needs.unlike[n])}" for n in names[:_NAMED])
        more = " and others" if len(names) > _NAMED else ""
        yield (
            f"all runs had {named}{more}, and tasks have another value: measure a run "
            "with it to see whether it matters (weigh run)"
        )
    unlike = sum(kind.tasks for kind in kinds if not kind.records)
    if 0 < unlike < len(needs.places):
        yield f"{unlike:,} tasks match no record: only the options count for them"


def _prediction_notes(kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield what was predicted, from which runs, and how far beyond them."""
    predicted: dict[_Grounds, list[Foretold]] = {}
    tasks: dict[_Grounds, int] = {}
    for kind in kinds:
        for one in kind.foretold:
            predicted.setdefault((one.by, one.sizes, one.runs), []).append(one)
        for grounds in {(one.by, one.sizes, one.runs) for one in kind.foretold}:
            tasks[grounds] = tasks.get(grounds, 0) + kind.tasks
    for (by, sizes, runs), found in predicted.items():
        names = [w for q, w in _WORDS.items() if any(o.quantity == q for o in found)]
        what = " and ".join(names[-2:])
        what = ", ".join((*names[:-2], what))
        number = tasks[by, sizes, runs]
        whose = "1 task" if number == 1 else f"{number:,} tasks"
        rests = f"{runs} runs at {by} {_sizes(sizes)}"
        yield f"{what} of {whose}: predicted from {rests}{_how_far(found)}"
        if len(sizes) < FEWEST_SIZES:
            yield f"two sizes of {by} show no curvature: measure a third (weigh run)"


def _how_far(found: Sequence[Foretold]) -> str:
    farthest = max(found, key=lambda one: one.ratio)
    if farthest.ratio <= 1:
        return ", none of them beyond"
    text = f"; {farthest.by} {size_text(farthest.size)} is {farthest.ratio:.1f} times"
    if farthest.ratio <= TRUSTED_RATIO:
        return f"{text} the largest of those"
    return f"{text} the largest, too far to trust: measure a larger one"


def _sizes(sizes: Sequence[float]) -> str:
    if len(sizes) > _MOST_SIZES:
        return f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
    *most, last = map(size_text, sizes)
    return f"{', '.join(most)} and {last}" if most else last
