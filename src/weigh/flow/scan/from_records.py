"""``weigh scan --from``: the estimate from records, and the request for a size."""

import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from weigh import gpu_models
from weigh.errors import FormatError, UsageError
from weigh.estimate.advice import (
    GPU,
    HOST,
    FitOptions,
    MemoryLimit,
    ScanAdvice,
    SizeNeed,
    advise_from_estimate,
)
from weigh.estimate.curve import LARGEST_SIZE, size_text
from weigh.estimate.estimate import SizeEstimate, estimate
from weigh.estimate.fit import TRUSTED_RATIO
from weigh.estimate.readings import read, varying_parameters
from weigh.flow.here import Here
from weigh.flow.records.records import open_store
from weigh.flow.request.request import as_jobs_ended
from weigh.model.gpu import GpuUsage
from weigh.model.record import Record, Request
from weigh.model.report import ReportNote
from weigh.request import (
    DEFAULT_HEADROOM,
    from_usages,
    per_task,
    round_memory,
    round_time,
)
from weigh.schedulers import kind_or_first
from weigh.store.find import find_all
from weigh.store.index import read_index, read_record
from weigh.store.past_calls import StoredScan
from weigh.units import Bytes, parse_size

ALL = "all"
# memory in place of a name; no name of a GPU is written so
_GPU_SIZE = re.compile(r"[\d.]+\s?[KMGT](?:i?B)?", re.IGNORECASE)


class TypedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """As typed; see ``weigh scan --help``."""

    target: str | None = None
    gpus: tuple[str, ...] = ()  # models or sizes, several with commas
    memory: tuple[str, ...] = ()  # sizes


class ParsedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The same as numbers, the target as a size of the parameter."""

    target: float | None = None
    limits: tuple[MemoryLimit, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Return whether the user named a GPU or its memory."""
        return any(limit.of == GPU for limit in self.limits)


def parse_options(
    typed_options: TypedOptions, size_name: str, sites: Mapping[str, Bytes]
) -> ParsedOptions:
    """Read what was typed for sizes of *size_name*; *sites* are a site's own GPU names.

    Raises:
        UsageError: no such GPU, or the target is of another parameter.
        FormatError: a size, share or target does not parse.
    """
    limits = (
        *_gpu_limits(typed_options, sites),
        *(
            MemoryLimit("RAM", _memory_limit_size(word, f"--memory {word}"), HOST)
            for word in typed_options.memory
        ),
    )
    return ParsedOptions(
        target=None
        if typed_options.target is None
        else _target_size(typed_options.target, size_name),
        limits=tuple(dict.fromkeys(limits)),
    )


def limits_measured_on(records: Sequence[Record]) -> tuple[MemoryLimit, ...]:
    """Return the GPUs that *records* used, each model once."""
    gpus = (gpu for record in records if record.usage for gpu in record.usage.gpus)
    limits = [
        MemoryLimit(*_gpu_memory_named(gpu, gpu.memory_total), GPU)
        for gpu in gpus
        # a GPU that the job did not use is no limit of it
        if gpu.memory_total is not None and gpu.job_peak != 0
    ]
    return tuple(dict.fromkeys(limits))


def _gpu_memory_named(gpu_usage: GpuUsage, total: Bytes) -> tuple[str, Bytes]:
    model = gpu_models.model_of_nvml_name(gpu_usage.name, total)
    return (gpu_usage.name, total) if model is None else (model.name, model.memory)


def _target_size(text: str, size_name: str) -> float:
    """Read ``NAME=VALUE``, or the value alone."""
    name, equals, value = (part.strip() for part in text.rpartition("="))
    if equals and name != size_name:
        raise UsageError(
            f"--target {text}: the sizes are of {size_name} (write --target "
            f"{size_name}=1000)"
        )
    with suppress(ValueError):
        if 0 < float(value) <= LARGEST_SIZE:
            return float(value)
    raise FormatError(
        f"--target {text}: {value!r} is no size above 0, up to {LARGEST_SIZE:g}"
    )


def _gpu_limits(
    typed_options: TypedOptions, sites: Mapping[str, Bytes]
) -> Iterator[MemoryLimit]:
    words = [word.strip() for words in typed_options.gpus for word in words.split(",")]
    for word in filter(None, words):
        if word.lower() == ALL:
            # a site's figures come before those of the table
            yield from (MemoryLimit(name, sites[name], GPU) for name in sites)
            yield from (
                MemoryLimit(model.name, model.memory, GPU)
                for model in gpu_models.MODELS
                if model.name not in sites
            )
        else:
            yield from _gpu_limit(word, sites)


