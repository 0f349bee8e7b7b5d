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
from weigh.errors import FormatError, UsageError, cannot_read
from weigh.flow.records.records import RecordStore
from weigh.model.mask import MASK
from weigh.model.record import (
    Allocation,
    MeasuringCost,
    PeakMemory,
    Record,
    RecordedHost,
    RecordedJob,
    RunOutcome,
    Usage,
)
from weigh.model.report import PastJob
from weigh.outcome import signal_in_exit_code
from weigh.schedulers import KINDS
from weigh.schedulers.backend import PastAccounting
from weigh.schedulers.kind import SchedulerKind
from weigh.store import traces
from weigh.store.identity import content_id, new_id
from weigh.store.index import StoreIndex, read_index
from weigh.store.shards import append_record
from weigh.units import Bytes, Seconds

STDIN = "-"
JOBLOG_SOURCE = "from GNU parallel's joblog, which has no memory and no CPU time"
TRACE_STARTED = "the file does not say when: the times are from its last change"
_HEAD = 1 << 16  # characters that show what a file is
# states in which the figures of accounting are final
_ENDED = frozenset(
    ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL")
)
# names that schedulers give by themselves: they are no kind of job
NO_NAMES = frozenset(("", "wrap", "interactive", "bash", "sh", "STDIN")) | {
    kind.submits for kind in KINDS.values()
}
# numbers of tasks and dates: align_12, run-2026
_NUMBERS = re.compile(r"[_.-]*\d+")
_MOST_WORDS = 40  # of a command that is kept


class ImportSource(msgspec.Struct, frozen=True):
    """A file's text, its form, and when it was last written, in epoch seconds.

    ``lines`` are those of a file that may be too large to keep; its ``text`` is the
    beginning only.
    """

    name: str
    text: str
    changed: float
    form: str = ""
    lines: Iterable[str] = ()


class ImportedRun(msgspec.Struct, frozen=True):
    """One run in a file, at line *number*: its record, or why it was passed over.

    ``doubts`` name figures of its line that cannot be.
    """

    source: str
    number: int
    record: Record | None
    problem: str | None = None
    doubts: tuple[str, ...] = ()


def import_records(
    store: RecordStore,
    paths: Sequence[str],
    *,
    label: str | None = None,
    again: bool = False,
    user_name: str | None = None,
) -> Iterator[ImportedRun]:
    """Append a record for every run in *paths* (``-`` is standard input).

    A run has an id made of its own text, so that a file which grew can be imported
    again: what is there, or was removed, is passed over unless *again*. Of the jobs of
    others than *user_name*, commands and folders are not kept.

    Raises:
        UsageError: a file cannot be read; then nothing was imported.
        FormatError: a file is of no known format; then nothing was imported.
        StoreError: the store cannot be written.
    """
    # all files before the first record is written: an error then leaves nothing behind
    sources = [_read_import_source(path, store.now) for path in paths]
    index = read_index(store.root)
    runs = (
        one for source in sources for one in _READERS[source.form](source, user_name)
    )
    return _appended(store, runs, index, label=label, again=again)


def _appended(
    store: RecordStore,
    runs: Iterable[ImportedRun],
    index: StoreIndex,
    *,
    label: str | None,
    again: bool,
) -> Iterator[ImportedRun]:
    known = {entry.head.id for entry in index.entries}
    for one in runs:
        checked = _checked_imported_run(one, index, known, again=again)
        if checked.record is not None:
            record = checked.record
            record = msgspec.structs.replace(record, label=label or record.label)
            append_record(store.root, record, store.machine)
            known.add(record.id)
        yield checked


def _checked_imported_run(
    imported_run: ImportedRun, index: StoreIndex, known: set[str], *, again: bool
) -> ImportedRun:
    if imported_run.record is None:
        return imported_run
    if again:
        # an id of its own, because the old one stands for the removed or present record
        fresh = msgspec.structs.replace(imported_run.record, id=new_id())
        return ImportedRun(imported_run.source, imported_run.number, fresh)
    if imported_run.record.id in known:
        return ImportedRun(
            imported_run.source, imported_run.number, None, "imported before"
        )
    if imported_run.record.id in index.removed:
        problem = "removed before (--again imports it anew)"
        return ImportedRun(imported_run.source, imported_run.number, None, problem)
    return imported_run


