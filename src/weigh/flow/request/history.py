"""``weigh request --from history``: what runs of the same kind say of the next one."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.estimate.history import (
    ENOUGH,
    LowerBound,
    Parameters,
    PastValue,
    Risk,
    RunHistory,
    choose_sizes,
    is_size,
    known_risk,
)
from weigh.flow.here import Here
from weigh.flow.records.records import (
    RecordStore,
    choose_records,
    find_record,
    open_store,
)
from weigh.flow.request.request import (
    RequestAnswer,
    as_jobs_ended,
    refuse_useless_records,
    request_answer_of,
)
from weigh.model.record import Record, Request
from weigh.planning.record_match import kind_of_command
from weigh.render import history_lines
from weigh.render.history_lines import HistoryKind, RequestFromHistory
from weigh.request import (
    COMPLETED,
    LEAST_MEMORY,
    STILL_RISING,
    from_usages,
    memory_uses_of_runs,
    round_memory,
    round_time,
)
from weigh.store.find import LAST
from weigh.store.index import RecordHead, read_record
from weigh.sweep.values import is_seed
from weigh.usage_needs import knobs_in, knobs_of

READ = 1000  # the latest records that are learnt from
_OUT_OF_MEMORY, _TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_SHORTEST = 0.01  # seconds: /usr/bin/time's clock shows 0 for what is shorter


class _PastUse(msgspec.Struct, frozen=True):
    """One run. ``memory`` is its peak, or the limit that stopped it; 0 if unknown."""

    state: str
    memory: float
    wall_time: float
    parameters: Parameters

    def at(self, sizes: Sequence[str]) -> tuple[float, ...]:
        """Return its *sizes*, NaN where one is unknown."""
        return tuple(_size_value(self.parameters.get(size)) for size in sizes)


def request_from_history(
    here: Here,
    names: Sequence[str],
    typed: Parameters,
    *,
    risk: str = "low",
    form: str | None = None,
) -> RequestAnswer:
    """Work out the request for the next run like the record named, or the last one.

    *typed* are parameters of the next run. With fewer than 3 completed runs the advice
    is to run 3 first, in addition to the request of the known ones.

    Raises:
        RecordNotFoundError: no such record.
        UsageError: several names, a parameter nobody has, or nothing measured.
        FormatError: a record whose figures cannot be.
    """
    if len(names) > 1:
        raise UsageError("history is of one job at a time: name one record of it")
    known = known_risk(risk)
    store = open_store(here.cwd, here.env)
    like = find_record(store, names[0] if names else LAST)
    records = as_jobs_ended(
        here.at_store(store.root), _similar_records(store, like, typed)
    )
    refuse_useless_records(records)
    uses = list(chain.from_iterable(map(_past_uses, records)))
    kind = _kind_of_runs(like, uses, typed)
    description: dict[str, object]
    if kind.completed < ENOUGH:
        request = _request_of_few(records, kind)
        description = history_lines.kind_document(kind)
    else:
        learnt = _learn(records, uses, kind, known)
        request = _request_of_many(records, learnt)
        description = history_lines.prediction_document(learnt)
    return request_answer_of(here, request, records, form=form, history=description)


def _request_of_few(records: Sequence[Record], history_kind: HistoryKind) -> Request:
    """Advise to run 3 first, and return the request of the known runs."""
    # of one kind, whatever their arguments: nothing to warn of
    alike = [msgspec.structs.replace(r, command=history_kind.command) for r in records]
    request = from_usages(alike)
    notes = (
        *history_lines.cold_notes(history_kind),
        *request.notes,
        *history_lines.kind_notes(history_kind),
    )
    return msgspec.structs.replace(request, notes=notes)


def _request_of_many(records: Sequence[Record], learnt: RequestFromHistory) -> Request:
    """Take memory and time from what was learnt, the rest from the records."""
    rest = from_usages(records, headroom=learnt.memory.margin)
    memory = max(LEAST_MEMORY, round_memory(learnt.memory.value))
    if learnt.node is not None:
        memory = learnt.node
    virtual = rest.virtual_memory
    rising = any(record.usage.growing for record in records if record.usage)
    return msgspec.structs.replace(
        rest,
        memory=memory,
        # a limit of address space below that of memory would be the tighter one
        virtual_memory=None if virtual is None else max(virtual, memory),
        time_limit=round_time(learnt.time.value),
        runs=learnt.memory.runs,
        headroom=learnt.memory.margin,
        notes=(
            *history_lines.prediction_notes(learnt),
            *((STILL_RISING,) if rising else ()),
        ),
    )


def _learn(
    records: Sequence[Record],
    uses: Sequence[_PastUse],
    history_kind: HistoryKind,
    risk: Risk,
) -> RequestFromHistory:
    sizes = tuple(history_kind.sizes)
    coming = [
        math.nan if size is None else size for size in history_kind.sizes.values()
    ]
    # an hour too many costs nothing once the job ends; one too few costs all of it
    time = RunHistory.of(
        list(_wall_times_of_runs(uses, sizes)), sizes, risk="low"
    ).predict(coming)
    history = RunHistory.of(list(_memories(uses, sizes)), sizes, risk=risk)
    memory = history.predict(coming)
    # no job can get more than the largest node has that one of these had
    hosts = (record.host for record in records if record.allocation)
    node = max((h.memory for h in hosts if h and h.memory), default=None)
    capped = node if node is not None and node < memory.value else None
    return RequestFromHistory(kind=history_kind, memory=memory, time=time, node=capped)


def _memories(
    uses: Sequence[_PastUse], sizes: Sequence[str]
) -> Iterator[PastValue | LowerBound]:
    for use in uses:
        # one whose memory was not measured shows nothing
        if not use.memory:
            continue
        if use.state == COMPLETED:
            yield PastValue(use.memory, use.at(sizes), use.wall_time)
        elif use.state == _OUT_OF_MEMORY:
            yield LowerBound(use.memory, use.at(sizes))
        elif use.state == _TIMEOUT:
            # stopped by time: it may not have reached its peak yet
            yield LowerBound(use.memory, use.at(sizes), factor=1)


def _wall_times_of_runs(
    uses: Sequence[_PastUse], sizes: Sequence[str]
) -> Iterator[PastValue | LowerBound]:
    for use in uses:
        if use.state == COMPLETED:
            yield PastValue(use.wall_time, use.at(sizes))
        elif use.state == _TIMEOUT:
            yield LowerBound(use.wall_time, use.at(sizes))


def _kind_of_runs(
    like: Record, uses: Sequence[_PastUse], typed: Parameters
) -> HistoryKind:
    measured = [u for u in uses if u.state == COMPLETED and u.memory]
    # a seed is no size, as in a plan
    sizes = choose_sizes(
        {name: v for name, v in use.parameters.items() if not is_seed(name)}
        for use in measured
    )
    _check_parameters(typed, {name for use in uses for name in use.parameters})
    coming = {**like.parameters, **typed}
    next_sizes = {name: _size_value(coming.get(name)) for name in sizes}
    left_out = Counter(use.state for use in uses)
    completed = left_out[COMPLETED]
    # the other two are used as bounds, so they are not left out
    del left_out[COMPLETED], left_out[_OUT_OF_MEMORY], left_out[_TIMEOUT]
    if completed > len(measured):
        left_out["without a figure of memory"] = completed - len(measured)
    spans = {}
    for name in sizes:
        every = (_size_value(use.parameters.get(name)) for use in measured)
        known = [size for size in every if not math.isnan(size)]
        spans[name] = min(known), max(known)
    return HistoryKind(
        label=like.label,
        command=kind_of_command(like.command, like.parameters),
        completed=len(measured),
        sizes={n: None if math.isnan(s) else s for n, s in next_sizes.items()},
        spans=spans,
        left_out=left_out,
        mixed=tuple(_mixed_texts(uses)),
    )


def _mixed_texts(uses: Sequence[_PastUse]) -> Iterator[str]:
    """Yield the parameters whose texts vary: another model has other needs."""
    names = dict.fromkeys(name for use in uses for name in use.parameters)
    for name in names:
        values = {use.parameters.get(name) for use in uses}
        if sum(isinstance(value, str) for value in values) > 1:
            yield name


def _size_value(value: float | str | None) -> float:
    return float(value) if value is not None and is_size(value) else math.nan


def _check_parameters(typed: Parameters, known: set[str]) -> None:
    for name, value in typed.items():
        # a text selects runs, and was checked where they were chosen
        if not isinstance(value, str) and name not in known:
            others = ", ".join(sorted(known)) or "weigh run --param gives them"
            raise UsageError(
                f"no run of this kind has the parameter {name!r} ({others})"
            )


def _similar_records(
    store: RecordStore, like: Record, typed: Parameters
) -> list[Record]:
    """Return runs of the label and command of *like*, and of the texts in *typed*."""
    # a text selects runs; a number is the size to predict for
    texts = {name: value for name, value in typed.items() if isinstance(value, str)}
    entries = choose_records(store, ())
    for name, value in texts.items():
        if not any(entry.head.parameters.get(name) == value for entry in entries):
            raise UsageError(f"no record has the parameter {name}={value}")

    def is_similar(head: RecordHead | Record) -> bool:
        has_texts = texts.items() <= head.parameters.items()
        return has_texts and _job_marks(head) == _job_marks(like)

    # the index alone decides, so only records of the kind are read
    similar = [entry for entry in entries if is_similar(entry.head)][-READ:]
    records = [read_record(entry) for entry in similar]
    if is_similar(like) and like.id not in {record.id for record in records}:
        records.append(like)  # from a file of its own
    # lists of records do not show variables
    return [record for record in records if knobs_of(record) == knobs_of(like)]


def _job_marks(of: RecordHead | Record) -> tuple[object, ...]:
    """Return what the runs of one kind have in common."""
    # a number is one whether or not it was given as a parameter, too
    texts = {name: text for name, text in of.parameters.items() if type(text) is str}
    kind, knobs = (
        kind_of_command(of.command, texts),
        knobs_in(of.command, of.parameters),
    )
    return of.label, kind, knobs


def _past_uses(record: Record) -> Iterator[_PastUse]:
    for memory, run in memory_uses_of_runs(record):
        wall_time = run.usage.wall_time
        sane = memory is None or 0 < memory < math.inf
        # a damaged or made-up record would decide on the request
        if not sane or not 0 <= wall_time < math.inf:
            what = f"a time of {wall_time:g} s" if sane else f"a memory of {memory:g} B"
            raise FormatError(
                f"record {record.id} has {what}, which is no measurement: "
                f"weigh records rm {record.id[:6]}"
            )
        wall_time = max(wall_time, _SHORTEST)
        yield _PastUse(run.state, memory or 0, wall_time, record.parameters)
