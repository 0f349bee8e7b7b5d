"""``weigh records import``: records from the accounting of schedulers."""

import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

import msgspec

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
    Usage,
)
from weigh.model.report import PastJob
from weigh.schedulers import KINDS
from weigh.schedulers.backend import PastAccounting
from weigh.schedulers.kind import SchedulerKind
from weigh.store.identity import content_id, new_id
from weigh.store.index import StoreIndex, read_index
from weigh.store.shards import append_record
from weigh.units import Bytes, Seconds

STDIN = "-"
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
    """A file of a scheduler's accounting: its name, its lines, whose form it has."""

    name: str
    lines: Iterable[str]
    kind: SchedulerKind
    accounts: PastAccounting


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
        FormatError: a file is no accounting; then nothing was imported.
        StoreError: the store cannot be written.
    """
    with ExitStack() as opened:
        # all files before the first record is written: an error then leaves nothing
        sources = [_open_import_source(path, opened) for path in paths]
        index = read_index(store.root)
        known = {entry.head.id for entry in index.entries}
        for source in sources:
            for one in _runs_in_accounting(source, user_name):
                checked = _checked_imported_run(one, index, known, again=again)
                record = checked.record
                if record is not None:
                    record = msgspec.structs.replace(
                        record, label=label or record.label
                    )
                    append_record(store.root, record, store.machine)
                    known.add(record.id)
                yield msgspec.structs.replace(checked, record=record)


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


def _runs_in_accounting(
    source: ImportSource, user_name: str | None
) -> Iterator[ImportedRun]:
    for number, job in enumerate(source.accounts.read_past(source.lines), 1):
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
            job, source.kind, job.started, wall_time, own=job.user in {None, user_name}
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
        id=content_id(text.encode("utf-8", "surrogateescape")),
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
        usage=Usage(
            wall_time=wall_time,
            cpu_time=figures.cpu_time,
            cpus_used=None
            if figures.cpu_time is None
            else figures.cpu_time / wall_time,
            peak_memory=_sampled_peak(memory, words.memory, every),
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


def _sampled_peak(
    memory: Bytes | None, source: str, interval: Seconds
) -> PeakMemory | None:
    if memory is None:
        return None
    return PeakMemory(
        value=memory,
        low=memory,
        high=memory,
        anonymous=None,
        shared=None,
        file=None,
        source=f"{source}, sampled every {interval:g} s: a lower bound",
    )


def _open_import_source(path: str, opened: ExitStack) -> ImportSource:
    """Open a file and recognise it by its beginning: it may be years of accounting."""
    is_stdin = path == STDIN
    try:
        binary = sys.stdin.buffer if is_stdin else open(path, "rb")  # noqa: SIM115
        lines = io.TextIOWrapper(
            binary, encoding="utf-8", errors="surrogateescape", newline="\n"
        )
        # standard input is left open for its owner
        opened.callback(lines.detach if is_stdin else lines.close)
        head = lines.read(_HEAD)
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error
    name = "stdin" if is_stdin else path
    for kind in KINDS.values():
        accounts = kind.accounting
        if isinstance(accounts, PastAccounting) and accounts.is_past(head):
            return ImportSource(name, _all_lines(head, lines), kind, accounts)
    commands = ", ".join(kind.accounts for kind in KINDS.values())
    raise FormatError(f"{name}: no accounting of a scheduler ({commands})")


def _all_lines(head: str, rest: Iterator[str]) -> Iterator[str]:
    """Yield all lines of a file of which *head* has been read."""
    *lines, torn = head.split("\n")
    yield from (f"{line}\n" for line in lines)
    # the head may end within a line
    torn += next(rest, "")
    if torn:
        yield torn
    yield from rest


def _imported_time_text(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
