"""``weigh plan``: tasks in; which run side by side, and what each element asks for."""

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh import catalogue, config
from weigh.errors import FormatError, UsageError
from weigh.flow import plan_directory
from weigh.flow.plan_needs import Given, Library, Needs, candidates, of_tasks
from weigh.flow.records import open_store
from weigh.model.plan import (
    Ask,
    Bin,
    Capacity,
    Card,
    Element,
    LeftOut,
    Packing,
    Plan,
)
from weigh.model.record import Record
from weigh.pack import pack
from weigh.request import (
    DEFAULT_HEADROOM,
    gpu_type,
    parse_headroom,
    round_memory,
    round_time,
)
from weigh.runner.task_source import TaskSource
from weigh.store.find import find_entry, not_found, read_file
from weigh.store.heads import Entry, Index, head_of, read_index, read_record
from weigh.units import Bytes, format_size, parse_duration, parse_size

ALL = "all"
FOLDER = "plan"
_NAMED = 3  # tasks too big that are named one by one
_DIRECTIVES = (b"#SBATCH", b"#$ -", b"#PBS", b"#BSUB")


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as written; None is left to records or defaults."""

    task_file: str
    name: str | None = None
    gpus: str | None = None
    gpu_memory: str | None = None
    memory: str | None = None
    cpus: int | None = None
    time: str | None = None
    headroom: str | None = None
    records: str = ALL
    per_gpu: int | None = None
    node_memory: str | None = None
    node_cpus: int | None = None
    node_gpus: int | None = None
    leave_out: bool = False
    replace: bool = False
    dry_run: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A plan for each GPU of interest; written where *directory* says so."""

    plans: tuple[Plan, ...]
    directory: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Target(msgspec.Struct, frozen=True):
    """A GPU to plan for, and the word the user has for it."""

    card: Card | None
    word: str | None = None
    note: str | None = None


def plan(wishes: Wishes, *, cwd: str, env: Mapping[str, str]) -> Answer:
    """Plan the tasks of a file for one GPU, or compare several.

    With one GPU, or none, the plan is written to ``plan/NAME``.

    Raises:
        UsageError: there is no task, no measure of one, a task no element holds, or a
            plan of that name.
        FormatError: a size, time, share or the task file does not parse.
        StoreError: the records cannot be read, or the plan not be written.
    """
    settings = config.load(cwd, env)
    headroom = _headroom(wishes, settings)
    _refuse_directives(wishes.task_file)
    source = TaskSource(wishes.task_file)
    try:
        if not len(source):
            raise UsageError(f"no task in {source.name}: it takes one command a line")
        needs = _needs(source, wishes, headroom, cwd=cwd, env=env)
        targets = _targets(wishes, needs, settings)
        plans = [_planned(wishes, needs, target, headroom) for target in targets]
        if len(plans) > 1:
            return Answer(tuple(plans), warnings=settings.warnings)
        made = plans[0]
        if made.left_out and not (wishes.leave_out and made.elements):
            raise UsageError(_too_big(made))
        directory = os.path.join(FOLDER, made.name)
        if not wishes.dry_run:
            place = os.path.join(cwd, directory)
            plan_directory.check_free(place, replace=wishes.replace)
            plan_directory.write(place, made, source.text)
    finally:
        source.close()
    return Answer((made,), directory, made.notes, settings.warnings)


def _headroom(wishes: Wishes, settings: config.Config) -> float:
    if wishes.headroom is not None:
        return parse_headroom(wishes.headroom)
    setting = settings.settings.get("headroom")
    if setting is None:
        return DEFAULT_HEADROOM
    try:
        return parse_headroom(str(setting.value))
    except FormatError as error:
        raise FormatError(f"{setting.origin}: {error}") from error


def _refuse_directives(path: str) -> None:
    """Refuse a job script: its lines belong together and are no tasks.

    Raises:
        UsageError: a line is a scheduler's directive.
    """
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.startswith(_DIRECTIVES):
                raise UsageError(
                    f"{path}:{number} is a directive for a scheduler: this is a job "
                    "script, and its lines are no tasks"
                )


