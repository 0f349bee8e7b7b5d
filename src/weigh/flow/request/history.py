"""``weigh request --from history``: what runs of the same kind say of the next one."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from weigh import config
from weigh.errors import FormatError, UsageError
from weigh.estimate.history import (
    ENOUGH,
    RISKS,
    History,
    LowerBound,
    Past,
    Risk,
    known_risk,
)
from weigh.estimate.history_groups import (
    COMMAND,
    DEFAULT,
    HOST,
    KEYS,
    LABEL,
    Parameters,
    choose_sizes,
    choose_words,
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

READ = 1000  # records that are read whole; of older ones, what the list shows
_OUT_OF_MEMORY, _TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_SHORTEST = 0.01  # seconds: /usr/bin/time's clock shows 0 for what is shorter
_UNMEASURED = "without a figure of memory"


class Words(msgspec.Struct, frozen=True):
    """What the user said: how to group, how much to risk, what the next run is like."""

    group: str = ",".join(DEFAULT)
    risk: str = "low"
    parameters: Parameters = {}
    node_memory: str | None = None


_Marks: TypeAlias = dict[str, int | float | str | None]


class _Use(msgspec.Struct, frozen=True):
    """One run of the group. ``state`` says what its figures are worth.

    ``source`` is the tool that measured it, None for weigh; ``looks`` is how often that
    sampled, None if the figure is exact. ``requested`` is what its job requested.
    """

    id: str
    state: str
    memory: Bytes | None
    wall_time: float
    parameters: Parameters
    source: str | None = None
    looks: int | None = None
    requested: Bytes | None = None


class _Group(msgspec.Struct, frozen=True):
    """The runs like the one named, oldest first; ``records`` are the latest, whole."""

    keys: tuple[str, ...]
    like: Record
    uses: tuple[_Use, ...]
    records: tuple[Record, ...]
    apart: tuple[str, ...]


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
    settings = config.load(cwd, env)
    risk = known_risk(words.risk)
    store = open_store(cwd, env)
    like = find_record(store, names[0] if names else LAST)
    group = _group(store, like, parse_keys(words.group), words.parameters)
    ended = as_jobs_ended(group.records, store.root, env)
    group = _outweighed(msgspec.structs.replace(group, records=tuple(ended)))
    kind = _kind(group, words.parameters)
    request, description = _stated_request(group, kind, risk, words)
    return answer(
        request,
        group.records,
        form=form,
        env=env,
        settings=settings,
        history=description,
    )


def _stated_request(
    group: _Group, kind: Kind, risk: Risk, words: Words
) -> tuple[Request, dict[str, object]]:
    node = _node(group.records, words.node_memory)
    if kind.completed < ENOUGH:
        return _cold(group, kind, node), history_lines.kind_document(kind)
    learnt = _learn(group, kind, risk)
    if node is not None and node < learnt.memory.value:
        learnt = msgspec.structs.replace(learnt, node=node)
    return _request(group, learnt), history_lines.document(learnt)


def _cold(group: _Group, kind: Kind, node: Bytes | None) -> Request:
    """Advise to run 3 first, and return the request of the known runs.

    What only accounting knows keeps the request that was enough.
    """
    # of one kind, whatever their arguments: nothing to warn of
    alike = (msgspec.structs.replace(r, command=kind.command) for r in group.records)
    cold = from_usages(list(alike))
    least = cold.memory
    kept = _accounts(group.uses).proven if _is_imported(group.uses) else None
    why: tuple[str, ...] = ()
    if kept is not None and (least is None or not kind.completed or kept < least):
        least = round(kept)
        why = (f"memory as requested: {format_size(least)} was enough for a job",)
    least = least if node is None or least is None else min(least, node)
    notes = (
        *why,
        *history_lines.cold_notes(kind),
        *cold.notes,
        *history_lines.kind_notes(kind),
    )
    return msgspec.structs.replace(cold, memory=least, notes=notes)


def _request(group: _Group, learnt: Learnt) -> Request:
    """Take memory and time from what was learnt, the rest from the latest records."""
    rest = from_usages(group.records, headroom=learnt.memory.margin)
    memory = learnt.node or max(LEAST_MEMORY, round_memory(learnt.memory.value))
    if learnt.memory.is_proven:  # rounded up, it would be more
        memory = round(learnt.memory.value)
    virtual = rest.virtual_memory
    rising = any(one.usage.growing for one in group.records if one.usage)
    return msgspec.structs.replace(
        rest,
        memory=memory,
        virtual_memory=None if virtual is None else max(virtual, memory),
        time_limit=round_time(learnt.time.value),
        runs=learnt.memory.runs,
        headroom=learnt.memory.margin,
        notes=(*history_lines.notes(learnt), *((STILL_RISING,) if rising else ())),
    )


def _learn(group: _Group, kind: Kind, risk: Risk) -> Learnt:
    names = tuple(kind.sizes)
    coming = [math.nan if size is None else size for size in kind.sizes.values()]
    if _is_imported(group.uses) and not names:
        return _learn_imported(group, kind)
    words, said = tuple(kind.words), tuple(kind.words.values())
    memory = History.of(_memories(group.uses, names, words), names, words, risk=risk)
    # an hour too many costs nothing once the job ends; one too few costs all of it
    time = History.of(_times(group.uses, names, words), names, words, risk="low")
    others: dict[str, Bytes] = {}
    for other in RISKS:
        if other != risk:
            others[other] = round(memory.predict(coming, said, risk=other).value)
    return Learnt(
        kind=kind,
        memory=memory.predict(coming, said),
        time=time.predict(coming, said),
        others=others,
    )


def _learn_imported(group: _Group, kind: Kind) -> Learnt:
    """Learn from figures that were sampled, and from the requests of jobs."""
    memory = _accounts(group.uses).predict()
    if memory is None:  # checked before: at least 3 have a figure
        raise UsageError("no memory was sampled in these jobs")
    time = History.of(_times(group.uses, (), ()), risk="low")
    return Learnt(kind=kind, memory=memory, time=time.predict(), others={})


def _is_imported(uses: Sequence[_Use]) -> bool:
    return any(use.source is not None for use in uses)


def _accounts(uses: Sequence[_Use]) -> Accounts:
    accounts = Accounts()
    for use in uses:
        if use.state == COMPLETED:
            seen = Seen(use.memory or 0, use.looks, use.requested, use.wall_time)
            accounts.add(seen)
        elif use.state == _OUT_OF_MEMORY:
            accounts.add_kill(max(use.memory or 0, use.requested or 0))
    return accounts


def _outweighed(group: _Group) -> _Group:
    """Leave out imported runs where weigh measured the same job, or enough others."""
    exact = {
        (record.job.id, record.job.element or 0)
        for record in group.records
        if record.job and _source(record) is None
    }
    same = {
        record.id
        for record in group.records
        if record.job
        and _source(record) is not None
        and (record.job.id, record.job.element or 0) in exact
    }
    cpus = group.like.allocation.cpus if group.like.allocation else None
    other = {
        record.id
        for record in group.records
        if _source(record) is not None
        and record.allocation is not None
        and cpus is not None
        and record.allocation.cpus not in {None, cpus}
    }
    own = sum(use.source is None and use.state == COMPLETED for use in group.uses)
    less = {
        use.id
        for use in group.uses
        if own >= ENOUGH and use.source is not None and use.state == COMPLETED
    }
    apart = list(group.apart)
    if other - less:
        apart.append(f"{len(other - less)} more with another number of CPUs left out")
    if less:
        apart.append(f"{len(less)} imported left out: weigh's own {own} are exact")
    gone = same | other | less
    return msgspec.structs.replace(
        group,
        uses=tuple(use for use in group.uses if use.id not in gone),
        records=tuple(one for one in group.records if one.id not in gone),
        apart=tuple(apart),
    )


def _source(record: Record) -> str | None:
    return record.monitor.source if record.monitor else None


def _memories(
    uses: Sequence[_Use], sizes: Sequence[str], words: Sequence[str]
) -> list[Past | LowerBound]:
    past: list[Past | LowerBound] = []
    for use in uses:
        if use.memory is None:
            continue
        at = _at(use.parameters, sizes)
        if use.state == COMPLETED:
            seen = Seen(use.memory, use.looks, use.requested)
            past.append(Past(seen.upper, at, use.wall_time, _words_of(use, words)))
        elif use.state == _OUT_OF_MEMORY:
            past.append(LowerBound(use.memory, at))
        elif use.state == _TIMEOUT:
            past.append(LowerBound(use.memory, at, factor=1))
    return past


def _times(
    uses: Sequence[_Use], sizes: Sequence[str], words: Sequence[str]
) -> list[Past | LowerBound]:
    past: list[Past | LowerBound] = []
    for use in uses:
        at = _at(use.parameters, sizes)
        if use.state == COMPLETED:
            past.append(Past(use.wall_time, at, words=_words_of(use, words)))
        elif use.state == _TIMEOUT:
            past.append(LowerBound(use.wall_time, at))
    return past


def _at(parameters: Parameters, sizes: Sequence[str]) -> tuple[float, ...]:
    values = (parameters.get(size) for size in sizes)
    return tuple(
        float(value) if value is not None and is_size(value) else math.nan
        for value in values
    )


def _words_of(use: _Use, names: Sequence[str]) -> tuple[str | None, ...]:
    values = (use.parameters.get(name) for name in names)
    return tuple(value if isinstance(value, str) else None for value in values)


def _kind(group: _Group, said: Parameters) -> Kind:
    completed = [use for use in group.uses if use.state == COMPLETED]
    measured = [use for use in completed if use.memory is not None]
    names = choose_sizes((use.parameters for use in measured), group.keys)
    _check_parameters(said, group.uses)
    coming = {**group.like.parameters, **said}
    hosts = {record.host.name for record in group.records if record.host}
    return Kind(
        keys=group.keys,
        label=group.like.label,
        command=kind_of(group.like.command, group.like.parameters),
        completed=len(measured),
        sizes={name: _size(coming.get(name)) for name in names},
        spans={name: _span(name, measured) for name in names},
        words={name: _word(coming.get(name)) for name in _word_names(measured, group)},
        hosts=tuple(sorted(hosts)),
        left_out=_left_out(group.uses),
        apart=group.apart,
        mixed=_words_that_vary(group),
    )


def _word_names(uses: Sequence[_Use], group: _Group) -> list[str]:
    return choose_words((use.parameters for use in uses), group.keys)


def _word(value: float | str | None) -> str | None:
    return value if isinstance(value, str) else None


def _size(value: float | str | None) -> float | None:
    return float(value) if value is not None and is_size(value) else None


def _span(name: str, uses: Sequence[_Use]) -> tuple[float, float]:
    sizes = [size for use in uses if (size := _size(use.parameters.get(name)))]
    return min(sizes, default=0), max(sizes, default=0)


def _left_out(uses: Sequence[_Use]) -> dict[str, int]:
    counting = {COMPLETED, _OUT_OF_MEMORY, _TIMEOUT}
    left = Counter(use.state for use in uses if use.state not in counting)
    left[_UNMEASURED] += sum(u.state == COMPLETED and u.memory is None for u in uses)
    return {why: number for why, number in left.items() if number}


def _check_parameters(said: Parameters, uses: Sequence[_Use]) -> None:
    known = {name for use in uses for name in use.parameters}
    for name, value in said.items():
        if name not in known:
            there = ", ".join(sorted(known)) or "weigh run --param gives them"
            raise UsageError(
                f"no run of this kind has the parameter {name!r} ({there})"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name}={value} is no size")


def _words_that_vary(group: _Group) -> dict[str, int]:
    """Count the values of each text parameter: another model has other needs."""
    words: dict[str, set[str]] = {}
    for use in group.uses:
        for name, value in use.parameters.items():
            if isinstance(value, str) and name not in group.keys:
                words.setdefault(name, set()).add(value)
    return {name: len(values) for name, values in words.items() if len(values) > 1}


def _group(
    store: Store, like: Record, keys: tuple[str, ...], said: Parameters
) -> _Group:
    """Find the runs that agree with *like*, as *said* otherwise, in all of *keys*."""
    if keys == (LABEL,) and like.label is None:
        raise UsageError(f"record {like.id} has no label: --group command")
    wanted = _marks(like, keys, {**like.parameters, **said})
    marked = [
        (one, _marks(one.head, keys, one.head.parameters)) for one in choose(store, ())
    ]
    _check_keys(keys, wanted, [marks for _, marks in marked])
    same = [one for one, marks in marked if all(marks[k] == wanted[k] for k in keys)]
    late = [read_record(one) for one in same[-READ:]]
    own = _marks(like, keys, like.parameters)
    if like.id not in {one.head.id for one in same} and own == wanted:
        late.append(like)  # from a file of its own
    early = [_of_head(one.head) for one in same[:-READ]]
    alike = [one for one in late if knobs_of(one) == knobs_of(like)]
    if len(alike) < len(late):
        late, early = alike, []  # heads do not show variables
    if any(_source(one) for one in late):
        early = []  # their heads do not show how they were measured
    if HOST in keys:
        late, early = [one for one in late if _host(one) == _host(like)], []
    return _Group(
        keys=keys,
        like=like,
        uses=(*early, *(use for record in late for use in _of_record(record))),
        records=tuple(late),
        apart=tuple(_apart([marks for _, marks in marked], wanted, keys)),
    )


def _check_keys(keys: Sequence[str], wanted: _Marks, others: Sequence[_Marks]) -> None:
    for key in keys:
        nobody = all(marks.get(key) is None for marks in (wanted, *others))
        if nobody and key not in KEYS:
            raise UsageError(
                f"nothing to group by: no record has a parameter {key!r} "
                f"(others: {', '.join(KEYS)})"
            )


def _marks(of: Head | Record, keys: Sequence[str], parameters: Parameters) -> _Marks:
    """Return what *of* is grouped by; hosts differ when it is read whole."""
    marks: _Marks = {key: parameters.get(key) for key in keys}
    # a number is one whether or not it was given as a parameter, too
    words = {name: one for name, one in of.parameters.items() if isinstance(one, str)}
    own = knobs_in(of.command, of.parameters)
    command = " ".join((*kind_of(of.command, words), *own))
    return {**marks, LABEL: of.label, COMMAND: command, HOST: None}


def _apart(
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


def _host(record: Record) -> str | None:
    return record.host.name if record.host else None


def _of_record(record: Record) -> Iterator[_Use]:
    for memory, run in uses_of(record):
        _check(record.id, memory, run.usage.wall_time)
        source, monitor = _source(record), record.monitor
        sampled = source is not None and monitor is not None and monitor.interval
        looks = monitor.samples if monitor is not None and sampled else None
        yield _Use(
            id=record.id,
            state=run.state,
            # what was never sampled shows its start at most
            memory=None if looks == 0 and run.state == COMPLETED else memory,
            wall_time=max(run.usage.wall_time, _SHORTEST),
            parameters=record.parameters,
            source=source,
            looks=looks,
            requested=record.allocation.memory if record.allocation else None,
        )


def _of_head(head: Head) -> _Use:
    usage = head.usage
    memory = usage.max_process_memory if usage else None
    if usage and usage.peak_memory:
        memory = usage.peak_memory.value
    wall_time = (usage.wall_time if usage else None) or _SHORTEST
    _check(head.id, memory, wall_time)
    return _Use(head.id, head.state, memory, wall_time, head.parameters)


def _check(record_id: str, memory: float | None, wall_time: float) -> None:
    sane = memory is None or 0 < memory < math.inf
    if not sane or not 0 <= wall_time < math.inf:
        what = f"a time of {wall_time:g} s" if sane else f"a memory of {memory:g} B"
        raise FormatError(
            f"record {record_id} has {what}, which is no measurement: "
            f"weigh records rm {record_id[:6]}"
        )


def _node(records: Sequence[Record], said: str | None) -> Bytes | None:
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
