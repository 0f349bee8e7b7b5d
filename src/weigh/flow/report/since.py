"""``weigh report --since``: what runs of the last weeks held and did not use."""

import time
from collections.abc import Iterator, Mapping

import msgspec

from weigh.estimate.history_groups import template
from weigh.flow.follow.view import look
from weigh.flow.records.records import Store, open_store
from weigh.flow.report import joined_records as report_records
from weigh.flow.report.advice import (
    Subject,
    cpu_flag,
    ended_well,
    fewer_cpus,
    less_memory,
    memory_flag,
)
from weigh.flow.report.elements import Element, measures, single
from weigh.flow.report.failures import FAILED, way_of, words_of
from weigh.flow.report.notes import gpu_flag, used_gpus
from weigh.flow.report.report import of_job, plan_of
from weigh.flow.report.requested import Requested, requested_by_records
from weigh.flow.report.runs import Run, run_of, seconds_of
from weigh.render.report_waste import Change, Group, Hours, Waste, added
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.store.index import read_index
from weigh.units import GIB, HOUR, Seconds, format_size, parse_duration

_AGAIN = 2  # failures of one kind that count as "always"


class _Kind(msgspec.Struct, frozen=True):
    """Runs of one kind: their elements, and all attempts."""

    name: str
    elements: tuple[Element, ...]
    runs: tuple[Run, ...]