def _gpu_limit(word: str, sites: Mapping[str, Bytes]) -> Iterator[MemoryLimit]:
    """Read ``V100-32GB``, ``v100`` of either size, ``p100=11.9GiB`` or ``30GiB``."""
    name, equals, size = (part.strip() for part in word.partition("="))
    if equals and not name:
        raise UsageError(f"not a GPU: {word!r} (write it like p100=11.9GiB)")
    if equals:
        yield MemoryLimit(name, _memory_limit_size(size, f"--gpu {word}"), GPU)
        return
    if _GPU_SIZE.fullmatch(word):
        yield MemoryLimit("a GPU", _memory_limit_size(word, f"--gpu {word}"), GPU)
        return
    # a name may stand for several sizes of memory
    for model in gpu_models.gpu_models_called(word, sites=sites):
        yield MemoryLimit(model.name, model.memory, GPU)


def _memory_limit_size(text: str, option: str) -> Bytes:
    try:
        size = parse_size(text)
    except FormatError as error:
        raise FormatError(f"{option}: {error}") from None
    if not size:
        raise FormatError(f"{option}: must be above 0")
    return size


_MOST_RECORDS = 10_000  # the newest of a store
_LONGEST_COMMAND = 65  # beyond, it would be folded
_PER_TASK = "RAM is per task: the largest rank, and what a node held in addition"
_NO_GPU = "GPUs left out: GPU memory can only be measured on a GPU"


class RecordScanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The advice, the request for the target or else for what is recommended.

    ``narrow`` is what to run next; ``warnings`` what to know of all this.
    """

    advice: ScanAdvice
    request: Request | None = None
    narrow: str | None = None
    warnings: tuple[str, ...] = ()


def fit(
    records: Record | str | Sequence[Record | str], by: str | None = None
) -> SizeEstimate:
    """Fit *records* against the parameter *by*, as ``weigh scan --from`` does.

    They are records, or names as on the command line: a label stands for all of its
    records. *by* may be a product (``batch_size*length``); without it, the one
    parameter that varies.

    Raises:
        UsageError: no such parameter, one size only, sizes that are no numbers.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    given = (records,) if isinstance(records, Record | str) else tuple(records)
    found: list[Record] = []
    for one in given:
        if isinstance(one, Record):
            found.append(one)
        else:
            found += find_all(open_store(os.getcwd(), os.environ).root, one)
    return estimate(found, by or _varying_parameter(found))


def fit_named(
    here: Here, names: Sequence[str], size_name: str | None, typed_options: TypedOptions
) -> RecordScanAnswer:
    """Fit the records called *names*, or all that have the parameter, newest first.

    Raises:
        RecordNotFoundError: no such record; offers the nearest names.
        UsageError: the records carry no fit, or an option does not fit them.
        FormatError: a size, share or configuration file does not parse.
    """
    root = open_store(here.cwd, here.env).root
    settings = here.settings
    records = (
        # a record may fit several names
        list({r.id: r for name in names for r in find_all(root, name)}.values())
        if names
        else _records_with_parameter(root, size_name)
    )
    records = as_jobs_ended(here.at_store(root), records)
    by = size_name or _varying_parameter(records)
    parsed = parse_options(typed_options, by, settings.gpus)
    found = scan_answer_of_records(records, by, parsed)
    return msgspec.structs.replace(
        found, warnings=(*settings.warnings, *found.warnings)
    )


def scan_answer_of_records(
    records: Sequence[Record], size_name: str, parsed: ParsedOptions
) -> RecordScanAnswer:
    """Fit *records* (the newest first) and answer what the options ask.

    Raises:
        UsageError: the records carry no fit.
    """
    tasks = _per_task(records, size_name)
    made = estimate(tasks or records, size_name)
    used = read(records, made.by.split("*")).completed
    # the GPUs of the runs are of interest only if no other was named
    own = () if parsed.has_gpu else limits_measured_on(used)
    options = FitOptions(target=parsed.target, limits=(*own, *parsed.limits))
    advice = advise_from_estimate(made, options)
    # without a target the recommended size is what to request for
    need = advice.target or advice.recommended
    return RecordScanAnswer(
        advice=advice,
        request=None
        if need is None
        else _request_from_scan(used, need, advice, is_per_task=bool(tasks)),
        narrow=_narrow(advice),
        warnings=(
            *((_PER_TASK,) if tasks else ()),
            *_lower_bound(used),
            *made.notes,
            *_without_gpu(advice),
        ),
    )


def answer_of_scan(
    records: Sequence[Record], stored_scan: StoredScan, sites: Mapping[str, Bytes]
) -> RecordScanAnswer | None:
    """Return what a scan predicts for its target; None if it predicts nothing.

    It is the answer that ``weigh scan`` printed, so that a report of the same records
    shows the same request.
    """
    if stored_scan.target is None or stored_scan.by is None:
        return None
    typed_options = TypedOptions(target=stored_scan.target)
    try:
        return scan_answer_of_records(
            records, stored_scan.by, parse_options(typed_options, stored_scan.by, sites)
        )
    except (UsageError, FormatError):  # too few of its records are left
        return None


