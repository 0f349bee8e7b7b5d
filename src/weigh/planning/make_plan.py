"""Make a plan from the needs of tasks: the elements, their time, the request, notes.

The notes state what is not known, what was predicted and which tasks are left out.
"""

import posixpath
import shlex
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.estimate.curve import size_text
from weigh.estimate.fit import FEWEST_SIZES, TRUSTED_RATIO
from weigh.model.element_time import limit_for_tasks
from weigh.model.plan import (
    SCHEMA,
    SCHEMA_OF_QUEUES,
    BinCapacity,
    LeftOut,
    NeedPrediction,
    PackedBin,
    PackedTasks,
    Plan,
    PlannedElement,
    PlannedQueue,
    PlanRequest,
    TargetGpu,
    TaskKind,
    TaskNeed,
)
from weigh.planning.bin_packing import pack_items
from weigh.planning.launchers import is_launcher
from weigh.planning.needs import ElementRanks, TaskNeeds
from weigh.planning.options import (
    PlanOptions,
    PlanTarget,
    parse_hours,
    parsed_size_option,
    task_command_as_typed,
)
from weigh.planning.queue_order import (
    SHORT,
    SizedElements,
    least_element_time,
    queued_work,
    sized_elements,
    slots_per_element,
)
from weigh.planning.record_match import task_line_words
from weigh.request import (
    RUNNER_MEMORY,
    need_without_runner,
    round_memory,
    round_time,
)
from weigh.units import Bytes, Seconds, count_with_noun, format_size

_NOISE = 1.05  # slow-down that equal runs show by chance
_NAMED = 3  # tasks or parameters that are listed by name
LONGEST_PLAN_NAME = 200  # bytes of a file name's 255: others are made from it
_MOST_SIZES = 6  # sizes that are listed one by one
_WORDS = {"gpu_memory": "GPU memory", "memory": "memory", "time": "time"}
# size's name, sizes measured, number of runs
_Source = tuple[str, tuple[float, ...], int]


def plan_for_target(
    options: PlanOptions,
    needs: TaskNeeds,
    target: PlanTarget,
    headroom: float,
    *,
    slow_down: float | None = None,
) -> Plan:
    """Pack the tasks for *target*; *slow_down* is the factor measured by a probe.

    Raises:
        UsageError: tasks use different numbers of whole GPUs; a node has fewer; or
            the name cannot be the name of a directory.
        FormatError: a size does not parse.
    """
    whole = _whole_gpus_per_task(needs)
    capacity = _element_capacity(options, target.gpu, whole, needs.ranks)
    packing = pack_items([needs.kinds[place].item for place in needs.places], capacity)
    elements = tuple(
        PlannedElement(
            file=f"tasks_{number}.txt",
            # bins count from 0, task files from 1
            tasks=tuple(at + 1 for at in bin_.items),
            gpu_memory=bin_.gpu_memory,
            memory=bin_.memory,
            cpus=bin_.cpus,
            time=_bin_time_bound(bin_, needs, slow_down),
            kinds=tuple(needs.places[at] for at in bin_.items),
        )
        for number, bin_ in enumerate(packing.bins)
    )
    request = _element_request(elements, needs, capacity, target, headroom)
    # first packed as if each element ran one wave: a queue takes its sizes from that
    waves = ElementWaves(packing.bins, elements, capacity.count)
    pulled = _pulled_queue(options, needs, waves, headroom)
    if pulled is not None:
        elements = _pulling_elements(elements, pulled[1])
        # an element of a queue runs many tasks, one after another
        request = replace(request, time_limit=pulled[1].limit)
    return Plan(
        # an older weigh must not read a plan of a queue as one without tasks
        schema=SCHEMA if pulled is None else SCHEMA_OF_QUEUES,
        name=_plan_name(options),
        task_file=options.task_file,
        tasks=len(needs.places),
        headroom=headroom,
        gpu=target.gpu,
        capacity=capacity,
        request=request,
        kinds=needs.kinds,
        elements=elements,
        queue=None if pulled is None else pulled[0],
        left_out=_tasks_left_out(packing),
        notes=tuple(
            # what tasks share a GPU is seen in the bins, not in elements that pull
            plan_notes(options, needs, waves.elements, target, slow_down=slow_down)
        ),
    )


class ElementWaves(msgspec.Struct, frozen=True):
    """Elements that run one wave of tasks each; ``count`` is the most together."""

    bins: tuple[PackedBin, ...]
    elements: tuple[PlannedElement, ...]
    count: int | None  # None: as many as fit