def since(text: str, *, cwd: str, env: Mapping[str, str]) -> Waste:
    """Rank the resources held and not used in the last *text*, such as ``30d``.

    Raises:
        FormatError: *text* is not a time.
        StoreError: the store cannot be read.
    """
    store = open_store(cwd, env)
    finalise_interrupted(store.root, store.machine)
    begin = _begin(store, text)
    kinds = list(_kinds(store, begin, env))
    judged = [kind for kind in kinds if any(_is_judged(one) for one in kind.elements)]
    groups = sorted(map(_group, judged), key=lambda g: g.wasted.weight, reverse=True)
    changes = sorted(
        (change for kind in judged for change in _changes(kind)),
        key=lambda change: change.saves.weight,
        reverse=True,
    )
    day = time.strftime("%Y-%m-%d", time.localtime(begin))
    return Waste(
        since=day,
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


def runs_since(text: str, *, cwd: str, env: Mapping[str, str]) -> list[Run]:
    """Return all attempts of the last *text*, in jobs and outside of them."""
    store = open_store(cwd, env)
    begin = _begin(store, text)
    return [run for kind in _kinds(store, begin, env) for run in kind.runs]


def _begin(store: Store, text: str) -> Seconds:
    """Return the time *text* ago, or the epoch if that is earlier."""
    return max(0.0, store.now - parse_duration(text))


def _kinds(store: Store, begin: Seconds, env: Mapping[str, str]) -> Iterator[_Kind]:
    known = jobs_file.read_jobs(store.root)
    jobs = [job for job in known if job.submitted >= begin]
    by_name: dict[str, list[tuple[tuple[Element, ...], tuple[Run, ...]]]] = {}
    counted: set[str | None] = set()
    for view in look(jobs, known, root=store.root, env=env):
        runs, elements = of_job(view, store, plan_of(view.job))
        counted |= {run.row.record for run in runs}
        by_name.setdefault(view.job.name, []).append((tuple(elements), tuple(runs)))
    for name, parts in by_name.items():
        yield _Kind(
            name,
            tuple(element for elements, _ in parts for element in elements),
            tuple(run for _, runs in parts for run in runs if _ran(run)),
        )
    yield from _outside(store, begin, counted)


def _outside(store: Store, begin: Seconds, counted: set[str | None]) -> Iterator[_Kind]:
    """Group the records outside submitted jobs, by label or command."""
    ids = [
        entry.head.id
        for entry in read_index(store.root).entries
        if entry.head.id not in counted
        and (seconds_of(entry.head.started) or 0.0) >= begin
    ]
    groups: dict[str, list[tuple[Run, Element]]] = {}
    for record in report_records.by_ids(store.root, ids).values():
        words = template(record.command, record.parameters)
        run = run_of(record)
        pair = run, single(run, requested_by_records([record]))
        groups.setdefault(record.label or " ".join(words), []).append(pair)
    for name, pairs in groups.items():
        runs, elements = zip(*pairs, strict=True)
        yield _Kind(name, elements, runs)


def _ran(run: Run) -> bool:
    return run.row.started is not None


def _is_judged(element: Element) -> bool:
    asked = element.asked
    known = asked.memory is not None or asked.cpus is not None or asked.gpus
    return bool(known) and element.wall_time is not None


def _group(kind: _Kind) -> Group:
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
    hours, asked = (element.wall_time or 0.0) / HOUR, element.asked
    return Hours(
        gpu=asked.gpus * hours,
        cpu=(asked.cpus or 0) * hours,
        memory=(asked.memory or 0) / GIB * hours,
    )


def _wasted(element: Element) -> Hours:
    """Return what an element held and did not use; all of it if every task failed.

    Resources that were not measured count as used.
    """
    held, asked = _held(element), element.asked
    if element.runs and all(run.row.state in FAILED for run in element.runs):
        return held
    cpus = _unused(asked.cpus, element.cpus)
    memory = _unused(asked.memory, element.memory)
    busy = 1.0 if element.utilization is None else element.utilization
    return Hours(
        gpu=held.gpu * (1 - busy), cpu=held.cpu * cpus, memory=held.memory * memory
    )


def _unused(asked: float | None, used: float | None) -> float:
    if not asked or used is None:
        return 0.0
    return max(0.0, 1 - used / asked)


def _changes(kind: _Kind) -> Iterator[Change]:
    """Yield changes of the request, and what they would have saved."""
    by_asked: dict[Requested, list[Element]] = {}
    for one in kind.elements:
        if _is_judged(one):
            by_asked.setdefault(one.asked, []).append(one)
    for asked, every in by_asked.items():
        elements = [one for one in every if ended_well(one)]
        hours = sum(one.wall_time or 0.0 for one in elements) / HOUR
        subject = Subject(
            elements=elements,
            asked=asked,
            measures={one.name: one for one in measures(elements, asked)},
        )
        if not any(map(_was_killed, every)):
            yield from _of_memory(kind.name, subject, hours)
        yield from _of_cpus(kind.name, subject, hours)
        yield from _of_gpus(kind.name, subject, hours)


def _was_killed(element: Element) -> bool:
    """Return whether a task of it ran out of memory."""
    return any(run.row.state == "OUT_OF_MEMORY" for run in element.runs)


def _of_memory(name: str, subject: Subject, hours: float) -> Iterator[Change]:
    asked, enough = subject.asked.memory, less_memory(subject)
    if asked and enough is not None:
        yield Change(
            group=name,
            words=f"request {format_size(enough)} of memory{subject.basis()}",
            flag=memory_flag(subject, enough),
            saves=Hours(memory=(asked - enough) / GIB * hours),
        )


def _of_cpus(name: str, subject: Subject, hours: float) -> Iterator[Change]:
    asked, enough = subject.asked.cpus, fewer_cpus(subject)
    if asked and enough is not None:
        noun = "CPU" if enough == 1 else "CPUs"
        yield Change(
            group=name,
            words=f"request {enough} {noun}{subject.basis()}",
            flag=cpu_flag(subject, enough),
            saves=Hours(cpu=(asked - enough) * hours),
        )


def _of_gpus(name: str, subject: Subject, hours: float) -> Iterator[Change]:
    asked, used = subject.asked.gpus, used_gpus(subject)
    if used is not None and used < asked:
        noun = "GPU" if used == 1 else "GPUs"
        yield Change(
            group=name,
            words=f"request {used or 'no'} {noun}{subject.basis()}",
            flag=gpu_flag(subject, used),
            saves=Hours(gpu=(asked - used) * hours),
        )