def request_note(
    record_scan_answer: RecordScanAnswer, scheduler: str | None
) -> ReportNote:
    """Return the request for the target, else for the recommended size, as a note."""
    advice = record_scan_answer.advice
    need = advice.target or advice.recommended
    by = advice.estimate.by
    if need is None:
        return ReportNote(
            about="request", words="none: no size is recommended", weight=1
        )
    name = f"for {by}={size_text(need.size)}"
    if record_scan_answer.request is None:
        words = f"{name}: none yet, it is too far beyond the measured sizes"
        return ReportNote(about="request", words=words, weight=1)
    flag = " ".join(
        kind_or_first(scheduler).text.directives(record_scan_answer.request)
    )
    return ReportNote(about="request", words=name, flag=flag, weight=1)


def _records_with_parameter(root: str, size_name: str | None) -> list[Record]:
    """Read the records that have one of the parameters, newest first."""
    wanted = {name.strip() for name in (size_name or "").split("*")}
    entries = [
        entry
        for entry in read_index(root).entries
        if (wanted & set(entry.head.parameters) if size_name else entry.head.parameters)
    ]
    return [read_record(entry) for entry in entries[:_MOST_RECORDS]]


def _varying_parameter(records: Sequence[Record]) -> str:
    """Return the one parameter that is a size.

    Raises:
        UsageError: there is none, or several.
    """
    if not records:
        raise UsageError("no records to fit (measure a few sizes with weigh scan)")
    names = varying_parameters(records)
    if len(names) == 1:
        return names[0]
    if names:
        raise UsageError(f"several parameters vary: name one of {', '.join(names)}")
    raise UsageError(
        "no parameter of these records varies (weigh run --param batch_size=50)"
    )


def _lower_bound(used: Sequence[Record]) -> Iterator[str]:
    missing = dict.fromkeys(part for record in used for part in record.missing)
    if missing:
        yield f"memory is a lower bound: {'; '.join(missing)}"


def _without_gpu(advice: ScanAdvice) -> Iterator[str]:
    wanted = any(limit.of == GPU for limit in advice.options.limits)
    if wanted and advice.estimate.gpu_memory is None:
        yield _NO_GPU


def _narrow(advice: ScanAdvice) -> str | None:
    """Write what to run next: the command with the size filled in, where it shows."""
    size, made = advice.next_size, advice.estimate
    if size is None:
        return None
    field = f"{{{made.by}}}"
    words = [word.replace(field, str(size)) for word in made.group.command]
    command = (
        f"weigh run --param {shlex.quote(f'{made.by}={size}')} -- {shlex.join(words)}"
    )
    # without a field in the command the size cannot be filled in
    if tuple(words) == made.group.command or len(command) > _LONGEST_COMMAND:
        return f"measure {made.by}={size} too"
    return command


def _per_task(records: Sequence[Record], size_name: str) -> list[Record]:
    """Return records with the memory of one task, if *size_name* is a number of tasks.

    Empty if it is not. A node has more tasks in one run than in another, so its memory
    would show where the tasks were placed.
    """
    found = []
    for record in records:
        size, done = record.parameters.get(size_name), record.state == "COMPLETED"
        if size is None or not done:
            found.append(record)
            continue
        tasks, memory = per_task(record)
        peak = record.usage.peak_memory if record.usage else None
        # the size is no number of tasks in this run, so it is none at all
        if size != tasks or memory is None or record.usage is None or peak is None:
            return []
        # the bounds were those of the node
        scaled = msgspec.structs.replace(
            peak, value=memory, low=min(peak.low, memory), high=memory
        )
        usage = msgspec.structs.replace(record.usage, peak_memory=scaled)
        found.append(msgspec.structs.replace(record, usage=usage))
    return found if any(record.ranks for record in found) else []


def _request_from_scan(
    used: Sequence[Record],
    size_need: SizeNeed,
    advice: ScanAdvice,
    *,
    is_per_task: bool,
) -> Request | None:
    """Request the bounds of *size_need*; CPUs and GPUs as they were used.

    The bound is the margin: no headroom goes on top. Time has the usual headroom over
    what is expected, where that is more than its bound. None where the size lies too
    far beyond what was measured to ask for anything.
    """
    if size_need.size > TRUSTED_RATIO * advice.rows[-1].size:
        return None
    request = from_usages(used)
    if is_per_task:
        upper = size_need.memory_upper
        request = msgspec.structs.replace(
            request,
            nodes=None,
            ntasks=math.ceil(size_need.size),
            ntasks_per_node=None,
            # per CPU, so that any placement of the tasks has enough
            memory_per_cpu=None
            if upper is None
            else round_memory(upper / request.cpus),
        )
    seconds = max(
        size_need.time_upper or 0.0, (size_need.time or 0.0) * (1 + DEFAULT_HEADROOM)
    )
    return msgspec.structs.replace(
        request,
        memory=None
        if size_need.memory_upper is None or is_per_task
        else round_memory(size_need.memory_upper),
        # address space does not follow from memory, and was not fitted
        virtual_memory=None,
        time_limit=round_time(seconds) if seconds else None,
        # the bounds are the margin
        headroom=0.0,
        runs=sum(row.runs for row in advice.rows),
        notes=size_need.why,
    )
