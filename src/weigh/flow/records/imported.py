"""``weigh records import``: records from what other tools wrote down."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from weigh import joblog
from weigh.errors import FormatError, UsageError
from weigh.flow.records.records import Store
from weigh.model.mask import MASK
from weigh.model.record import (
    Host,
    Job,
    Monitor,
    Outcome,
    Record,
    Usage,
)
from weigh.store.gnu_time import Timing, is_gnu_time, read_gnu_time
from weigh.store.identity import content_id, new_id
from weigh.store.index import Index, read_index
from weigh.store.shards import append

Format: TypeAlias = Literal["time", "joblog"]
STDIN = "-"
TIME_SOURCE = "from GNU time: memory is the largest single process, not the tree"
TIME_STARTED = "GNU time does not say when: the times are from the file's last change"
JOBLOG_SOURCE = "from GNU parallel's joblog, which has no memory and no CPU time"


class Source(msgspec.Struct, frozen=True):
    """A file's text; ``changed`` is when it was last written, in epoch seconds."""

    name: str
    text: str
    changed: float


class Imported(msgspec.Struct, frozen=True):
    """One run in a file, at line *number*: its record, or why it was passed over."""

    source: str
    number: int
    record: Record | None
    problem: str | None = None


def import_records(
    store: Store,
    paths: Sequence[str],
    *,
    form: Format | None = None,
    label: str | None = None,
    again: bool = False,
) -> list[Imported]:
    """Append a record for every run in *paths* (``-`` is standard input).

    A run has an id made of its own text, so that a file which grew can be imported
    again: what is there, or was removed, is passed over unless *again*.

    Raises:
        UsageError: a file cannot be read; then nothing was imported.
        FormatError: a file is of no known format; then nothing was imported.
        StoreError: the store cannot be written.
    """
    sources = [_read(path, store.now) for path in paths]
    runs = [one for source in sources for one in _runs(source, form)]
    index = read_index(store.root)
    known = {entry.head.id for entry in index.entries}
    done = []
    for one in runs:
        checked = _checked(one, index, known, again=again)
        if checked.record is not None:
            record = msgspec.structs.replace(checked.record, label=label)
            append(store.root, record, store.machine)
            known.add(record.id)
        done.append(checked)
    return done


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


def _runs(source: Source, form: Format | None) -> Iterator[Imported]:
    form = form or _recognised(source)
    return _from_joblog(source) if form == "joblog" else _from_gnu_time(source)


def _recognised(source: Source) -> Format:
    if joblog.is_joblog(source.text):
        return "joblog"
    if is_gnu_time(source.text):
        return "time"
    raise FormatError(
        f"{source.name}: neither the output of GNU time -v nor a GNU parallel joblog"
        " (--format says which)"
    )


def _from_joblog(source: Source) -> Iterator[Imported]:
    for line in joblog.read_joblog(source.text):
        entry, problem = line.entry, line.problem
        if entry is not None and entry.exit_code == joblog.SKIPPED:
            entry, problem = None, "a task that parallel skipped"
        if entry is None:
            yield Imported(source.name, line.number, None, problem)
        else:
            record = _of_task(entry, content_id(_bytes(line.text)))
            yield Imported(source.name, line.number, record)


def _from_gnu_time(source: Source) -> Iterator[Imported]:
    seen: Counter[str] = Counter()
    for block in read_gnu_time(source.text):
        seen[block.text] += 1  # two runs may well read the same
        if block.timing is None:
            yield Imported(source.name, block.number, None, block.problem)
        else:
            record_id = content_id(_bytes(f"{block.text}\0{seen[block.text]}"))
            record = _of_timing(block.timing, record_id, source.changed)
            yield Imported(source.name, block.number, record)


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
        monitor=Monitor(warnings=(JOBLOG_SOURCE,)),
    )


def _of_timing(timing: Timing, record_id: str, changed: float) -> Record:
    failed = timing.signal is not None or timing.exit_code != 0
    cpu_time = timing.user_time + timing.system_time
    return Record(
        id=record_id,
        command=MASK.words(timing.command.split(" ")),  # time joined its arguments so
        started=_iso(max(changed - timing.wall_time, 0)),
        ended=_iso(changed),
        state="FAILED" if failed else "COMPLETED",
        exit_code=timing.exit_code if timing.signal is None else None,
        signal=timing.signal,
        usage=Usage(
            wall_time=timing.wall_time,
            cpu_time=round(cpu_time, 2),
            user_time=timing.user_time,
            system_time=timing.system_time,
            cpus_used=cpu_time / timing.wall_time if timing.wall_time else None,
            max_process_memory=timing.max_process_memory,
            read_bytes=timing.read_bytes,
            write_bytes=timing.write_bytes,
        ),
        monitor=Monitor(warnings=(TIME_SOURCE, TIME_STARTED)),
    )


def _read(path: str, now: float) -> Source:
    try:
        if path == STDIN:
            return Source("stdin", _text(sys.stdin.buffer.read()), now)
        with open(path, "rb") as file:
            changed = os.fstat(file.fileno()).st_mtime
            return Source(path, _text(file.read()), changed)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
