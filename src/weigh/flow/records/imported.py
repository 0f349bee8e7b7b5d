"""``weigh records import``: records from what other tools wrote down."""

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from weigh import joblog
from weigh.errors import SIGNAL_BASE, FormatError, UsageError, cannot_read
from weigh.flow.records.records import Store
from weigh.model.mask import MASK
from weigh.model.record import (
    Allocation,
    Host,
    Job,
    Monitor,
    Outcome,
    PeakMemory,
    Record,
    Usage,
)
from weigh.model.report import PastJob
from weigh.schedulers import KINDS
from weigh.schedulers.backend import PastAccounting
from weigh.schedulers.kind import SchedulerKind
from weigh.store import traces
from weigh.store.identity import content_id, new_id
from weigh.store.index import Index, read_index
from weigh.store.shards import append
from weigh.units import Bytes, Seconds

STDIN = "-"
JOBLOG_SOURCE = "from GNU parallel's joblog, which has no memory and no CPU time"
TRACE_STARTED = "the file does not say when: the times are from its last change"
_HEAD = 1 << 16  # characters that show what a file is
_ENDED = frozenset(
    ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL")
)
NO_NAMES = frozenset(("", "wrap", "interactive", "bash", "sh", "STDIN")) | {
    kind.submits for kind in KINDS.values()
}
_NUMBERS = re.compile(r"[_.-]*\d+")
_MOST_WORDS = 40


class Source(msgspec.Struct, frozen=True):
    """A file's text, its form, and when it was last written, in epoch seconds.

    ``lines`` are those of a file that may be too large to keep; its ``text`` is the
    beginning only.
    """

    name: str
    text: str
    changed: float
    form: str = ""
    lines: Iterable[str] = ()


class Imported(msgspec.Struct, frozen=True):
    """One run in a file, at line *number*: its record, or why it was passed over.

    ``doubts`` name figures of its line that cannot be.
    """

    source: str
    number: int
    record: Record | None
    problem: str | None = None
    doubts: tuple[str, ...] = ()


def import_records(
    store: Store,
    paths: Sequence[str],
    *,
    label: str | None = None,
    again: bool = False,
    user: str | None = None,
) -> Iterator[Imported]:
    """Append a record for every run in *paths* (``-`` is standard input).

    A run has an id made of its own text, so that a file which grew can be imported
    again: what is there, or was removed, is passed over unless *again*. Of the jobs of
    others than *user*, commands and folders are not kept.

    Raises:
        UsageError: a file cannot be read; then nothing was imported.
        FormatError: a file is of no known format; then nothing was imported.
        StoreError: the store cannot be written.
    """
    sources = [_read(path, store.now) for path in paths]
    index = read_index(store.root)
    runs = (one for source in sources for one in _READERS[source.form](source, user))
    return _appended(store, runs, index, label=label, again=again)


def _appended(
    store: Store,
    runs: Iterable[Imported],
    index: Index,
    *,
    label: str | None,
    again: bool,
) -> Iterator[Imported]:
    known = {entry.head.id for entry in index.entries}
    for one in runs:
        checked = _checked(one, index, known, again=again)
        if checked.record is not None:
            record = checked.record
            record = msgspec.structs.replace(record, label=label or record.label)
            append(store.root, record, store.machine)
            known.add(record.id)
        yield checked


def _checked(one: Imported, index: Index, known: set[str], *, again: bool) -> Imported:
    if one.record is None:
        return one
    if again:
        fresh = msgspec.structs.replace(one.record, id=new_id())
        return Imported(one.source, one.number, fresh)
    if one.record.id in known:
        return Imported(one.source, one.number, None, "imported before")
    if one.record.id in index.removed:
        problem = "removed before (--again imports it anew)"
        return Imported(one.source, one.number, None, problem)
    return one


def _from_joblog(source: Source, _user: str | None) -> Iterator[Imported]:
    for line in joblog.read_joblog(source.text):
        entry, problem = line.entry, line.problem
        if entry is not None and entry.exit_code == joblog.SKIPPED:
            entry, problem = None, "a task that parallel skipped"
        if entry is None:
            yield Imported(source.name, line.number, None, problem)
        else:
            record = _of_task(entry, content_id(_bytes(line.text)))
            yield Imported(source.name, line.number, record)


def _of_task(entry: joblog.Entry, record_id: str) -> Record:
    timed_out = entry.exit_code == joblog.TIMED_OUT
    signal = entry.signal or None
    ended = "COMPLETED" if entry.succeeded else "FAILED"
    return Record(
        id=record_id,
        command=("sh", "-c", MASK.line(entry.command)),
        host=None if entry.host == ":" else Host(name=entry.host, system="unknown"),
        started=_iso(entry.started),
        ended=_iso(entry.started + entry.wall_time),
        state="TIMEOUT" if timed_out else ended,
        exit_code=None if timed_out or signal else entry.exit_code,
        signal=signal,
        outcome=Outcome("parallel's time limit (Exitval -1)") if timed_out else None,
        usage=Usage(wall_time=entry.wall_time),
        job=Job(id="joblog", task=entry.seq),
        monitor=Monitor(warnings=(JOBLOG_SOURCE,), source="joblog"),
    )


def _from_nextflow(source: Source, _user: str | None) -> Iterator[Imported]:
    warning = "from Nextflow's trace: memory is the kernel's peak of each process"
    yield from _of_traces(source, traces.read_nextflow(source.text), warning)


def _from_snakemake(source: Source, _user: str | None) -> Iterator[Imported]:
    name = os.path.splitext(os.path.basename(source.name))[0]
    found = traces.read_snakemake(source.text, name)
    warning = "from Snakemake's benchmark: memory is sampled, a lower bound"
    yield from _of_traces(source, found, warning)


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


