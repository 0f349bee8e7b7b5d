"""What to know about a plan, in words."""

from collections.abc import Iterator, Sequence

from weigh.estimate.fit import FEWEST_SIZES, TRUSTED_RATIO
from weigh.estimate.samples import size_text
from weigh.model.plan import Element, Foretold, Kind, Plan
from weigh.planning.needs import Needs
from weigh.planning.targets import Target
from weigh.units import format_size

_NAMED = 3  # tasks too big that are named one by one
_MOST_SIZES = 6  # that are written one by one
_WORDS = {"gpu_memory": "GPU memory", "memory": "memory", "time": "time"}
_Grounds = tuple[str, tuple[float, ...], int]


def too_big(plan: Plan) -> str:
    """Name the tasks that no element holds, and the way out."""
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
    time_is_said: bool,
    slow_down: float | None,
    nodes: int = 1,
) -> Iterator[str]:
    """Give what rests on a guess; *slow_down* is None where none was measured."""
    kinds = needs.kinds
    if target.note:
        yield target.note
    if nodes > 1:
        yield (
            f"srun starts each task once on each of its {nodes} nodes (one that begins "
            "with srun or mpirun does so itself): torchrun finds the others by itself, "
            "other programs by MASTER_ADDR, MASTER_PORT and SLURM_NODEID"
        )
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
    yield from _foretold(kinds)
    if needs.unlike:
        names = list(needs.unlike)
        named = ", ".join(f"{n} {size_text(needs.unlike[n])}" for n in names[:_NAMED])
        more = " and others" if len(names) > _NAMED else ""
        yield (
            f"all runs had {named}{more}, and tasks have another: a run of that would "
            "tell whether it matters (weigh run)"
        )
    unlike = sum(kind.tasks for kind in kinds if not kind.records)
    if 0 < unlike < len(needs.places):
        yield f"{unlike:,} tasks are like no record: only what was said counts for them"


def _foretold(kinds: Sequence[Kind]) -> Iterator[str]:
    """Say what no run measured, on what it rests, and how far off that is."""
    told: dict[_Grounds, list[Foretold]] = {}
    tasks: dict[_Grounds, int] = {}
    for kind in kinds:
        for one in kind.foretold:
            told.setdefault((one.by, one.sizes, one.runs), []).append(one)
        for grounds in {(one.by, one.sizes, one.runs) for one in kind.foretold}:
            tasks[grounds] = tasks.get(grounds, 0) + kind.tasks
    for (by, sizes, runs), found in told.items():
        names = [w for q, w in _WORDS.items() if any(o.quantity == q for o in found)]
        what = " and ".join(names[-2:])
        what = ", ".join((*names[:-2], what))
        number = tasks[by, sizes, runs]
        whose = "1 task" if number == 1 else f"{number:,} tasks"
        rests = f"{runs} runs at {by} {_sizes(sizes)}"
        yield f"{what} of {whose}: foretold from {rests}{_how_far(found)}"
        if len(sizes) < FEWEST_SIZES:
            yield f"two sizes of {by} show no bend: a third would (weigh run)"


def _how_far(found: Sequence[Foretold]) -> str:
    farthest = max(found, key=lambda one: one.ratio)
    if farthest.ratio <= 1:
        return ", none of them beyond"
    said = f"; {farthest.by} {size_text(farthest.size)} is {farthest.ratio:.1f} times"
    if farthest.ratio <= TRUSTED_RATIO:
        return f"{said} the largest of those"
    return f"{said} the largest, too far to trust: measure a larger one"


def _sizes(sizes: Sequence[float]) -> str:
    if len(sizes) > _MOST_SIZES:
        return f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
    *most, last = map(size_text, sizes)
    return f"{', '.join(most)} and {last}" if most else last