def _from_joblog(source: ImportSource, _user: str | None) -> Iterator[ImportedRun]:
    for line in joblog.read_joblog(source.text):
        entry, problem = line.entry, line.problem
        # Exitval -2: parallel did not start it
        if entry is not None and entry.exit_code == joblog.SKIPPED:
            entry, problem = None, "a task that parallel skipped"
        if entry is None:
            yield ImportedRun(source.name, line.number, None, problem)
        else:
            record = _record_of_joblog_entry(entry, content_id(_bytes(line.text)))
            yield ImportedRun(source.name, line.number, record)


def _record_of_joblog_entry(entry: joblog.JoblogEntry, record_id: str) -> Record:
    timed_out = entry.exit_code == joblog.TIMED_OUT
    signal = entry.signal or None
    ended = "COMPLETED" if entry.succeeded else "FAILED"
    return Record(
        id=record_id,
        command=("sh", "-c", MASK.line(entry.command)),
        host=None
        if entry.host == ":"
        else RecordedHost(name=entry.host, system="unknown"),
        started=_imported_time_text(entry.started),
        ended=_imported_time_text(entry.started + entry.wall_time),
        state="TIMEOUT" if timed_out else ended,
        # Exitval is no exit code then
        exit_code=None if timed_out or signal else entry.exit_code,
        signal=signal,
        outcome=RunOutcome("parallel's time limit (Exitval -1)") if timed_out else None,
        usage=Usage(wall_time=entry.wall_time),
        job=RecordedJob(id="joblog", task=entry.seq),
        # the source marks the record as one without memory
        monitor=MeasuringCost(warnings=(JOBLOG_SOURCE,), source="joblog"),
    )


def _from_nextflow(source: ImportSource, _user: str | None) -> Iterator[ImportedRun]:
    warning = "from Nextflow's trace: memory is the kernel's peak of each process"
    yield from _of_traces(source, traces.read_nextflow(source.text), warning)


def _from_snakemake(source: ImportSource, _user: str | None) -> Iterator[ImportedRun]:
    name = os.path.splitext(os.path.basename(source.name))[0]
    found = traces.read_snakemake(source.text, name)
    warning = "from Snakemake's benchmark: memory is sampled, a lower bound"
    yield from _of_traces(source, found, warning)


def _of_traces(
    source: ImportSource, tool_traces: Iterable[traces.ToolTrace], warning: str
) -> Iterator[ImportedRun]:
    seen: Counter[str] = Counter()
    for one in tool_traces:
        # equal lines are different runs: number them, so that each has its own id
        seen[one.text] += 1
        if one.problem is not None:
            yield ImportedRun(source.name, one.number, None, one.problem)
            continue
        record_id = content_id(_bytes(f"{one.text}\0{seen[one.text]}"))
        record = _of_trace(one, record_id, source, warning)
        yield ImportedRun(source.name, one.number, record)


def _of_trace(
    tool_trace: traces.ToolTrace, record_id: str, source: ImportSource, warning: str
) -> Record:
    started = tool_trace.started
    warnings = (warning,) if started is not None else (warning, TRACE_STARTED)
    if started is None:
        # the file was last written when its last run ended
        started = max(source.changed - tool_trace.wall_time, 0)
    code = tool_trace.exit_code
    signal = signal_in_exit_code(code)
    asked = tool_trace.memory_asked is not None or tool_trace.cpus is not None
    return Record(
        id=record_id,
        label=kind_of_name(tool_trace.name) or None,
        command=(tool_trace.name,),
        parameters=tool_trace.parameters,
        started=_imported_time_text(started),
        ended=_imported_time_text(started + tool_trace.wall_time),
        state=tool_trace.state,
        exit_code=None if signal else code,
        signal=signal,
        usage=_usage_of_past_job(
            tool_trace.wall_time,
            tool_trace.cpu_time,
            _sampled(tool_trace.memory, source.form, tool_trace.interval),
        ),
        allocation=Allocation(
            scheduler=source.form, cpus=tool_trace.cpus, memory=tool_trace.memory_asked
        )
        if asked
        else None,
        job=None
        if tool_trace.job is None
        else RecordedJob(id=f"{source.form}-{tool_trace.job}"),
        monitor=MeasuringCost(
            samples=tool_trace.looks or 0,
            interval=tool_trace.interval,
            warnings=warnings,
            source=source.form,
        ),
    )