def _pulled_queue(
    options: PlanOptions, needs: TaskNeeds, waves: ElementWaves, headroom: float
) -> tuple[PlannedQueue, SizedElements] | None:
    """Return the queue that elements pull from, and their number; None without one.

    Raises:
        UsageError: --hours, but a task's time is not known, or is too long.
        FormatError: --hours is not a time.
    """
    hours = None if options.hours is None else parse_hours(options.hours)
    # --hours 0 asks for elements with tasks of their own
    if hours == 0:
        return None
    bins, elements = waves.bins, waves.elements
    places = [(at, needs.places[at]) for bin_ in bins for at in bin_.items]
    # in the order of the task file, of which the queue's numbers are positions
    places.sort()
    kinds = [needs.kinds[kind] for _, kind in places]
    times = [kind.used.time for kind in kinds if kind.used.time is not None]
    # without the time of every task neither the order nor a time limit is known
    if not kinds or len(times) < len(kinds):
        if hours is not None and kinds:
            raise UsageError(
                "--hours needs the time of each task: --time, or measure a task with "
                "weigh run"
            )
        return None
    if hours is None and max(times) >= SHORT:
        return None
    items = [kind.item for kind in kinds]
    slots = slots_per_element(items, bins, task_limit=waves.count)
    # each element may get any task, so it is as large as the largest bin in each
    # resource
    full = TaskNeed(
        gpu_memory=max(bin_.gpu_memory for bin_ in bins),
        memory=max(bin_.memory for bin_ in bins),
        cpus=max(bin_.cpus for bin_ in bins),
    )
    # tasks that share a GPU run longer than alone: by how much in the mean, the
    # elements' bounds show
    alone = sum(bin_.time or 0.0 for bin_ in bins)
    slower = sum(element.time or 0.0 for element in elements) / alone if alone else 1.0
    slower = max(1.0, slower)
    work = least_element_time(items, times, full, slots)
    size_ = sized_elements(
        queued_work(kinds, work, slots, slower=slower),
        headroom=headroom,
        waves=len(bins),
        limit=hours,
    )
    if hours is None and size_.elements == len(bins):
        return None  # each has one wave, and needs no time for a second one
    queue = PlannedQueue(
        folder="queue",
        tasks=tuple(at + 1 for at, _ in places),
        kinds=tuple(kind for _, kind in places),
        slots=slots,
        expected=size_.expected,
    )
    return queue, size_


def _pulling_elements(
    elements: Sequence[PlannedElement], size_: SizedElements
) -> tuple[PlannedElement, ...]:
    """Return the elements that pull their tasks; each may hold any of *elements*."""
    largest = PlannedElement(
        file="",
        tasks=(),
        gpu_memory=max(element.gpu_memory for element in elements),
        memory=max(element.memory for element in elements),
        cpus=max(element.cpus for element in elements),
        time=size_.expected,  # predicted, not the limit
    )
    return tuple(
        replace(largest, file=f"tasks_{number}.txt") for number in range(size_.elements)
    )


def _plan_name(options: PlanOptions) -> str:
    # the plan's directory has this name: it must not be hidden, an option or elsewhere
    stem = posixpath.splitext(posixpath.basename(options.task_file))[0]
    name = options.name or (stem if stem.strip("-.") else "tasks")
    refuse_what_names_no_plan(name)
    return name


def refuse_what_names_no_plan(name: str) -> None:
    """Refuse a name that is no folder's below ``plan/``.

    Raises:
        UsageError: it is elsewhere, hidden by its dots, too long or not printable.
    """
    if posixpath.sep in name or name.strip(".") == "" or not name.isprintable():
        raise UsageError(f"not a directory name: {name!r} (choose another --name)")
    if len(name.encode()) > LONGEST_PLAN_NAME:
        raise UsageError(f"too long a name: {name} (choose a shorter --name)")


def _whole_gpus_per_task(needs: TaskNeeds) -> int:
    """Return how many whole GPUs each task uses; 0 where tasks share one.

    Raises:
        UsageError: tasks differ: all elements of an array have the same request.
    """
    # the place of a task with each count
    counts = {kind.item.gpus: place for place, kind in enumerate(needs.kinds)}
    if len(counts) > 1:
        uses = " and ".join(
            f"task {needs.places.index(place) + 1} {_gpu_use(count)}"
            for count, place in sorted(counts.items())[:2]
        )
        raise UsageError(f"{uses}: plan them from separate task files (or --gpus N)")
    return next(iter(counts))


def _gpu_use(gpu_count: int) -> str:
    if gpu_count:
        return f"uses {count_with_noun(gpu_count, 'GPU')}"
    return "shares one"


