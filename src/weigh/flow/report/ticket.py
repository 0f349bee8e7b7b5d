"""``weigh report --ticket``: one failure with all data for the support staff."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from weigh._version import __version__
from weigh.flow.follow.tasks import tail_of
from weigh.flow.records.records import open_store
from weigh.flow.report.report import Material, composed, gather
from weigh.model.record import Record
from weigh.model.report import Accounted, Note, Row
from weigh.render.report_ticket import Letter, Ticket
from weigh.render.words import STATE_WORDS
from weigh.request import DEFAULT_HEADROOM, LEAST_MEMORY, round_memory
from weigh.review.failures import FAILED, way_of
from weigh.review.requested import Requested
from weigh.review.runs import Run
from weigh.schedulers import find_kind
from weigh.schedulers.dialect import Traits
from weigh.store.find import LAST
from weigh.units import Seconds, format_duration, format_limit, format_size

_LINES = 20
_LITTLE = 0.5  # of the memory requested


def ticket(name: str = LAST, *, cwd: str, env: Mapping[str, str]) -> Ticket | Letter:
    """Return the most common failure of a job; without failures its first task.

    Of a job that weigh did not submit, return a message to its user.

    Raises:
        UsageError: nothing was measured or submitted yet.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    store = open_store(cwd, env)
    found = gather(name, store, cwd=cwd, env=env)
    if any(view.job.own and view.job.own.foreign for view in found.views):
        return _letter(found, composed(found, store).notes)
    last = [run for run in found.runs if run.is_last]
    failed = [run for run in last if run.row.state in FAILED]
    alike = _most_alike(failed) if failed else last[:1]
    return _ticket(found, alike)


def _letter(found: Material, notes: Sequence[Note]) -> Letter:
    """Return a message on a job, from what accounting shows of it."""
    job = found.views[-1].job
    figures = found.accounted[0] if found.accounted else Accounted(element=0)
    row = found.runs[0].row if found.runs else Row()
    bad = [one for one in found.accounted if one.state in FAILED]
    figures = bad[0] if bad else figures
    cpus = None
    if figures.cpu_time is not None and figures.wall_time:
        cpus = figures.cpu_time / figures.wall_time
    size = figures.max_rss
    least = "at least " if figures.state == "OUT_OF_MEMORY" else ""
    used = [
        "" if not size else f"{least}{format_size(size)} of memory",
        "" if cpus is None else f"{cpus:.2f} of {figures.cpus or 1} CPUs",
        "" if figures.wall_time is None else f"{format_duration(figures.wall_time)}",
    ]
    asked = msgspec.structs.replace(
        found.requested,
        memory=found.requested.memory or figures.memory_asked,
        cpus=found.requested.cpus or figures.cpus,
        time_limit=found.requested.time_limit or figures.time_limit,
    )
    others = f" (as {len(bad) - 1} more of its elements)" if len(bad) > 1 else ""
    ordered = sorted(notes, key=lambda note: -note.weight)
    return Letter(
        job=job.id,
        name=job.name,
        ending=f"{STATE_WORDS[figures.state]}{others}",
        when=_when(row.started, None),
        node=figures.node,
        requested=_request_words(asked),
        used=", ".join(word for word in used if word),
        advice=tuple((one.words, one.flag) for one in ordered if one.flag)
        or tuple(_advice(figures, asked, found.scheduler)),
    )


def _advice(
    figures: Accounted, asked: Requested, scheduler: str | None
) -> Iterator[tuple[str, str]]:
    """Yield what accounting alone suggests: twice what was too little, less memory."""
    kind = find_kind(scheduler or "")
    if kind is None:
        return
    text, memory, size = kind.text, asked.memory, figures.max_rss
    if figures.state == "TIMEOUT" and asked.time_limit:
        longer = text.format_time(2 * asked.time_limit)
        yield (
            "it reached its time limit: request twice that",
            text.OPTIONS.time.format(longer),
        )
    if kind.traits.address_space is not None or not memory:
        return
    if figures.state == "OUT_OF_MEMORY":
        more = text.format_memory(round_memory(2 * memory))
        flag = text.OPTIONS.memory.format(more)
        yield f"{format_size(memory)} was too little: request twice that", flag
    elif figures.state == "COMPLETED" and size and size < _LITTLE * memory:
        enough = max(LEAST_MEMORY, round_memory(size * (1 + 2 * DEFAULT_HEADROOM)))
        flag = text.OPTIONS.memory.format(text.format_memory(enough))
        yield "it used a small part of its memory: others could use the rest", flag


def _most_alike(failed: Sequence[Run]) -> list[Run]:
    ways: dict[str, list[Run]] = {}
    for run in failed:
        ways.setdefault(way_of(run.row), []).append(run)
    return max(ways.values(), key=len)