def _given(wishes: Wishes) -> Given:
    return Given(
        gpu_memory=_size(wishes.gpu_memory),
        memory=_size(wishes.memory),
        cpus=wishes.cpus,
        time=None if wishes.time is None else parse_duration(wishes.time),
    )


def _size(text: str | None) -> Bytes | None:
    return None if text is None else parse_size(text)


def _needs(
    source: TaskSource,
    wishes: Wishes,
    headroom: float,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> Needs:
    given = _given(wishes)
    is_said = None not in (given.memory, given.cpus, given.time)
    library = Library((), _nothing)
    if wishes.records != ALL or not is_said or (wishes.gpus and not given.gpu_memory):
        library = _library(wishes.records, open_store(cwd, env).root)
    lines = (
        source.text(seq).decode("utf-8", "surrogateescape")
        for seq in range(1, len(source) + 1)
    )
    return of_tasks(lines, given, headroom, library)


def _nothing(name: str) -> Record:
    raise KeyError(name)


def _library(names: str, root: str) -> Library:
    """Give the records of these names, or all."""
    index = read_index(root)
    entries = {entry.head.id: entry for entry in index.entries}
    files: dict[str, Record] = {}
    if names == ALL:
        heads = [entry.head for entry in index.entries]
    else:
        heads = []
        for name in filter(None, (part.strip() for part in names.split(","))):
            if os.sep in name or name.endswith(".json"):
                record = read_file(name)
                files[record.id] = record
                heads.append(head_of(record))
            else:
                heads += [entry.head for entry in _called(index, name, root)]

    def read(name: str) -> Record:
        return files[name] if name in files else read_record(entries[name])

    return Library(candidates(heads), read, named=names != ALL)


def _called(index: Index, name: str, root: str) -> list[Entry]:
    """Give every record of a label, or the one of an id."""
    labelled = [entry for entry in index.entries if entry.head.label == name]
    entry = None if labelled else find_entry(index, name)
    if entry is None and not labelled:
        raise not_found(root, name, index)
    return [entry] if entry else labelled


def _targets(wishes: Wishes, needs: Needs, settings: config.Config) -> list[Target]:
    """Find the GPUs to plan for: as named, or the one that was measured on."""
    uses_gpu = any(kind.item.gpu_memory for kind in needs.kinds)
    if wishes.gpus is not None:
        words = [word.strip() for word in wishes.gpus.split(",") if word.strip()]
        if not uses_gpu:
            raise UsageError(
                "how much GPU memory does a task use? --gpu-memory 2GiB, or measure "
                f"one on a GPU: weigh run -- {needs.kinds[0].example[:40]}"
            )
        if words:
            return [_target(word, settings.gpus) for word in words]
    if not uses_gpu:
        return [Target(None)]
    measured = needs.gpu
    if measured is None or measured.memory_total is None:
        raise UsageError("which GPU? --gpu NAME, such as V100-32GB or a100_80gb")
    model = catalogue.matching(measured.name, measured.memory_total)
    if model is None:
        return [Target(Card(measured.name, measured.memory_total))]
    return [Target(Card(model.name, model.memory), gpu_type(measured.name))]


def _target(word: str, sites: Mapping[str, Bytes]) -> Target:
    """Read ``V100-32GB``, or ``p100=11.9GiB`` for a card with so much memory."""
    name, equals, size = (part.strip() for part in word.partition("="))
    if not equals:
        model, *others = catalogue.called(name, sites=sites)
        also = " or ".join(other.name for other in others)
        note = f"{name} is taken for {model.name}; write {also} if it is that"
        return Target(Card(model.name, model.memory), name, note if others else None)
    memory = parse_size(size)
    if not name or not memory:
        raise UsageError(f"not a GPU: {word!r} (write it like p100=11.9GiB)")
    return Target(Card(name, memory), name)


def _planned(wishes: Wishes, needs: Needs, target: Target, headroom: float) -> Plan:
    capacity = _capacity(wishes, target.card)
    packing = pack([needs.kinds[place].item for place in needs.places], capacity)
    elements = tuple(
        Element(
            file=f"tasks_{number}.txt",
            tasks=tuple(at + 1 for at in bin_.items),
            gpu_memory=bin_.gpu_memory,
            memory=bin_.memory,
            cpus=bin_.cpus,
            time=_time(bin_, needs),
        )
        for number, bin_ in enumerate(packing.bins)
    )
    return Plan(
        name=_name(wishes),
        task_file=wishes.task_file,
        tasks=len(needs.places),
        headroom=headroom,
        card=target.card,
        capacity=capacity,
        ask=_ask(elements, capacity, target),
        kinds=needs.kinds,
        elements=elements,
        left_out=_left_out(packing),
        fewest=packing.lower_bound,
        notes=tuple(_notes(needs, elements, target, wishes)),
    )


def _name(wishes: Wishes) -> str:
    stem = os.path.splitext(os.path.basename(wishes.task_file))[0]
    name = wishes.name or (stem if stem.strip("-.") else "tasks")
    if os.sep in name or name.strip(".") == "" or not name.isprintable():
        raise UsageError(f"not a name for a folder: {name!r} (choose another --name)")
    return name


def _capacity(wishes: Wishes, card: Card | None) -> Capacity:
    """Give each GPU its share of the node, so that elements fill a node together."""
    shares = (wishes.node_gpus or 1) if card else 1
    memory, cpus = _size(wishes.node_memory), wishes.node_cpus
    count = wishes.per_gpu
    if card is None and memory is None and cpus is None:
        count = count or 1  # nothing is known of a node: each task on its own
    return Capacity(
        gpu_memory=card.memory if card else None,
        memory=None if memory is None else memory // shares,
        cpus=None if cpus is None else cpus // shares,
        count=count,
    )


def _time(bin_: Bin, needs: Needs) -> float | None:
    """Bound how long a bin takes, were its tasks never to share their GPU.

    At any moment the slowest task either leaves the GPU alone, or waits while the
    work of one of them is done on it.
    """
    if bin_.time is None:
        return None
    kinds = [needs.kinds[needs.places[at]] for at in bin_.items]
    parts = [(kind.item.time or 0.0, kind.busy or 0.0) for kind in kinds]
    on_gpu = sum(time * busy for time, busy in parts)
    return max(bin_.time, max(time * (1 - busy) for time, busy in parts) + on_gpu)


def _ask(elements: Sequence[Element], capacity: Capacity, target: Target) -> Ask:
    memory = max((element.memory for element in elements), default=0)
    asked = round_memory(memory)
    if capacity.memory is not None:
        asked = max(memory, min(asked, capacity.memory))
    times = [element.time for element in elements]
    known = [time for time in times if time is not None]
    return Ask(
        cpus=max((element.cpus for element in elements), default=1),
        memory=asked or None,
        time_limit=round_time(max(known))
        if known and len(known) == len(times)
        else None,
        gpus=1 if target.card else 0,
        gpu=target.word,
    )


def _left_out(packing: Packing) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(short.item + 1, short.resource, short.need, short.capacity)
        for short in packing.too_big
    )


def _too_big(plan: Plan) -> str:
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


def _notes(
    needs: Needs, elements: Sequence[Element], target: Target, wishes: Wishes
) -> Iterator[str]:
    kinds = needs.kinds
    if target.note:
        yield target.note
    yield from dict.fromkeys(note for kind in kinds for note in kind.notes)
    if not any(kind.item.memory for kind in kinds):
        yield "memory is not known: --memory, or measure a task with weigh run"
    if any(kind.item.time is None for kind in kinds):
        yield "the time is not known: --time, or measure a task with weigh run"
    together = any(len(element.tasks) > 1 for element in elements)
    if together and target.card and not wishes.time:
        unknown = any(kind.busy is None for kind in kinds)
        yield (
            "how far tasks on one GPU slow each other down was not measured: the time "
            + ("is that of tasks alone" if unknown else "is if they take turns on it")
        )
    elif together and target.card:
        yield "the time is taken as said, whatever the neighbours on the GPU do"
    unlike = sum(kind.tasks for kind in kinds if not kind.records)
    if 0 < unlike < len(needs.places):
        yield f"{unlike:,} tasks are like no record: only what was said counts for them"