def _element_capacity(
    options: PlanOptions, gpu: TargetGpu | None, whole: int, ranks: ElementRanks
) -> BinCapacity:
    """Return what one element may hold: its GPUs' share of the node."""
    has_gpus = gpu is not None or whole > 0
    if whole and options.node_gpus and whole > options.node_gpus:
        raise UsageError(
            f"a task uses {whole} GPUs and a node has {options.node_gpus}: "
            "--nodes N --gpus G spreads a task over nodes, G on each"
        )
    # a node with 4 GPUs runs 4 elements of one GPU: each has a quarter of memory and
    # CPUs
    shares = (options.node_gpus or 1) // (whole or 1) if has_gpus else 1
    memory, cpus = (
        parsed_size_option("--node", options.node_memory),
        options.node_cpus,
    )
    # whole GPUs and ranks are requested for one task; several would have to split them
    count = options.per_gpu
    if whole or ranks.nodes > 1 or ranks.ntasks:
        count = 1
    elif gpu is None and memory is not None and cpus is None:
        raise UsageError(
            "--node: memory alone would pack as many tasks as it holds, with a CPU or "
            f"more each: add CPUs, as --node {options.node_memory},16"
        )
    elif gpu is None and memory is None and cpus is None:
        count = count or 1  # the node's size is not known: one task per element
    return BinCapacity(
        gpu_memory=gpu.memory if gpu else None,
        memory=None if memory is None else memory // max(1, shares),
        cpus=None if cpus is None else cpus // max(1, shares),
        count=count,
    )


def _bin_time_bound(
    bin_: PackedBin, needs: TaskNeeds, slow_down: float | None
) -> float | None:
    """Return an upper bound of a bin's time: as measured together, or by GPU use.

    At any moment the slowest task either does not use the GPU, or waits while the GPU
    works for one of the tasks.
    """
    if bin_.time is None:
        return None
    # a measured factor replaces the bound; a small one is the noise between equal runs
    if slow_down is not None:
        return bin_.time * (slow_down if slow_down > _NOISE else 1.0)
    kinds = [needs.kinds[needs.places[at]] for at in bin_.items]
    # time is seconds, busy the share of it in which the task keeps the GPU at work
    parts = [(kind.item.time or 0.0, kind.busy or 0.0) for kind in kinds]
    on_gpu = sum(time * busy for time, busy in parts)
    return max(bin_.time, max(time * (1 - busy) for time, busy in parts) + on_gpu)