def _from_accounting(
    source: ImportSource, user_name: str | None
) -> Iterator[ImportedRun]:
    kind = next(kind for kind in KINDS.values() if kind.accounts == source.form)
    accounts = kind.accounting
    if not isinstance(accounts, PastAccounting):
        raise FormatError(f"{source.name}: {source.form} is read for single jobs only")
    for number, job in enumerate(accounts.read_past(source.lines), 1):
        if job is None:
            yield ImportedRun(source.name, number, None, "a row that cannot be read")
            continue
        wall_time = job.accounted.wall_time
        # a job that waits or runs has no final figures
        if job.accounted.state not in _ENDED or not wall_time or job.started is None:
            problem = f"{job.id} is {job.accounted.state}: it did not run to an end"
            yield ImportedRun(source.name, number, None, problem)
            continue
        record = _record_of_past_job(
            job, kind, job.started, wall_time, own=job.user in {None, user_name}
        )
        yield ImportedRun(source.name, number, record, doubts=job.accounted.doubts)


def _record_of_past_job(
    job: PastJob, kind: SchedulerKind, started: float, wall_time: float, *, own: bool
) -> Record:
    figures, words = job.accounted, kind.accounting.WORDS
    every = past_accounting(kind).SAMPLED_EVERY
    name = kind_of_name(job.name)
    command: Sequence[str] = (name or "job",)
    # the name shows nothing: use the command, if it is the user's own to see
    if name in NO_NAMES and own and job.command:
        command = MASK.words(job.command.split(" ")[:_MOST_WORDS])
    # Grid Engine's maxvmem is address space, not memory
    counts_addresses = kind.traits.address_space is not None
    memory = None if counts_addresses else figures.max_rss or None
    text = f"{kind.name}\0{job.id}\0{started:.0f}\0{wall_time:.0f}\0{figures.state}"
    return Record(
        id=content_id(_bytes(text)),
        label=name or None,
        command=tuple(command),
        cwd=job.cwd if own else None,
        host=None
        if not figures.node
        else RecordedHost(name=figures.node, system="unknown"),
        started=_imported_time_text(started),
        ended=_imported_time_text(started + wall_time),
        state=figures.state,
        exit_code=None if job.signal else job.exit_code,
        signal=job.signal,
        usage=msgspec.structs.replace(
            _usage_of_past_job(
                wall_time, figures.cpu_time, _sampled(memory, words.memory, every)
            ),
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
        # "123_4" and "123.batch" are of job 123
        job=RecordedJob(id=_JOB_ID.split(job.id)[0], element=figures.element),
        monitor=MeasuringCost(
            # as many samples as can have been taken
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


def _usage_of_past_job(
    wall_time: Seconds, cpu_time: Seconds | None, memory: PeakMemory | None
) -> Usage:
    return Usage(
        wall_time=wall_time,
        cpu_time=cpu_time,
        cpus_used=None if cpu_time is None or not wall_time else cpu_time / wall_time,
        peak_memory=memory,
    )


_Reader: TypeAlias = Callable[[ImportSource, str | None], Iterator[ImportedRun]]
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


def _read_import_source(path: str, now: float) -> ImportSource:
    """Read a file, or only the beginning of what may be years of accounting."""
    is_stdin = path == STDIN
    try:
        binary = sys.stdin.buffer if is_stdin else open(path, "rb")  # noqa: SIM115
        lines = io.TextIOWrapper(
            binary, encoding="utf-8", errors="surrogateescape", newline="\n"
        )
        # standard input is left open for its owner
        end = lines.detach if is_stdin else lines.close
        # the head decides on the form, so that years of accounting are not read into
        # memory
        head = lines.read(_HEAD)
        changed = now if is_stdin else os.fstat(binary.fileno()).st_mtime
        name = "stdin" if is_stdin else path
        found = _accounting_of(head)
        if found is not None:
            return ImportSource(
                name, head, changed, found, _all_lines(head, lines, end)
            )
        text = head + lines.read()
        end()
        return ImportSource(name, text, changed, _recognised(name, text))
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error


def _all_lines(
    head: str, rest: Iterator[str], end: Callable[[], object]
) -> Iterator[str]:
    """Yield all lines of a file of which *head* has been read; then *end* it."""
    *lines, torn = head.split("\n")
    yield from (f"{line}\n" for line in lines)
    # the head may end within a line
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


def _imported_time_text(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
