"""``weigh plan``: tasks in; which run side by side, and what each element asks for."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh import config
from weigh.errors import UsageError
from weigh.flow import plan_directory
from weigh.flow.plan_needs import Given, Library, Needs, candidates, of_tasks
from weigh.flow.plan_notes import plan_notes, too_big
from weigh.flow.plan_probe import Place, probe_more, probe_one
from weigh.flow.plan_targets import Target, targets
from weigh.flow.records import open_store
from weigh.flow.request import configured_headroom
from weigh.model.plan import (
    Ask,
    Bin,
    Capacity,
    Card,
    Element,
    LeftOut,
    Packing,
    Plan,
    Together,
)
from weigh.model.record import Record
from weigh.pack import most_work, pack, sharing_notes
from weigh.probe.host import read_host
from weigh.request import (
    parse_headroom,
    round_memory,
    round_time,
)
from weigh.runner.task_source import TaskSource
from weigh.store.find import find_entry, labelled_entries, not_found, read_file
from weigh.store.heads import Entry, Index, head_of, read_index, read_record
from weigh.units import (
    Bytes,
    format_duration,
    parse_duration,
    parse_size,
)

ALL = "all"
FOLDER = "plan"
_NOISE = 1.05  # times as long: runs differ by that much on their own
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
    probe: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A plan for each GPU of interest; written where *directory* says so."""

    plans: tuple[Plan, ...]
    directory: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def plan(
    wishes: Wishes,
    *,
    cwd: str,
    env: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Plan the tasks of a file for one GPU, or compare several.

    With one GPU, or none, the plan is written to ``plan/NAME``. *say* is told how a
    probe goes on.

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
        place = _place(wishes, cwd, env)
        alone = None
        if place is not None:
            wishes = _of_this_node(wishes, place)
            alone = probe_one(_line(source, 1), place)
            say(f"1 alone: {format_duration(alone.wall_time)}")
        needs = _needs(source, wishes, headroom, cwd=cwd, env=env)
        wanted = targets(wishes.gpus, needs, settings.gpus)
        plans = [_planned(wishes, needs, target, headroom) for target in wanted]
        if len(plans) > 1:
            return Answer(tuple(plans), warnings=settings.warnings)
        made = plans[0]
        if place is not None and alone is not None and made.elements:
            found = (alone, *_probed(source, made, alone, place, say))
            made = _with_probe(wishes, needs, wanted[0], headroom, found)
        if made.left_out and not (wishes.leave_out and made.elements):
            raise UsageError(too_big(made))
        directory = os.path.join(FOLDER, made.name)
        if not wishes.dry_run:
            folder = os.path.join(cwd, directory)
            plan_directory.check_free(folder, replace=wishes.replace)
            plan_directory.write(folder, made, source.text)
    finally:
        source.close()
    return Answer((made,), directory, made.notes, settings.warnings)


def _headroom(wishes: Wishes, settings: config.Config) -> float:
    if wishes.headroom is not None:
        return parse_headroom(wishes.headroom)
    return configured_headroom(settings)


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
    labelled = labelled_entries(index, name)
    entry = None if labelled else find_entry(index, name)
    if entry is None and not labelled:
        raise not_found(root, name, index)
    return [entry] if entry else labelled


def _place(wishes: Wishes, cwd: str, env: Mapping[str, str]) -> Place | None:
    """Say where a probe runs; None where none is asked for."""
    if not wishes.probe:
        return None
    if wishes.gpus and "," in wishes.gpus:
        raise UsageError("--probe measures on the GPU that is here: name one --gpu")
    named = (env.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    uses_gpu = wishes.gpus is not None or wishes.gpu_memory is not None
    return Place(cwd, env, read_host().cpus or 1, named if uses_gpu else None)


def _of_this_node(wishes: Wishes, place: Place) -> Wishes:
    """Take this machine for the node, where it is not said what a node has."""
    memory = read_host().memory
    return msgspec.structs.replace(
        wishes,
        node_cpus=wishes.node_cpus or place.cpus,
        node_memory=wishes.node_memory or (None if memory is None else str(memory)),
    )


def _line(source: TaskSource, task: int) -> str:
    return source.text(task).decode("utf-8", "surrogateescape")


def _probed(
    source: TaskSource,
    made: Plan,
    alone: Together,
    place: Place,
    say: Callable[[str], None],
) -> Iterator[Together]:
    """Run the tasks of the fullest element, more and more of them together."""
    fullest = max(made.elements, key=lambda element: len(element.tasks))
    lines = [_line(source, task) for task in fullest.tasks]
    yield from probe_more(lines, alone, place, most=len(lines), say=say)


def _with_probe(
    wishes: Wishes,
    needs: Needs,
    target: Target,
    headroom: float,
    found: tuple[Together, ...],
) -> Plan:
    """Plan again with the number that did the most work, and the time it takes."""
    best = most_work(found)
    again = msgspec.structs.replace(wishes, per_gpu=best.count)
    made = _planned(again, needs, target, headroom, slow_down=best.slow_down)
    notes = (*made.notes, *sharing_notes(found))
    return msgspec.structs.replace(made, probe=found, notes=notes)


def _planned(
    wishes: Wishes,
    needs: Needs,
    target: Target,
    headroom: float,
    *,
    slow_down: float | None = None,
) -> Plan:
    capacity = _capacity(wishes, target.card)
    packing = pack([needs.kinds[place].item for place in needs.places], capacity)
    elements = tuple(
        Element(
            file=f"tasks_{number}.txt",
            tasks=tuple(at + 1 for at in bin_.items),
            gpu_memory=bin_.gpu_memory,
            memory=bin_.memory,
            cpus=bin_.cpus,
            time=_time(bin_, needs, slow_down),
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
        notes=tuple(
            plan_notes(
                needs,
                elements,
                target,
                time_is_said=wishes.time is not None,
                slow_down=slow_down,
            )
        ),
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


def _time(bin_: Bin, needs: Needs, slow_down: float | None) -> float | None:
    """Bound how long a bin takes: as measured together, or without any sharing.

    At any moment the slowest task either leaves the GPU alone, or waits while the
    work of one of them is done on it.
    """
    if bin_.time is None:
        return None
    if slow_down is not None:
        return bin_.time * (slow_down if slow_down > _NOISE else 1.0)
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
