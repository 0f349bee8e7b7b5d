"""What to say of the GPUs of a report: unused, idle, slowed down, at fault."""

from collections.abc import Collection, Iterator, Sequence

from weigh.errors import UsageError
from weigh.flow.report.advice import (
    Subject,
    enough_memory,
    lacked_memory,
    resource_notes,
)
from weigh.flow.report.failures import failure_notes, node_notes
from weigh.measure.gpu.account import was_used
from weigh.model.gpu import GpuUsage
from weigh.model.record import Request
from weigh.model.report import Note, Row
from weigh.render.words import xid_words
from weigh.request import DEFAULT_HEADROOM, from_usages, why_no_request
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.schedulers.slurm import text as slurm_text
from weigh.units import format_duration

_IDLE, _VERY_IDLE = 0.25, 0.15  # busy less than that: worth a line; a finding
_ROOM = 0.5  # of a card left by one task: a second one fits
_NGPUS = "-l ngpus", "="
_FULL = 0.95  # of the card
_AT_WORK = 0.8  # of a CPU


def gpu_notes(subject: Subject) -> Iterator[Note]:
    """Say of GPUs what there is to say."""
    cards = [
        gpu
        for one in subject.elements
        for run in one.runs
        if run.record and run.record.usage
        for gpu in run.record.usage.gpus
    ]
    if not subject.asked.gpus and not cards:
        return
    if not cards:
        yield _unseen(subject)
        return
    used = used_gpus(subject) or 0
    if not used:
        if subject.asked.gpus and subject.completed:
            yield _never_used(subject)
    else:
        yield from _too_many(subject, used)
        yield from _idle(subject)
        yield from _full(subject)
    yield from _troubles(cards)


def used_gpus(subject: Subject) -> int | None:
    """Give the most GPUs that any run held memory on; None where none were seen."""
    usages = [
        run.record.usage.gpus
        for one in subject.elements
        for run in one.runs
        if run.record and run.record.usage and run.record.usage.gpus
    ]
    if not usages:
        return None
    return max(sum(was_used(gpu) is not False for gpu in usage) for usage in usages)


def gpu_flag(subject: Subject, gpus: int) -> str:
    """Write the flag that asks for so many GPUs."""
    name, sign = ("--gres=gpu", ":") if subject.scheduler == slurm_text.NAME else _NGPUS
    return f"{name}{sign}{gpus}" if gpus else f"no {name}"


def _unseen(subject: Subject) -> Note:
    asked = subject.asked.gpus
    what = "1 GPU was" if asked == 1 else f"{asked} GPUs were"
    return Note(
        about="GPU",
        words=(
            f"{what} asked for and weigh saw none in any run: is the driver there "
            "(weigh doctor)?"
        ),
        weight=15,
    )


def _never_used(subject: Subject) -> Note:
    asked = subject.asked.gpus
    whose = "the GPU was" if asked <= 1 else f"none of the {asked} GPUs was"
    cpus = [one.cpus for one in subject.elements if one.cpus is not None]
    on_cpu = bool(cpus) and max(cpus) >= _AT_WORK
    verb = "never used" if asked <= 1 else "used"
    if on_cpu:
        words = (
            f"{whose} {verb}, the CPUs did the work: is torch built for CUDA, is the "
            "model moved to the GPU? If it is not meant to be, ask for none"
        )
    else:
        words = f"{whose} {verb}: ask for none, and it starts sooner"
    return Note(
        about="GPU",
        words=words + subject.basis(),
        flag=gpu_flag(subject, 0),
        weight=88,
        is_finding=bool(asked),
    )


def _too_many(subject: Subject, used: int) -> Iterator[Note]:
    asked = subject.asked.gpus
    if used < asked and subject.completed:
        yield Note(
            about="GPU",
            words=f"{used} of {asked} GPUs used, ask for {used}{subject.basis()}",
            flag=gpu_flag(subject, used),
            weight=70,
            is_finding=True,
        )


def _idle(subject: Subject) -> Iterator[Note]:
    busy = subject.measures.get("gpu_utilization")
    if busy is None or busy.median is None or busy.median >= _IDLE:
        return
    held = subject.measures.get("gpu_memory")
    share = held.most / held.asked if held and held.asked and held.most else None
    words = f"busy {100 * busy.median:.0f} % of the time"
    flag = None
    if share is not None and share <= _ROOM:
        words += (
            f" and {100 * share:.0f} % full: several tasks side by side on one card "
            "do more"
        )
        flag = "weigh plan TASKS --gpu"
    else:
        words += ": data may come too slowly; try more loader workers, a local disk"
    yield Note(
        about="GPU",
        words=words + subject.basis(),
        flag=flag,
        weight=65 if busy.median < _VERY_IDLE else 45,
        is_finding=busy.median < _VERY_IDLE,
    )


