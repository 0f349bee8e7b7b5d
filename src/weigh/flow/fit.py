"""``weigh fit``: records in; curves, what fits where, and the request for more."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh import catalogue, config
from weigh.errors import FormatError, UsageError
from weigh.estimate.advice import Advice, Limit, Need, Wanted, advise
from weigh.estimate.estimate import Estimate, estimate
from weigh.flow.records import open_store
from weigh.model.gpu import GpuUsage
from weigh.model.record import Record, Request
from weigh.request import DEFAULT_HEADROOM, from_usages, round_memory, round_time
from weigh.store.find import find_all
from weigh.store.heads import read_index, read_record
from weigh.units import parse_size

ALL = "all"
_MOST_RECORDS = 10_000


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What to say of the fit, as typed; see ``weigh fit --help``."""

    target: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_memory: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    near: str = "95%"
    level: str = "95%"


class Answer(msgspec.Struct, frozen=True):
    """The advice, the request for the target, and what to know about both."""

    advice: Advice
    request: Request | None = None
    warnings: tuple[str, ...] = ()


def fit(records: Sequence[Record], by: str) -> Estimate:
    """Fit *records* against the parameter *by*, as ``weigh fit`` does.

    *by* may be a product (``batch_size*length``), or a choice of several names.

    Raises:
        UsageError: no such parameter, one size only, sizes that are no numbers.
    """
    return estimate(tuple(records), by)


def fit_named(
    names: Sequence[str],
    by: str,
    wishes: Wishes,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> Answer:
    """Fit the records called *names*, or all that have the parameter, newest first.

    Raises:
        RecordNotFoundError: no such record; offers the nearest names.
        UsageError: the records carry no fit, or a wish does not go with them.
        FormatError: a size, share or configuration file does not parse.
    """
    root = open_store(cwd, env).root
    records = _named(root, names) if names else _having(root, by)
    return answer(records, by, wishes, cwd=cwd, env=env)


def answer(
    records: Sequence[Record],
    by: str,
    wishes: Wishes,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> Answer:
    """Fit *records* (the newest first) and work out what the wishes come to.

    Raises:
        UsageError: the records carry no fit, or a wish does not go with them.
        FormatError: a size, share or configuration file does not parse.
    """
    settings = config.load(cwd, env)
    made = estimate(records, by)
    used = [record for record in records if record.state == "COMPLETED"]
    wanted = Wanted(
        target=_target(wishes.target, made.by),
        limits=tuple(_limits(wishes, used, settings)),
        near=_share(wishes.near, "--near"),
        level=_share(wishes.level, "--level"),
    )
    advice = advise(made, wanted)
    asked = None if advice.target is None else _request(used, advice.target, advice)
    return Answer(advice, asked, (*settings.warnings, *made.notes))


def _named(root: str, names: Sequence[str]) -> list[Record]:
    found = (record for name in names for record in find_all(root, name))
    return list({record.id: record for record in found}.values())


def _having(root: str, by: str) -> list[Record]:
    """Read the records with the parameters, newest first; the newest one's command."""
    wanted = {name.strip() for part in by.split("*") for name in part.split(",")}
    entries = [
        entry
        for entry in read_index(root).entries
        if wanted <= set(entry.head.parameters)
    ]
    return [read_record(entry) for entry in entries[:_MOST_RECORDS]]


def _target(text: str | None, by: str) -> float | None:
    """Read ``NAME=VALUE``, or the value alone; of a product, the product's value."""
    if text is None:
        return None
    name, equals, value = text.rpartition("=")
    if equals and name.strip() not in {by, *by.split("*")}:
        raise UsageError(
            f"--target {text}: the sizes are of {by} (write --target {by}=1000)"
        )
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise FormatError(f"--target {text}: {value!r} is no size above 0")
    return number


def _limits(
    wishes: Wishes, used: Sequence[Record], settings: config.Config
) -> Iterator[Limit]:
    gpus = [gpu for record in used if record.usage for gpu in record.usage.gpus]
    for words in wishes.gpus:
        for word in filter(None, (part.strip() for part in words.split(","))):
            if word == ALL:
                yield from (
                    Limit(model.name, model.memory, "gpu_memory")
                    for model in catalogue.all_models()
                )
            else:
                yield from (
                    Limit(model.name, model.memory, "gpu_memory")
                    for model in catalogue.called(word, sites=settings.gpus)
                )
    for word in wishes.gpu_memory:
        size = parse_size(word)
        yield Limit("GPU", size, "gpu_memory")
    if gpus and not (wishes.gpus or wishes.gpu_memory):
        yield from _measured_on(gpus[0])
    for word in wishes.memory:
        size = parse_size(word)
        yield Limit("RAM", size, "memory")


def _measured_on(gpu: GpuUsage) -> Iterator[Limit]:
    if gpu.memory_total is not None:
        model = catalogue.matching(gpu.name, gpu.memory_total)
        if model is None:
            yield Limit(gpu.name, gpu.memory_total, "gpu_memory")
        else:
            yield Limit(model.name, model.memory, "gpu_memory")


def _share(text: str, option: str) -> float:
    """Read ``95%`` or ``0.95``."""
    word = text.strip()
    try:
        number = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise FormatError(f"{option} {text}: not a share (write it like 95% or 0.95)")
    return number


def _request(used: Sequence[Record], need: Need, advice: Advice) -> Request:
    """Ask for the bounds of *need*; CPUs and GPUs as they were used.

    The bound is the margin: no headroom goes on top. Time has the usual headroom over
    what is expected, where that is more than its bound.
    """
    asked = from_usages(used)
    seconds = max(need.time_upper or 0.0, (need.time or 0.0) * (1 + DEFAULT_HEADROOM))
    return msgspec.structs.replace(
        asked,
        memory=None if need.memory_upper is None else round_memory(need.memory_upper),
        virtual_memory=None,
        time_limit=round_time(seconds) if seconds else None,
        headroom=0.0,
        runs=sum(row.runs for row in advice.rows),
        notes=need.why,
    )