def _element_request(
    elements: Sequence[PlannedElement],
    needs: TaskNeeds,
    capacity: BinCapacity,
    target: PlanTarget,
    headroom: float,
) -> PlanRequest:
    ranks, whole = needs.ranks, _whole_gpus_per_task(needs)
    wanted = max(
        (_with_runner(element, needs, headroom) for element in elements), default=0
    )
    # rounded up, but not above the node's share: no node could run that
    rounded = round_memory(wanted)
    if capacity.memory is not None:
        rounded = min(rounded, capacity.memory)
    # one unknown time makes that of all unknown: all elements of an array have one
    # limit
    times = [element.time for element in elements]
    known = [time for time in times if time is not None]
    per_node = max(1, ranks.per_node)
    cpus = max((element.cpus for element in elements), default=1)
    return PlanRequest(
        # whole CPUs per rank, since a scheduler divides them among the ranks
        cpus=max(-(-cpus // per_node), ranks.cpus) * per_node,
        memory=rounded or None,  # None: not known, the queue's default
        time_limit=_limit_of_waves(known, needs)
        if known and len(known) == len(times)
        else None,
        gpus=whole or (1 if target.gpu else 0),
        gpu=target.word,
        nodes=ranks.nodes,
        ntasks=ranks.ntasks,
    )


def _with_runner(element: PlannedElement, needs: TaskNeeds, headroom: float) -> Bytes:
    """Return the memory of an element's tasks, and of weigh exec, which runs them.

    A need of the least that is requested has room for both.
    """
    if not element.memory:
        return 0
    kinds = [needs.kinds[place] for place in element.kinds]
    # what the tasks themselves do not need of theirs is free for weigh exec
    spare = sum(
        kind.item.memory - need_without_runner(kind, headroom) for kind in kinds
    )
    return max(element.memory, element.memory - spare + RUNNER_MEMORY)


def _limit_of_waves(bounds: Sequence[Seconds], needs: TaskNeeds) -> int:
    """Return the time limit of elements that run one wave of tasks each.

    Where the headroom is small, it holds the longest task and what weigh itself needs.
    """
    # used, not item: the limit has the headroom already, and only has to hold the start
    # and the grace time in addition
    longest = max(needs.kinds[place].used.time or 0.0 for place in needs.places)
    return round_time(max(*bounds, limit_for_tasks(longest)))


def _tasks_left_out(packing: PackedTasks) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(short.item + 1, short.resource, short.need, short.capacity)
        for short in packing.too_big
    )


def tasks_too_big_message(plan: Plan, *, states_cpus: bool = False) -> str:
    """Return the message on tasks that fit into no element, and what to do.

    *states_cpus*: the user stated the CPUs of a task.
    """
    first = plan.left_out[0]
    more = len(plan.left_out) - _NAMED
    numbers = ", ".join(str(short.task) for short in plan.left_out[:_NAMED])
    tasks = f"tasks {numbers}" if len(plan.left_out) > 1 else f"task {numbers}"
    way_out = ""
    if first.resource == "cpus":
        need = count_with_noun(first.need, "CPU")
        has = str(first.capacity)
        # an option that the user gave is not corrected by a suggestion
        if not states_cpus:
            need += " as measured"
            way_out = f"; --cpus {has} if fewer are enough"
    else:
        need, has = format_size(first.need), format_size(first.capacity)
        need += " of GPU memory" if first.resource == "gpu_memory" else " of memory"
        need += " with headroom"
    # only GPU memory belongs to the GPU; memory and CPUs are the node's
    where = plan.gpu.name if plan.gpu and first.resource == "gpu_memory" else "a bin"
    if where == "a bin":
        where = "a GPU's share of the node" if plan.gpu else "the node"
    return (
        f"{tasks}{f' and {more:,} more' if more > 0 else ''}: {need}, "
        f"and {where} has {has}{way_out}"
    )


def plan_notes(
    options: PlanOptions,
    needs: TaskNeeds,
    elements: Sequence[PlannedElement],
    target: PlanTarget,
    *,
    slow_down: float | None,
) -> Iterator[str]:
    """Yield notes on assumptions; *slow_down* is None where it was not measured."""
    kinds = needs.kinds
    if target.note:
        yield target.note
    if (options.nodes or 1) > 1:
        yield (
            f"srun starts each task once on each of its {options.nodes} nodes (not a "
            "task that "
            "begins with srun or mpirun): torchrun finds the other nodes by itself, "
            "other programs use MASTER_ADDR, MASTER_PORT and SLURM_NODEID"
        )
    # elements of an array have one request, so it is that of the most ranks
    counts = {kind.item.ntasks for kind in kinds}
    if len(counts) > 1:
        yield (
            f"tasks start {max(1, min(counts))} to {max(counts)} ranks: each element "
            f"requests {max(counts)} (plan them from separate task files for less)"
        )
    yield from dict.fromkeys(note for kind in kinds for note in kind.notes)
    if not any(kind.item.memory for kind in kinds):
        yield "memory is not known: --memory, or measure a task with weigh run"
    yield from _notes_on_unknown_times(needs)
    together = any(len(element.tasks) > 1 for element in elements)
    shares_a_guess = together and target.gpu and slow_down is None
    if shares_a_guess and options.time is None:
        # without the share of GPU time nothing can be assumed on taking turns
        unknown = any(kind.busy is None for kind in kinds)
        enough = "that of a task alone" if unknown else "enough if they take turns"
        yield (
            f"the time is {enough}: how far tasks that share a GPU slow each other "
            "down was not measured (--probe)"
        )
    elif shares_a_guess:
        yield "the time is taken from --time: no slow-down by sharing a GPU is added"
    yield from _prediction_notes(kinds)
    yield from _size_notes(needs)
    # none with a record is a plan by options, which needs no note
    unlike = sum(kind.tasks for kind in kinds if not kind.records)
    if 0 < unlike < len(needs.places):
        match = "1 task matches" if unlike == 1 else f"{unlike:,} tasks match"
        whom = "it" if unlike == 1 else "them"
        yield f"{match} no record: only the options count for {whom}"


def _notes_on_unknown_times(needs: TaskNeeds) -> Iterator[str]:
    """Yield that elements get no time limit, and which tasks are the reason.

    The times of other tasks make no limit: it might end those that have none.
    """
    unknown = [at for at, kind in enumerate(needs.kinds) if kind.item.time is None]
    if len(unknown) == len(needs.kinds):
        yield "the time is not known: --time, or measure a task with weigh run"
    elif unknown:
        first = needs.places.index(unknown[0])
        tasks = sum(needs.kinds[at].tasks for at in unknown)
        others = f" and {tasks - 1:,} more" if tasks > 1 else ""
        example = task_command_as_typed(needs.kinds[unknown[0]].example)
        yield (
            f"no time limit, as the time of task {first + 1}{others} is not known: "
            f"measure it (weigh run -- {example}), or --time for all tasks"
        )


def _size_notes(needs: TaskNeeds) -> Iterator[str]:
    """Yield notes on sizes that runs and tasks do not share."""
    if needs.unlike:
        names = list(needs.unlike)
        named = ", ".join(
            f"{n}{' ' if n[:1] == '-' else ' = '}{size_text(needs.unlike[n])}"
            for n in names[:_NAMED]
        )
        more = " and others" if len(names) > _NAMED else ""
        yield (
            f"measured with {named}{more} only, and tasks have other values: measure "
            "one of those, too, as their needs may differ (weigh run)"
        )
    for name, count in needs.unnamed.items():
        tasks = "1 task does" if count == 1 else f"{count:,} tasks do"
        yield (
            f"the runs differ in {name}, which {tasks} not name: the largest run "
            "counts (weigh check measures a few tasks)"
        )


def _prediction_notes(kinds: Sequence[TaskKind]) -> Iterator[str]:
    """Yield what was predicted, from which runs, and how far beyond them."""
    # one sentence per curve, not one per task or quantity
    predicted: dict[_Source, list[NeedPrediction]] = {}
    tasks: dict[_Source, int] = {}
    for kind in kinds:
        for one in kind.predictions:
            predicted.setdefault((one.by, one.sizes, one.runs), []).append(one)
        # a set: a kind whose memory and time come from one curve has its tasks counted
        # once
        for source in {(one.by, one.sizes, one.runs) for one in kind.predictions}:
            tasks[source] = tasks.get(source, 0) + kind.tasks
    for (by, sizes, runs), found in predicted.items():
        names = [w for q, w in _WORDS.items() if any(o.quantity == q for o in found)]
        what = " and ".join(names[-2:])
        what = ", ".join((*names[:-2], what))
        number = tasks[by, sizes, runs]
        whose = count_with_noun(number, "task")
        rests = f"{runs} runs ({by}: {_size_list(sizes)})"
        yield f"{what} of {whose}: predicted from {rests}{_extrapolation_text(found)}"
        if len(sizes) < FEWEST_SIZES:
            yield f"two sizes of {by} show no curvature: measure a third (weigh run)"


def _extrapolation_text(need_predictions: Sequence[NeedPrediction]) -> str:
    farthest = max(need_predictions, key=lambda one: one.ratio)
    if farthest.ratio <= 1:
        return "; no task is larger"
    text = f"; {farthest.by} {size_text(farthest.size)} is {farthest.ratio:.1f} times"
    if farthest.ratio <= TRUSTED_RATIO:
        return f"{text} the largest measured"
    return f"{text} the largest measured, too far to trust: measure a larger one"


def _size_list(task_sizes: Sequence[float]) -> str:
    if len(task_sizes) > _MOST_SIZES:
        return f"{size_text(task_sizes[0])} to {size_text(task_sizes[-1])}"
    *most, last = map(size_text, task_sizes)
    return f"{', '.join(most)} and {last}" if most else last


_STEP = (
    "srun --nodes={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 "
    "--cpus-per-task=$SLURM_CPUS_PER_TASK"
)
# torchrun reads PET_ variables for options not given; the runner adds the port
_PLACE = (
    "PET_NNODES=$SLURM_NNODES PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$MASTER_ADDR "
    'exec "$0" -P -m weigh run -q -- bash -c "$1"'
)


def line_run_on_nodes(task_line: bytes, node_count: int, python: str) -> bytes:
    """Return *task_line* so that each of *node_count* nodes runs it, measured by weigh.

    *python* is the interpreter with weigh. A line that starts its own processes (srun,
    mpirun) is returned unchanged.
    """
    text = task_line.decode("utf-8", "surrogateescape").rstrip("\n")
    if node_count == 1 or any(map(is_launcher, task_line_words(text))):
        return task_line
    # bash puts *python* into $0 and the task's line into $1, so that neither is parsed
    # again
    words = ("bash", "-c", _PLACE, python, text)
    started = f"{_STEP.format(nodes=node_count)} {shlex.join(words)}"
    return started.encode("utf-8", "surrogateescape")


def runs_task_line(planned_line: bytes, task_line: bytes, node_count: int) -> bool:
    """Return whether a plan's line is *task_line*, or starts it on each node.

    By which interpreter does not count: jobs may be resumed by another one.
    """
    text = shlex.quote(task_line.decode("utf-8", "surrogateescape"))
    end = f" {text}".encode("utf-8", "surrogateescape")
    return planned_line == task_line or (node_count > 1 and planned_line.endswith(end))