def _full(subject: Subject) -> Iterator[Note]:
    held = subject.measures.get("gpu_memory")
    if held is None or held.efficiency is None or held.efficiency < _FULL:
        return
    yield Note(
        about="GPU mem",
        words=(
            f"{100 * held.efficiency:.0f} % of the card was held: a larger batch, or a "
            "longer sample, does not fit (where a framework reserves memory, less is "
            f"needed){subject.basis()}"
        ),
        weight=35,
    )


def _troubles(cards: Sequence[GpuUsage]) -> Iterator[Note]:
    """Say what the cards or their driver went through."""
    xids = [xid for card in cards for xid in card.xids]
    if xids:
        yield Note(about="GPU", words=xid_words(xids), weight=92, is_finding=True)
    errors = sum(card.ecc_errors or 0 for card in cards)
    if errors:
        yield Note(
            about="GPU",
            words=f"{errors} memory errors that were not corrected: tell the admins",
            weight=91,
            is_finding=True,
        )
    for reason in ("thermal", "power"):
        yield from _throttled(cards, reason)


def _throttled(cards: Sequence[GpuUsage], reason: str) -> Iterator[Note]:
    slowed = [(card.throttle or {}).get(reason, 0.0) for card in cards]
    worst = max(slowed, default=0.0)
    if worst < 1:
        return
    what = "its heat" if reason == "thermal" else "its power limit"
    cure = (
        ": tell the admins" if reason == "thermal" else ", which is usual at full load"
    )
    yield Note(
        about="GPU",
        words=f"slowed down by {what} for up to {format_duration(worst)}{cure}",
        weight=48 if reason == "thermal" else 3,
    )


def notes(subject: Subject, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Say what to change and what went wrong, the strongest first."""
    said = list(_all(subject, rows))
    said += _fine(subject, {note.about for note in said})
    if any(note.words.endswith(subject.basis()) for note in said):
        said += _few(subject)
    return tuple(sorted(said, key=lambda note: note.weight, reverse=True))


def _all(subject: Subject, rows: Sequence[Row]) -> Iterator[Note]:
    yield from failure_notes(rows)
    yield from resource_notes(subject)
    yield from gpu_notes(subject)
    yield from _growing(subject)
    yield from node_notes(rows, subject.scheduler)
    yield from _unasked(subject)


def _growing(subject: Subject) -> Iterator[Note]:
    rising = sum(
        bool(run.row.growing)
        for one in subject.elements
        for run in one.runs
        if run.is_last
    )
    if rising:
        what = "it was" if rising == 1 else f"in {rising:,} runs it was"
        yield Note(
            about="memory",
            words=f"{what} still rising at the end: a longer job needs more",
            flag="weigh request --steps TOTAL --done N",
            weight=55,
            is_finding=True,
        )


def _fine(subject: Subject, said: Collection[str]) -> Iterator[Note]:
    """Say what needs no change, of what was asked for and measured."""
    about = {"memory": "memory", "time": "time", "cpus": "CPUs"}
    good = [
        word
        for name, word in about.items()
        if word not in said
        and (one := subject.measures.get(name)) is not None
        and one.efficiency is not None
    ]
    if good and subject.completed:
        yield Note(about="fine", words=", ".join(good) + subject.basis())


def _few(subject: Subject) -> Iterator[Note]:
    """Say what advice from few runs is worth."""
    few = subject.few()
    if few.startswith("no"):
        words = f"{few}: what was used is a lower bound of what is needed"
        yield Note(about="basis", words=words, weight=-1)
    elif few:
        words = f"{few}: three would say how far the next one may lie off"
        yield Note(about="basis", words=words, weight=-1)


def _unasked(subject: Subject) -> Iterator[Note]:
    """Say what to ask for where nobody asked for anything."""
    if not subject.asked.is_nothing:
        return
    every = (run.record for one in subject.elements for run in one.runs if run.record)
    apart = {record.id: record for record in every}
    reasons = {why_no_request(record) for record in apart.values()}
    records = [one for one in apart.values() if why_no_request(one) is None]
    try:
        request = from_usages(records)
    except UsageError:
        for why in sorted(reason for reason in reasons if reason):
            yield Note(about="ask for", words=f"nothing: {why}", weight=1)
        return
    dialect = (
        gridengine_text if subject.scheduler == gridengine_text.NAME else slurm_text
    )
    yield Note(
        about="ask for",
        words=f"{_rule(subject, request)}{subject.basis()}",
        flag=" ".join(dialect.directives(request)),
        weight=1,
    )


def _rule(subject: Subject, request: Request) -> str:
    """Return how the request follows from what was used."""
    usual = f"what was used + {100 * DEFAULT_HEADROOM:.0f} %"
    enough = enough_memory(subject)
    if enough is None or request.memory is None or request.memory <= enough:
        return usual
    if lacked_memory(subject):
        return f"twice the memory that ran out, else {usual}"
    return f"the memory granted, as a run failed; else {usual}"
