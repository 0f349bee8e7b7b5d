"""``weigh request --from history``: what runs of the same kind say of the next one."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from weigh import config
from weigh.errors import FormatError, UsageError
from weigh.estimate.history import ENOUGH, History, LowerBound, Past, Risk, known_risk
from weigh.estimate.history_groups import (
    COMMAND,
    DEFAULT,
    HOST,
    KEYS,
    LABEL,
    Parameters,
    choose_sizes,
    is_size,
    parse_keys,
)
from weigh.estimate.sampled import Accounts, Seen
from weigh.flow.records.records import Store, choose, find_record, open_store
from weigh.flow.request.request import Answer, answer, as_jobs_ended
from weigh.model.record import Record, Request
from weigh.need import knobs_in, knobs_of
from weigh.planning.record_match import kind_of
from weigh.render import history_lines
from weigh.render.history_lines import Kind, Learnt
from weigh.request import (
    COMPLETED,
    LEAST_MEMORY,
    STILL_RISING,
    from_usages,
    round_memory,
    round_time,
    uses_of,
)
from weigh.store.find import LAST
from weigh.store.index import Head, read_record
from weigh.units import Bytes, format_size, parse_size

READ = 1000  # the latest records that are learnt from
_OUT_OF_MEMORY, _TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_SHORTEST = 0.01  # seconds: /usr/bin/time's clock shows 0 for what is shorter


class Words(msgspec.Struct, frozen=True):
    """What the user said: how to group, how much to risk, what the next run is like."""

    group: str = ",".join(DEFAULT)
    risk: str = "low"
    parameters: Parameters = {}
    node_memory: str | None = None


_Marks: TypeAlias = dict[str, int | float | str | None]


class _PastUse(msgspec.Struct, frozen=True):
    """One run. ``seen`` is its memory, or the limit that stopped it."""

    state: str
    seen: Seen
    wall_time: float
    parameters: Parameters

    def at(self, sizes: Sequence[str]) -> tuple[float, ...]:
        """Return its *sizes*, NaN where one is unknown."""
        return tuple(_size(self.parameters.get(size)) for size in sizes)


class _SimilarRuns(msgspec.Struct, frozen=True):
    """The runs like the one named, oldest first; ``apart`` are notes on others."""

    keys: tuple[str, ...]
    like: Record
    records: tuple[Record, ...]
    apart: tuple[str, ...]

    @property
    def is_imported(self) -> bool:
        """Return whether another tool measured one of them."""
        return any(map(_source, self.records))


def request_from_history(
    names: Sequence[str],
    words: Words,
    *,
    form: str | None = None,
    cwd: str,
    env: Mapping[str, str],
) -> Answer:
    """Work out the request for the next run like the record named, or the last one.

    With fewer than 3 completed runs the advice is to run 3 first, in addition to the
    request of the known ones.

    Raises:
        RecordNotFoundError: no such record.
        UsageError: several names, a parameter nobody has, or nothing measured.
        FormatError: a size that is none, or a record whose figures cannot be.
    """
    if len(names) > 1:
        raise UsageError("history is of one job at a time: name one record of it")
    risk = known_risk(words.risk)
    store = open_store(cwd, env)
    like = find_record(store, names[0] if names else LAST)
    runs = _similar_runs(store, like, parse_keys(words.group), words.parameters)
    ended = tuple(as_jobs_ended(runs.records, store.root, env))
    runs = _exact_if_enough(msgspec.structs.replace(runs, records=ended))
    uses = [use for record in runs.records for use in _past_uses(record)]
    kind = _kind(runs, uses, words.parameters)
    node = _node_memory(runs.records, words.node_memory)
    description: dict[str, object]
    if kind.completed < ENOUGH:
        request = _request_of_few(runs, uses, kind, node)
        description = history_lines.kind_document(kind)
    else:
        learnt = _learn(runs, uses, kind, risk)
        if node is not None and node < learnt.memory.value:
            learnt = msgspec.structs.replace(learnt, node=node)
        request = _request_of_many(runs, learnt)
        description = history_lines.document(learnt)
    return answer(
        request,
        runs.records,
        form=form,
        env=env,
        settings=config.load(cwd, env),
        history=description,
    )


def _request_of_few(
    runs: _SimilarRuns, uses: Sequence[_PastUse], kind: Kind, node: Bytes | None
) -> Request:
    """Advise to run 3 first, and return the request of the known runs.

    What only accounting knows keeps the request that was enough.
    """
    # of one kind, whatever their arguments: nothing to warn of
    alike = (msgspec.structs.replace(r, command=kind.command) for r in runs.records)
    request = from_usages(list(alike))
    memory = request.memory
    enough = _accounts(uses).proven if runs.is_imported else None
    why: tuple[str, ...] = ()
    if enough is not None and not (kind.completed and memory and memory <= enough):
        memory = round(enough)
        why = (f"memory as requested: {format_size(memory)} was enough for a job",)
    if node is not None and memory is not None:
        memory = min(memory, node)
    notes = (
        *why,
        *history_lines.cold_notes(kind),
        *request.notes,
        *history_lines.kind_notes(kind),
    )
    return msgspec.structs.replace(request, memory=memory, notes=notes)


def _request_of_many(runs: _SimilarRuns, learnt: Learnt) -> Request:
    """Take memory and time from what was learnt, the rest from the records."""
    rest = from_usages(runs.records, headroom=learnt.memory.margin)
    memory = learnt.node or max(LEAST_MEMORY, round_memory(learnt.memory.value))
    if learnt.memory.is_proven:  # rounded up, it would be more
        memory = round(learnt.memory.value)
    virtual = rest.virtual_memory
    rising = any(one.usage.growing for one in runs.records if one.usage)
    return msgspec.structs.replace(
        rest,
        memory=memory,
        virtual_memory=None if virtual is None else max(virtual, memory),
        time_limit=round_time(learnt.time.value),
        runs=learnt.memory.runs,
        headroom=learnt.memory.margin,
        notes=(*history_lines.notes(learnt), *((STILL_RISING,) if rising else ())),
    )


def _learn(
    runs: _SimilarRuns, uses: Sequence[_PastUse], kind: Kind, risk: Risk
) -> Learnt:
    sizes = tuple(kind.sizes)
    coming = [math.nan if size is None else size for size in kind.sizes.values()]
    # an hour too many costs nothing once the job ends; one too few costs all of it
    time = History.of(list(_times(uses, sizes)), sizes, risk="low").predict(coming)
    if runs.is_imported and not sizes:
        memory = _accounts(uses).predict()
        if memory is None:  # checked before: at least 3 have a figure
            raise UsageError("no memory was sampled in these jobs")
        return Learnt(kind=kind, memory=memory, time=time)
    history = History.of(list(_memories(uses, sizes)), sizes, risk=risk)
    return Learnt(kind=kind, memory=history.predict(coming), time=time)


def _accounts(uses: Sequence[_PastUse]) -> Accounts:
    accounts = Accounts()
    for use in uses:
        if use.state == COMPLETED:
            accounts.add(use.seen)
        elif use.state == _OUT_OF_MEMORY:
            accounts.add_kill(max(use.seen.value, use.seen.requested or 0))
    return accounts


def _memories(
    uses: Sequence[_PastUse], sizes: Sequence[str]
) -> Iterator[Past | LowerBound]:
    for use in uses:
        if use.state == COMPLETED and use.seen.is_well_seen:
            yield Past(use.seen.upper, use.at(sizes), use.wall_time)
        elif use.state == _OUT_OF_MEMORY and use.seen.value:
            yield LowerBound(use.seen.value, use.at(sizes))
        elif use.state == _TIMEOUT and use.seen.value:
            yield LowerBound(use.seen.value, use.at(sizes), factor=1)


def _times(
    uses: Sequence[_PastUse], sizes: Sequence[str]
) -> Iterator[Past | LowerBound]:
    for use in uses:
        if use.state == COMPLETED:
            yield Past(use.wall_time, use.at(sizes))
        elif use.state == _TIMEOUT:
            yield LowerBound(use.wall_time, use.at(sizes))


def _kind(runs: _SimilarRuns, uses: Sequence[_PastUse], said: Parameters) -> Kind:
    measured = [u for u in uses if u.state == COMPLETED and u.seen.is_well_seen]
    sizes = choose_sizes((use.parameters for use in measured), runs.keys)
    _check_parameters(said, {name for use in uses for name in use.parameters})
    coming = {**runs.like.parameters, **said}
    next_sizes = {name: _size(coming.get(name)) for name in sizes}
    left_out = Counter(use.state for use in uses)
    for state in (COMPLETED, _OUT_OF_MEMORY, _TIMEOUT):
        left_out.pop(state, None)
    completed = sum(use.state == COMPLETED for use in uses)
    if completed > len(measured):
        left_out["without a figure of memory"] = completed - len(measured)
    return Kind(
        keys=runs.keys,
        label=runs.like.label,
        command=kind_of(runs.like.command, runs.like.parameters),
        completed=len(measured),
        sizes={n: None if math.isnan(s) else s for n, s in next_sizes.items()},
        spans={name: _span(name, measured) for name in sizes},
        hosts=tuple(sorted({r.host.name for r in runs.records if r.host})),
        left_out=left_out,
        apart=(*runs.apart, *_mixed_words(uses, runs.keys)),
    )


def _mixed_words(uses: Sequence[_PastUse], keys: Sequence[str]) -> Iterator[str]:
    """Report texts that vary: another model has other needs."""
    values: dict[str, set[str]] = {}
    for use in uses:
        for name, value in use.parameters.items():
            if isinstance(value, str) and name not in keys:
                values.setdefault(name, set()).add(value)
    for name, words in values.items():
        if len(words) > 1:
            group = ",".join((*keys, name))
            yield f"{len(words)} kinds of {name} mixed: --group {group} keeps to one"


def _size(value: float | str | None) -> float:
    return float(value) if value is not None and is_size(value) else math.nan


def _span(name: str, uses: Sequence[_PastUse]) -> tuple[float, float]:
    every = (_size(use.parameters.get(name)) for use in uses)
    sizes = [size for size in every if not math.isnan(size)]
    return min(sizes, default=0), max(sizes, default=0)


def _check_parameters(said: Parameters, known: set[str]) -> None:
    for name, value in said.items():
        if name not in known:
            others = ", ".join(sorted(known)) or "weigh run --param gives them"
            raise UsageError(
                f"no run of this kind has the parameter {name!r} ({others})"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name}={value} is no size")


def _similar_runs(
    store: Store, like: Record, keys: tuple[str, ...], said: Parameters
) -> _SimilarRuns:
    """Find the runs that agree with *like*, as *said* otherwise, in all of *keys*."""
    if keys == (LABEL,) and like.label is None:
        raise UsageError(f"record {like.id} has no label: --group command")
    wanted = _marks(like, keys, {**like.parameters, **said})
    marked = [
        (one, _marks(one.head, keys, one.head.parameters)) for one in choose(store, ())
    ]
    for key in keys:
        values = [wanted.get(key), *(marks.get(key) for _, marks in marked)]
        if key not in KEYS and not any(value is not None for value in values):
            raise UsageError(
                f"nothing to group by: no record has a parameter {key!r} "
                f"(others: {', '.join(KEYS)})"
            )
    same = [one for one, marks in marked if all(marks[k] == wanted[k] for k in keys)]
    records = [read_record(one) for one in same[-READ:]]
    is_kept = like.id in {one.head.id for one in same}
    if not is_kept and _marks(like, keys, like.parameters) == wanted:
        records.append(like)  # from a file of its own
    # lists of records do not show variables, nor hosts
    records = [one for one in records if knobs_of(one) == knobs_of(like)]
    if HOST in keys:
        records = [one for one in records if _host(one) == _host(like)]
    apart = _runs_apart([marks for _, marks in marked], wanted, keys)
    return _SimilarRuns(keys, like, tuple(records), tuple(apart))


def _host(record: Record) -> str | None:
    return record.host.name if record.host else None


def _marks(of: Head | Record, keys: Sequence[str], parameters: Parameters) -> _Marks:
    """Return what *of* is grouped by; hosts differ when it is read whole."""
    marks: _Marks = {key: parameters.get(key) for key in keys}
    # a number is one whether or not it was given as a parameter, too
    words = {name: one for name, one in of.parameters.items() if isinstance(one, str)}
    own = knobs_in(of.command, of.parameters)
    command = " ".join((*kind_of(of.command, words), *own))
    return {**marks, LABEL: of.label, COMMAND: command, HOST: None}


def _runs_apart(
    others: Sequence[_Marks], wanted: _Marks, keys: Sequence[str]
) -> Iterator[str]:
    """Report runs that have the label or the command, but not both."""
    if not {LABEL, COMMAND} <= set(keys):
        return
    for one, other in ((LABEL, COMMAND), (COMMAND, LABEL)):
        near = sum(
            marks[one] == wanted[one] is not None and marks[other] != wanted[other]
            for marks in others
        )
        if near:
            rest = ",".join(key for key in keys if key != other)
            yield (
                f"{near} more of the same {one} and another {other} not counted: "
                f"--group {rest} counts them"
            )


def _exact_if_enough(runs: _SimilarRuns) -> _SimilarRuns:
    """Leave out imported runs where weigh measured the same job, or enough others.

    Those of another number of CPUs are another kind of job.
    """
    exact = [one for one in runs.records if _source(one) is None]
    measured = {(r.job.id, r.job.element or 0) for r in exact if r.job}
    completed = sum(one.state == COMPLETED for one in exact)
    cpus = _cpus(runs.like)
    kept, other_cpus, outweighed = [], 0, 0
    for record in runs.records:
        job = record.job
        if _source(record) is None:
            kept.append(record)
        elif job is not None and (job.id, job.element or 0) in measured:
            continue
        elif cpus is not None and _cpus(record) not in {None, cpus}:
            other_cpus += 1
        elif completed >= ENOUGH and record.state == COMPLETED:
            outweighed += 1
        else:
            kept.append(record)
    apart = list(runs.apart)
    if other_cpus:
        apart.append(f"{other_cpus} more with another number of CPUs left out")
    if outweighed:
        apart.append(
            f"{outweighed} imported left out: weigh's own {completed} are exact"
        )
    return msgspec.structs.replace(runs, records=tuple(kept), apart=tuple(apart))


def _cpus(record: Record) -> int | None:
    return record.allocation.cpus if record.allocation else None


def _source(record: Record) -> str | None:
    return record.monitor.source if record.monitor else None


def _past_uses(record: Record) -> Iterator[_PastUse]:
    monitor = record.monitor
    looks = None
    if monitor is not None and monitor.source is not None and monitor.interval:
        looks = monitor.samples
    requested = record.allocation.memory if record.allocation else None
    for memory, run in uses_of(record):
        wall_time = run.usage.wall_time
        sane = memory is None or 0 < memory < math.inf
        if not sane or not 0 <= wall_time < math.inf:
            what = f"a time of {wall_time:g} s" if sane else f"a memory of {memory:g} B"
            raise FormatError(
                f"record {record.id} has {what}, which is no measurement: "
                f"weigh records rm {record.id[:6]}"
            )
        wall_time = max(wall_time, _SHORTEST)
        seen = Seen(memory or 0, looks, requested, wall_time)
        yield _PastUse(run.state, seen, wall_time, record.parameters)


def _node_memory(records: Sequence[Record], said: str | None) -> Bytes | None:
    """Return the memory of a node: as typed, or the largest node that was used."""
    if said is not None:
        node = parse_size(said)
        if not node:
            raise UsageError("--node-memory 0 leaves nothing to ask for")
        return node
    sizes = [
        record.host.memory
        for record in records
        if record.allocation and record.host and record.host.memory
    ]
    return max(sizes, default=None)
