"""Resources held and not used, by kind of run, and the changes that save most."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.render.report_waste import Change, Group, Hours, Waste, added
from weigh.review.advice import (
    Subject,
    cpu_flag,
    ended_well,
    fewer_cpus,
    less_memory,
    memory_flag,
)
from weigh.review.elements import Element, measures
from weigh.review.failures import FAILED, way_of, words_of
from weigh.review.notes import gpu_flag, used_gpus
from weigh.review.runs import Run
from weigh.units import GIB, HOUR, format_size

if TYPE_CHECKING:
    from weigh.review.requested import Requested

_AGAIN = 2  # failures of one kind that count as "always"


class Kind(msgspec.Struct, frozen=True):
    """Runs of one kind: their elements, and all attempts."""

    name: str
    elements: tuple[Element, ...]
    runs: tuple[Run, ...]


def rank(kinds: Sequence[Kind], *, since: str) -> Waste:
    """Return the unused resources of *kinds*, the most first."""
    judged = [kind for kind in kinds if any(_is_judged(one) for one in kind.elements)]
    groups = sorted(map(_group, judged), key=lambda g: g.wasted.weight, reverse=True)
    changes = sorted(
        (change for kind in judged for change in _changes(kind)),
        key=lambda change: change.saves.weight,
        reverse=True,
    )
    return Waste(
        since=since,
        groups=tuple(groups),
        changes=tuple(changes),
        runs=sum(len(kind.runs) for kind in kinds),
        unknown=sum(
            len(one.runs)
            for kind in kinds
            for one in kind.elements
            if not _is_judged(one)
        ),
    )


def _is_judged(element: Element) -> bool:
    requested = element.requested
    known = requested.memory is not None or requested.cpus is not None or requested.gpus
    return bool(known) and element.wall_time is not None


def _group(kind: Kind) -> Group:
    judged = [one for one in kind.elements if _is_judged(one)]
    failed = [run for run in kind.runs if run.row.state in FAILED]
    ways = {way_of(run.row) for run in failed}
    always = len(failed) == len(kind.runs) >= _AGAIN and len(ways) == 1
    return Group(
        name=kind.name,
        runs=len(kind.runs),
        failed=len(failed),
        held=added([_held(one) for one in judged]),
        wasted=added([_wasted(one) for one in judged]),
        failing=f"the same way: {words_of(failed[0].row)}" if always else None,
        unknown=len(kind.elements) - len(judged),
    )


def _held(element: Element) -> Hours:
    hours, requested = (element.wall_time or 0.0) / HOUR, element.requested
    return Hours(
        gpu=requested.gpus * hours,
        cpu=(requested.cpus or 0) * hours,
        memory=(requested.memory or 0) / GIB * hours,
    )


def _wasted(element: Element) -> Hours:
    """Return what an element held and did not use; all of it if every task failed.

    Resources that were not measured count as used.
    """
    held, requested = _held(element), element.requested
    if element.runs and all(run.row.state in FAILED for run in element.runs):
        return held
    cpus = _unused(requested.cpus, element.cpus)
    memory = _unused(requested.memory, element.memory)
    busy = 1.0 if element.utilization is None else element.utilization
    return Hours(
        gpu=held.gpu * (1 - busy), cpu=held.cpu * cpus, memory=held.memory * memory
    )


def _unused(requested: float | None, used: float | None) -> float:
    if not requested or used is None:
        return 0.0
    return max(0.0, 1 - used / requested)


def _changes(kind: Kind) -> Iterator[Change]:
    """Yield changes of the request, and what they would have saved."""
    by_asked: dict[Requested, list[Element]] = {}
    for one in kind.elements:
        if _is_judged(one):
            by_asked.setdefault(one.requested, []).append(one)
    for requested, every in by_asked.items():
        elements = [one for one in every if ended_well(one)]
        hours = sum(one.wall_time or 0.0 for one in elements) / HOUR
        subject = Subject(
            elements=elements,
            requested=requested,
            measures={one.name: one for one in measures(elements, requested)},
        )
        if not any(map(_was_killed, every)):
            yield from _of_memory(kind.name, subject, hours)
        yield from _of_cpus(kind.name, subject, hours)
        yield from _of_gpus(kind.name, subject, hours)


def _was_killed(element: Element) -> bool:
    """Return whether a task of it ran out of memory."""
    return any(run.row.state == "OUT_OF_MEMORY" for run in element.runs)


def _of_memory(name: str, subject: Subject, hours: float) -> Iterator[Change]:
    requested, enough = subject.requested.memory, less_memory(subject)
    if requested and enough is not None:
        yield Change(
            group=name,
            words=f"request {format_size(enough)} of memory{subject.basis()}",
            flag=memory_flag(subject, enough),
            saves=Hours(memory=(requested - enough) / GIB * hours),
        )


def _of_cpus(name: str, subject: Subject, hours: float) -> Iterator[Change]:
    requested, enough = subject.requested.cpus, fewer_cpus(subject)
    if requested and enough is not None:
        noun = "CPU" if enough == 1 else "CPUs"
        yield Change(
            group=name,
            words=f"request {enough} {noun}{subject.basis()}",
            flag=cpu_flag(subject, enough),
            saves=Hours(cpu=(requested - enough) * hours),
        )


def _of_gpus(name: str, subject: Subject, hours: float) -> Iterator[Change]:
    requested, used = subject.requested.gpus, used_gpus(subject)
    if used is not None and used < requested:
        noun = "GPU" if used == 1 else "GPUs"
        yield Change(
            group=name,
            words=f"request {used or 'no'} {noun}{subject.basis()}",
            flag=gpu_flag(subject, used),
            saves=Hours(gpu=(requested - used) * hours),
        )
