"""``weigh records import``: records from what workflow tools wrote down."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from weigh.errors import SIGNAL_BASE, FormatError, UsageError, cannot_read
from weigh.flow.records.records import Store
from weigh.model.record import Allocation, Job, Monitor, PeakMemory, Record, Usage
from weigh.store import traces
from weigh.store.identity import content_id
from weigh.store.index import Index, read_index
from weigh.store.shards import append
from weigh.units import Bytes, Seconds

STDIN = "-"
TRACE_STARTED = "the file does not say when: the times are from its last change"
_NUMBERS = re.compile(r"[_.-]*\d+")


class Source(msgspec.Struct, frozen=True):
    """A file's text, its form, and when it was last written, in epoch seconds."""

    name: str
    text: str
    changed: float
    form: str


class Imported(msgspec.Struct, frozen=True):
    """One run in a file, at line *number*: its record, or why it was passed over."""

    source: str
    number: int
    record: Record | None
    problem: str | None = None


def import_records(
    store: Store, paths: Sequence[str], *, label: str | None = None
) -> Iterator[Imported]:
    """Append a record for every run in *paths* (``-`` is standard input).

    A run has an id made of its own text, so that a file which grew can be imported
    again: what is there, or was removed, is passed over.

    Raises:
        UsageError: a file cannot be read; then nothing was imported.
        FormatError: a file is of no known format; then nothing was imported.
        StoreError: the store cannot be written.
    """
    sources = [_read_source(path, store.now) for path in paths]
    index = read_index(store.root)
    known = {entry.head.id for entry in index.entries}
    for imported in (run for source in sources for run in _runs_in(source)):
        checked = _checked(imported, index, known)
        if checked.record is not None:
            record = checked.record
            record = msgspec.structs.replace(record, label=label or record.label)
            append(store.root, record, store.machine)
            known.add(record.id)
        yield checked


def _checked(imported: Imported, index: Index, known: set[str]) -> Imported:
    if imported.record is None:
        return imported
    problem = None
    if imported.record.id in known:
        problem = "imported before"
    elif imported.record.id in index.removed:
        problem = "imported before, and removed"
    if problem is None:
        return imported
    return Imported(imported.source, imported.number, None, problem)


def _runs_in(source: Source) -> Iterator[Imported]:
    if source.form == traces.NEXTFLOW:
        warning = "from Nextflow's trace: memory is the kernel's peak of each process"
        return _of_traces(source, traces.read_nextflow(source.text), warning)
    name = os.path.splitext(os.path.basename(source.name))[0]
    warning = "from Snakemake's benchmark: memory is sampled, a lower bound"
    return _of_traces(source, traces.read_snakemake(source.text, name), warning)


def _of_traces(
    source: Source, found: Iterable[traces.Trace], warning: str
) -> Iterator[Imported]:
    seen: Counter[str] = Counter()
    for one in found:
        seen[one.text] += 1
        if one.problem is not None:
            yield Imported(source.name, one.number, None, one.problem)
            continue
        record_id = content_id(_bytes(f"{one.text}\0{seen[one.text]}"))
        record = _of_trace(one, record_id, source, warning)
        yield Imported(source.name, one.number, record)


def _of_trace(
    one: traces.Trace, record_id: str, source: Source, warning: str
) -> Record:
    started = one.started
    warnings = (warning,) if started is not None else (warning, TRACE_STARTED)
    if started is None:
        started = max(source.changed - one.wall_time, 0)
    code = one.exit_code
    signal = code - SIGNAL_BASE if code is not None and code > SIGNAL_BASE else None
    asked = one.memory_asked is not None or one.cpus is not None
    return Record(
        id=record_id,
        label=kind_of_name(one.name) or None,
        command=(one.name,),
        parameters=one.parameters,
        started=_iso(started),
        ended=_iso(started + one.wall_time),
        state=one.state,
        exit_code=None if signal else code,
        signal=signal,
        usage=_usage(
            one.wall_time, one.cpu_time, _sampled(one.memory, source.form, one.interval)
        ),
        allocation=Allocation(
            scheduler=source.form, cpus=one.cpus, memory=one.memory_asked
        )
        if asked
        else None,
        job=None if one.job is None else Job(id=f"{source.form}-{one.job}"),
        monitor=Monitor(
            samples=one.looks or 0,
            interval=one.interval,
            warnings=warnings,
            source=source.form,
        ),
    )


def kind_of_name(name: str) -> str:
    """Return the name that repeated jobs have in common: align_12 and align_7."""
    return _NUMBERS.sub("", " ".join(name.split()))


def _sampled(
    memory: Bytes | None, source: str, interval: Seconds | None
) -> PeakMemory | None:
    if memory is None:
        return None
    how = "" if interval is None else f", sampled every {interval:g} s: a lower bound"
    return PeakMemory(
        value=memory,
        low=memory,
        high=memory,
        anonymous=None,
        shared=None,
        file=None,
        source=source + how,
    )


def _usage(
    wall_time: Seconds, cpu_time: Seconds | None, memory: PeakMemory | None
) -> Usage:
    return Usage(
        wall_time=wall_time,
        cpu_time=cpu_time,
        cpus_used=None if cpu_time is None or not wall_time else cpu_time / wall_time,
        peak_memory=memory,
    )


def _read_source(path: str, now: float) -> Source:
    try:
        if path == STDIN:
            name, data, changed = "stdin", sys.stdin.buffer.read(), now
        else:
            with open(path, "rb") as file:
                name, data = path, file.read()
                changed = os.fstat(file.fileno()).st_mtime
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error
    text = data.decode("utf-8", "surrogateescape")
    if traces.is_nextflow(text):
        return Source(name, text, changed, traces.NEXTFLOW)
    if traces.is_snakemake(text):
        return Source(name, text, changed, traces.SNAKEMAKE)
    raise FormatError(f"{name}: neither a trace of Nextflow nor Snakemake's benchmark")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