def _from_accounting(source: Source, user: str | None) -> Iterator[Imported]:
    kind = next(kind for kind in KINDS.values() if kind.accounts == source.form)
    accounts = kind.accounting
    if not isinstance(accounts, PastAccounting):
        raise FormatError(f"{source.name}: {source.form} is read for single jobs only")
    for number, job in enumerate(accounts.read_past(source.lines), 1):
        if job is None:
            yield Imported(source.name, number, None, "a row that cannot be read")
            continue
        wall_time = job.accounted.wall_time
        if job.accounted.state not in _ENDED or not wall_time or job.started is None:
            problem = f"{job.id} is {job.accounted.state}: it did not run to an end"
            yield Imported(source.name, number, None, problem)
            continue
        record = _of_job(
            job, kind, job.started, wall_time, own=job.user in {None, user}
        )
        yield Imported(source.name, number, record, doubts=job.accounted.doubts)


def _of_job(
    job: PastJob, kind: SchedulerKind, started: float, wall_time: float, *, own: bool
) -> Record:
    figures, words = job.accounted, kind.accounting.WORDS
    every = past_accounting(kind).SAMPLED_EVERY
    name = kind_of_name(job.name)
    command: Sequence[str] = (name or "job",)
    if name in NO_NAMES and own and job.command:
        command = MASK.words(job.command.split(" ")[:_MOST_WORDS])
    counts_addresses = kind.traits.address_space is not None
    memory = None if counts_addresses else figures.max_rss or None
    text = f"{kind.name}\0{job.id}\0{started:.0f}\0{wall_time:.0f}\0{figures.state}"
    return Record(
        id=content_id(_bytes(text)),
        label=name or None,
        command=tuple(command),
        cwd=job.cwd if own else None,
        host=None if not figures.node else Host(name=figures.node, system="unknown"),
        started=_iso(started),
        ended=_iso(started + wall_time),
        state=figures.state,
        exit_code=None if job.signal else job.exit_code,
        signal=job.signal,
        usage=msgspec.structs.replace(
            _usage(wall_time, figures.cpu_time, _sampled(memory, words.memory, every)),
            max_process_memory=(figures.max_rss or None) if counts_addresses else None,
            virtual_memory=figures.virtual_memory,
        ),
        allocation=Allocation(
            scheduler=kind.name,
            cpus=figures.cpus,
            # a limit of address space proves nothing about memory
            memory=None if counts_addresses else figures.memory_asked,
            nodes=figures.nodes,
            gpus=figures.gpus,
        ),
        job=Job(id=_JOB_ID.split(job.id)[0], element=figures.element),
        monitor=Monitor(
            samples=int(wall_time / every),
            interval=every,
            warnings=(
                f"from {words.memory}: peaks between samples are missed",
                *figures.doubts,
            ),
            source=kind.accounts,
        ),
    )


_JOB_ID = re.compile(r"[_.+]")


def past_accounting(kind: SchedulerKind) -> PastAccounting:
    """Return the accounting of a scheduler that lists past jobs.

    Raises:
        UsageError: this scheduler's does not.
    """
    accounts = kind.accounting
    if isinstance(accounts, PastAccounting):
        return accounts
    raise UsageError(f"{kind.accounts} is read for single jobs only")


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


_Reader: TypeAlias = Callable[[Source, str | None], Iterator[Imported]]
_READERS: dict[str, _Reader] = {
    "joblog": _from_joblog,
    traces.NEXTFLOW: _from_nextflow,
    traces.SNAKEMAKE: _from_snakemake,
    **{kind.accounts: _from_accounting for kind in KINDS.values()},
}
_TEXTS: dict[str, Callable[[str], bool]] = {
    "joblog": joblog.is_joblog,
    traces.NEXTFLOW: traces.is_nextflow,
    traces.SNAKEMAKE: traces.is_snakemake,
}


def _read(path: str, now: float) -> Source:
    """Read a file, or only the beginning of what may be years of accounting."""
    is_stdin = path == STDIN
    try:
        binary = sys.stdin.buffer if is_stdin else open(path, "rb")  # noqa: SIM115
        lines = io.TextIOWrapper(
            binary, encoding="utf-8", errors="surrogateescape", newline="\n"
        )
        end = lines.detach if is_stdin else lines.close
        head = lines.read(_HEAD)
        changed = now if is_stdin else os.fstat(binary.fileno()).st_mtime
        name = "stdin" if is_stdin else path
        found = _accounting_of(head)
        if found is not None:
            return Source(name, head, changed, found, _all_lines(head, lines, end))
        text = head + lines.read()
        end()
        return Source(name, text, changed, _recognised(name, text))
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error


def _all_lines(
    head: str, rest: Iterator[str], end: Callable[[], object]
) -> Iterator[str]:
    """Yield all lines of a file of which *head* has been read; then *end* it."""
    *lines, torn = head.split("\n")
    yield from (f"{line}\n" for line in lines)
    torn += next(rest, "")
    if torn:
        yield torn
    yield from rest
    end()


def _accounting_of(head: str) -> str | None:
    for kind in KINDS.values():
        accounts = kind.accounting
        if isinstance(accounts, PastAccounting) and accounts.is_past(head):
            return kind.accounts
    return None


def _recognised(name: str, text: str) -> str:
    for form, is_form in _TEXTS.items():
        if is_form(text):
            return form
    commands = ", ".join(kind.accounts for kind in KINDS.values())
    raise FormatError(
        f"{name}: neither accounting ({commands}) nor a file of Nextflow, Snakemake "
        "or GNU parallel"
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