def _ticket(found: Material, alike: Sequence[Run]) -> Ticket:
    run = alike[0]
    row, record = run.row, run.record
    attempts = _attempts(found, run)
    is_failed = row.state in FAILED
    nodes = dict.fromkeys(other.row.node for other in alike if other.row.node)
    return Ticket(
        job=_name(found, row),
        task="" if row.task is None or found.unit != "task" else f"task {row.task}",
        unit=found.unit,
        scheduler=found.scheduler,
        node=row.node,
        state=row.state,
        is_failure=is_failed,
        ending=_ending(row),
        when=_when(row.started, row.wall_time),
        requested=_request_words(_requested_by(run, found)),
        used=_used(row),
        command=row.command,
        folder=record.cwd if record else None,
        output=_short(row.output),
        attempts=max(1, len(attempts)),
        alike=sum(_same(one.row, row) for one in attempts),
        succeeded=row.state == "COMPLETED" and len(attempts) > 1,
        others=len(alike) - 1 if is_failed else 0,
        nodes=tuple(nodes),
        versions=_versions(record),
        tail=_tail(row) if is_failed else (),
    )


def _attempts(found: Material, run: Run) -> list[Run]:
    if run.row.task is None:
        return [run]
    place = _place(run, found)
    return [
        one
        for one in found.runs
        if one is run or (one.row.started is not None and _place(one, found) == place)
    ]


def _place(run: Run, found: Material) -> object:
    """Return the identity of a task: its number in the plan, also in resumed jobs."""
    row = run.row
    return row.task if found.views else (row.job, row.element, row.task)


def _requested_by(run: Run, found: Material) -> Requested:
    """Return the request of the element of *run*."""
    for element in found.elements:
        if any(run is one for one in element.runs):
            return element.requested
    return found.requested


def _same(one: Row, other: Row) -> bool:
    return (one.state, one.exit_code, one.signal) == (
        other.state,
        other.exit_code,
        other.signal,
    )


def _name(found: Material, row: Row) -> str:
    """Return the id of the job or array element in the scheduler's syntax."""
    if row.job is None or found.scheduler is None:
        return row.record or found.title
    sizes = {view.job.id: view.job.elements for view in found.views}
    if row.element is None or sizes.get(row.job) == 1:
        return row.job
    kind = find_kind(found.scheduler)
    traits = Traits() if kind is None else kind.traits
    if found.unit != "task" and row.task is not None:
        return traits.element_name.format(row.job, row.task)
    return traits.element_name.format(row.job, row.element + traits.first_element)


def _ending(row: Row) -> str:
    words: list[str] = [row.state]
    if row.signal:
        words.append(f"signal {row.signal}")
    elif row.exit_code is not None:
        words.append(f"exit code {row.exit_code}")
    if row.reason and row.reason not in words[-1]:
        words.append(row.reason)
    return ", ".join(dict.fromkeys(words))


def _when(started: Seconds | None, wall_time: Seconds | None) -> str:
    if started is None:
        return ""
    begun = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return begun + ("" if wall_time is None else f", for {format_duration(wall_time)}")


def _request_words(requested: Requested) -> str:
    words = [
        "" if requested.memory is None else format_size(requested.memory),
        "" if requested.cpus is None else f"CPUs {requested.cpus}",
        f"GPUs {requested.gpus}" if requested.gpus else "",
        "" if requested.time_limit is None else format_limit(requested.time_limit),
    ]
    return ", ".join(word for word in words if word)


def _used(row: Row) -> str:
    words = [
        "" if row.memory is None else format_size(row.memory),
        "" if row.cpus is None else f"{row.cpus:.2f} of a CPU",
        "" if row.gpu_memory is None else f"{format_size(row.gpu_memory)} of GPU",
    ]
    return ", ".join(word for word in words if word)


def _versions(record: Record | None) -> str:
    words = [f"weigh {__version__}"]
    provenance = record.provenance if record else None
    python = (
        provenance.python
        if provenance and provenance.python
        else sys.version.split()[0]
    )
    words.append(f"Python {python}")
    if provenance and provenance.git_commit:
        dirty = " with changes" if provenance.git_dirty else ""
        words.append(f"commit {provenance.git_commit[:12]}{dirty}")
    host = record.host if record else None
    if host and host.kernel:
        words.append(f"{host.system} {host.kernel}")
    return ", ".join(words)


def _short(path: str | None) -> str | None:
    """Return a path relative to the current folder, if below it."""
    if path is None:
        return None
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _tail(row: Row) -> tuple[str, ...]:
    """Return the last lines that a task printed."""
    if row.output is None or not os.path.isfile(row.output):
        return (row.error,) if row.error else ()
    lines = [line.rstrip() for line in tail_of(row.output).splitlines()]
    return tuple(line for line in lines if line)[-_LINES:]
