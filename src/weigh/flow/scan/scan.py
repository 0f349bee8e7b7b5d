"""``weigh scan``: run a command at a few sizes, and predict what other sizes need."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from statistics import median

import msgspec

from weigh.errors import (
    FAILED,
    SIGNAL_BASE,
    FormatError,
    RecordNotFoundError,
    UsageError,
)
from weigh.estimate.readings import gpu_memory
from weigh.estimate.scaling import (
    CpuRow,
    CpuScan,
    cpu_efficiency,
    cpus_that_pay,
)
from weigh.flow.here import Here
from weigh.flow.records.records import open_store
from weigh.flow.run.run_measured import InterruptedRun, error_in, run_measured
from weigh.flow.scan.from_records import (
    ParsedOptions,
    RecordScanAnswer,
    TypedOptions,
    parse_options,
    scan_answer_of_records,
)
from weigh.model.record import Record, Usage
from weigh.render.printable import peak_text
from weigh.request import COMPLETED, from_usages
from weigh.store.find import find_all
from weigh.store.identity import new_id
from weigh.store.location import make_folder
from weigh.store.past_calls import StoredScan, append_call, last_scan
from weigh.sweep.grid import make_grid
from weigh.sweep.quoting import bash_quoted
from weigh.sweep.tasks import field_names, fill_fields, match_fields
from weigh.sweep.values import ParameterAxis, parse_axis, typed_value
from weigh.units import Seconds, format_duration, format_size
from weigh.usage_needs import need_notes

_OUTPUT = "output"
_LONGEST_NAME = 80
# states that need no second run: more memory is not there
_DONE = frozenset(("COMPLETED", "OUT_OF_MEMORY"))

Say = Callable[[str], None]
Texts = dict[str, str]


class ScanRuns:
    """The records of a scan as they come in, newest last."""

    def __init__(
        self,
        plan: StoredScan,
        root: str,
        env: Mapping[str, str],
        *,
        say: Say,
        known: Sequence[Record],
    ) -> None:
        self.plan = plan
        self.root = root
        self.env = {**env, "WEIGH_DIR": root}
        self.say = say
        self.records = list(known)
        self.exit_code = 0
        self._folder = make_folder(root, _OUTPUT, plan.label)

    def all(self, runs: Sequence[Texts], repeat: int) -> None:
        """Run the sizes without a record, until one does not complete."""
        self.say(f"scan {self.plan.label}: output in {os.path.relpath(self._folder)}")
        try:
            for texts in runs:
                # runs of an earlier scan that is resumed count
                if self._count(texts) < repeat and not self.one(texts):
                    return
        except InterruptedRun as interrupted:
            name = signal.Signals(interrupted.number).name
            self.exit_code = SIGNAL_BASE + interrupted.number
            self.say(f"stopped by {name}; the records are kept")

    def one(self, texts: Texts) -> bool:
        """Run one size; return False if larger ones need not be tried."""
        log = os.path.join(
            self._folder, f"{_scan_file_name(texts)}.{self._number(texts)}.log"
        )
        with self.surroundings(texts) as env:
            record = run_measured(
                fill_fields(self.plan.command, texts),
                label=self.plan.label,
                texts=texts,
                log=log,
                root=self.root,
                cwd=self.plan.cwd,
                env=env,
            )
        self.records.append(record)
        self.say(_scan_line(texts, record))
        if record.state == "OUT_OF_MEMORY":
            self.say("larger sizes would not fit either: the scan stops")
        elif record.state != "COMPLETED":
            ended_by = SIGNAL_BASE + (record.signal or 0)
            code = ended_by if record.exit_code is None else record.exit_code
            self.exit_code = code or FAILED
            self.say(f"it printed: {error_in(log) or 'nothing'}")
            self.say(f"its output: {os.path.relpath(log)}")
        return record.state == "COMPLETED"

    @contextmanager
    def surroundings(self, texts: Mapping[str, str]) -> Iterator[dict[str, str]]:  # noqa: ARG002 - for scans of something else
        """Yield the environment of a run at *texts*."""
        yield self.env

    def _count(self, texts: Texts) -> int:
        return sum(
            record.state in _DONE and _has(record, texts) for record in self.records
        )

    def _number(self, texts: Texts) -> int:
        # also runs that failed: each has a log of its own
        return 1 + sum(_has(record, texts) for record in self.records)


def _has(record: Record, texts: Texts) -> bool:
    """Return whether it ran at these sizes: ``1e2`` and ``100.0`` are the same."""
    there = record.parameters
    return all(
        key in there and there[key] == typed_value(t) for key, t in texts.items()
    )


def _scan_file_name(texts: Texts) -> str:
    name = "-".join(f"{key}-{text}" for key, text in texts.items())
    plain = "".join(c if c.isalnum() or c in "-._" else "_" for c in name)
    return plain[:_LONGEST_NAME]


def _scan_line(texts: Texts, record: Record) -> str:
    name = " ".join(f"{key}={text}" for key, text in texts.items())
    usage = record.usage
    if usage is None:
        return f"{name}  {record.state}"
    words = [name, format_duration(usage.wall_time)]
    if usage.peak_memory is not None:
        peak = peak_text(usage.peak_memory.value, is_bound=record.peak_is_bound)
        words.append(f"{peak} RAM")
    gpu = gpu_memory(usage)
    if gpu is not None:
        words.append(f"{format_size(gpu)} GPU")
    if record.state != "COMPLETED":
        words.append(record.state)
    return "  ".join(words)


_FEWEST = 2
_LABEL_LETTERS = 6


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, at which sizes; ``resume`` continues the last scan."""

    axes: tuple[str, ...]
    command: tuple[str, ...] = ()
    repeat: int = 1
    label: str | None = None
    resume: bool = False
    dry_run: bool = False


class ScanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate from the measured sizes; None if too few of them ran."""

    fit: RecordScanAnswer | None
    exit_code: int
    label: str
    planned: tuple[tuple[str, ...], ...] = ()


def scan_sizes(
    here: Here, options: ScanOptions, typed_options: TypedOptions, *, say: Say
) -> ScanAnswer:
    """Run the command at each size, small ones first, and fit what was measured.

    It stops at a size that runs out of memory, which is a bound too, and at one that
    fails; the records are kept. *say* gets a line per run.

    Raises:
        UsageError: the sizes and the command do not go together.
        FormatError: sizes or options do not parse.
        CommandNotFoundError: no such command.
        WeighError: weigh itself failed.
    """
    root = open_store(here.cwd, here.env).root
    axes = tuple(map(parse_axis, options.axes))
    if not axes:
        raise UsageError(
            "no sizes: weigh scan batch=50,100,300 -- python3 tag.py {batch}"
        )
    by = _sized(axes)
    settings = here.settings
    plan = _scan_to_run(here, options, axes)
    if typed_options.target is None and plan.by == by:  # as before it was resumed
        typed_options = msgspec.structs.replace(typed_options, target=plan.target)
    # refused before anything is run
    parsed = parse_options(typed_options, by, settings.gpus)
    # small sizes first: the scan stops at one that does not fit
    grid = make_grid(axes)
    sizes = [grid.combination(index).texts for index in range(grid.size)]
    runs = sorted(sizes * options.repeat, key=_magnitude)
    if not options.resume and len({str(texts) for texts in runs}) < _FEWEST:
        raise UsageError(f"{by}: one size; a curve takes two, better three")
    plan = _kept(plan, typed_options, by, root, options)
    if options.dry_run:
        commands = tuple(fill_fields(plan.command, texts) for texts in runs)
        return ScanAnswer(fit=None, exit_code=0, label=plan.label, planned=commands)
    for warning in settings.warnings:
        say(warning)
    known = _records_of_scan(root, plan.label) if options.resume else []
    if options.resume and not known:
        say("no scan to resume: this is a new scan")
    measured = ScanRuns(plan, root, here.env, say=say, known=known)
    measured.all(runs, options.repeat)
    found = _answer_of_scan(measured, by, parsed)
    code = measured.exit_code or (FAILED if found is None else 0)
    return ScanAnswer(fit=found, exit_code=code, label=plan.label)


def _answer_of_scan(
    measured: ScanRuns, size_name: str, parsed: ParsedOptions
) -> RecordScanAnswer | None:
    try:
        # newest first, as from the store
        found = scan_answer_of_records(measured.records[::-1], size_name, parsed)
    except UsageError as error:  # too few sizes ran
        measured.say(f"no curve: {error}")
        return None
    made, size = found.advice.estimate, found.advice.next_size
    # a product of parameters cannot be filled in by one size
    if size is not None and "*" not in size_name:
        narrow = f"weigh scan --resume {bash_quoted(f'{made.by}={size}')}"
        found = msgspec.structs.replace(found, narrow=narrow)
    return found


def _sized(axes: Sequence[ParameterAxis]) -> str:
    """Return the parameters that are sizes: numbers, of more than one value."""
    numbers = [a for a in axes if not any(isinstance(v, str) for v in a.values)]
    if axes and not numbers:
        words = ", ".join(axis.name for axis in axes)
        raise UsageError(
            f"{words}: {_no_number(axes)} is no number: a curve needs sizes"
        )
    for axis in numbers:
        for value, text in zip(axis.values, axis.texts, strict=True):
            if not isinstance(value, str) and value <= 0:
                raise UsageError(f"{axis.name}={text} is no size above 0")
    several = [axis.name for axis in numbers if len(set(axis.values)) > 1]
    # the first one, if none varies: the caller asks for more sizes
    return "*".join(several or [axis.name for axis in numbers[:1]])


def _no_number(axes: Sequence[ParameterAxis]) -> str:
    """Return the first value that is no number, quoted."""
    pairs = [pair for one in axes for pair in zip(one.values, one.texts, strict=True)]
    return next(repr(text) for value, text in pairs if isinstance(value, str))


def _scan_to_run(
    here: Here, options: ScanOptions, axes: tuple[ParameterAxis, ...]
) -> StoredScan:
    """Return what to run: a new scan, or the last one to resume."""
    names = tuple(axis.name for axis in axes)
    if not options.command:
        return _resumed(options, here.root, names)
    match_fields(options.command, names)
    if options.resume:
        before = last_scan(here.root, options.label)
        # the same command in the same folder: only then are its records comparable
        if before is not None and (before.command, before.cwd) == (
            options.command,
            here.cwd,
        ):
            return before
    label = options.label or f"scan-{new_id()[:_LABEL_LETTERS]}"
    return StoredScan(label, options.command, here.cwd)


def _kept(
    plan: StoredScan,
    typed_options: TypedOptions,
    size_name: str,
    root: str,
    options: ScanOptions,
) -> StoredScan:
    """Keep the scan with its target: `weigh report` shows the same request later."""
    kept = msgspec.structs.replace(
        plan,
        by=size_name,
        target=plan.target if typed_options.target is None else typed_options.target,
    )
    # a resumed scan is stored again only if it changed
    if not options.dry_run and (kept != plan or not options.resume):
        append_call(root, kept)
    return kept


def _resumed(options: ScanOptions, root: str, names: tuple[str, ...]) -> StoredScan:
    if not options.resume:
        raise UsageError("no command: put it after --, with {name} where a size goes")
    before = last_scan(root, options.label)
    if before is None:
        called = f" called {options.label}" if options.label else ""
        raise UsageError(f"no scan{called} to resume: give its command after --")
    match_fields(before.command, names)
    return before


def _records_of_scan(root: str, label: str) -> list[Record]:
    try:
        return find_all(root, label)[::-1]
    except RecordNotFoundError:
        return []


def _magnitude(texts: Texts) -> float:
    """Order sizes by the product of their numbers; what is no number counts as 1."""
    size = 1.0
    for text in texts.values():
        try:
            size *= abs(float(text))
        except ValueError:
            continue
    return size


CPU_AXIS = "cpus"
# variables of numeric libraries and runtimes that start threads
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS"),
    *("GOMAXPROCS", "POLARS_MAX_THREADS"),
)


def is_cpu_scan(axes: Sequence[str]) -> bool:
    """Return whether the only parameter is the number of CPUs."""
    return len(axes) == 1 and axes[0].startswith(f"{CPU_AXIS}=")


def cpu_counts_of_axis(axis: ParameterAxis) -> tuple[int, ...]:
    """Return the numbers of CPUs of an axis.

    Raises:
        FormatError: one is not a whole number above 0.
        UsageError: there are fewer than two.
    """
    for value, text in zip(axis.values, axis.texts, strict=True):
        if isinstance(value, str) or value != int(value) or value < 1:
            raise FormatError(f"{CPU_AXIS}={text}: not a whole number of CPUs")
    numbers = sorted({int(value) for value in axis.values})
    if len(numbers) < _FEWEST:
        raise UsageError(f"{CPU_AXIS}: one number; efficiency takes two, better three")
    return tuple(numbers)


class _CpuScanRuns(ScanRuns):
    """Runs that are held to a number of CPUs, also by variables of libraries."""

    @contextmanager
    def surroundings(self, texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Hold what is started meanwhile to the CPUs; yield its environment."""
        # the command inherits the affinity
        with held_to(int(texts[CPU_AXIS]), allowed_cpus()):
            yield {**self.env, **dict.fromkeys(_THREADS, texts[CPU_AXIS])}


def scan_cpus(
    here: Here,
    options: ScanOptions,
    *,
    say: Callable[[str], None],
) -> CpuScan:
    """Run the command held to each number of CPUs; return how many of them pay.

    *say* gets a line per run; the records are kept.

    Raises:
        UsageError: no command, or a field that has no value.
        FormatError: the numbers do not parse.
        CommandNotFoundError: no such command.
        WeighError: weigh itself failed.
    """
    numbers = cpu_counts_of_axis(parse_axis(options.axes[0]))
    command = options.command
    if not command:
        raise UsageError(
            "no command: put it after -- (with {cpus} where a number goes)"
        )
    for name in field_names(command):
        if name != CPU_AXIS:
            raise UsageError(f"{{{name}}} has no values: scan cpus= alone")
    # a label of its own makes the records of a scan findable together
    label = options.label or f"scan-{new_id()[:_LABEL_LETTERS]}"
    runs = [{CPU_AXIS: str(number)} for number in numbers]
    if options.dry_run:
        planned = tuple(fill_fields(command, texts) for texts in runs)
        return CpuScan(label=label, rows=(), planned=planned)
    measured = _CpuScanRuns(
        StoredScan(label, command, here.cwd),
        open_store(here.cwd, here.env).root,
        here.env,
        say=say,
        known=(),
    )
    # number by number in turn, so that a slow minute does not hit all runs of one
    # number
    measured.all(runs * options.repeat, options.repeat)
    return _concluded_cpu_scan(measured, label)


def _concluded_cpu_scan(measured: ScanRuns, label: str) -> CpuScan:
    records: dict[int, list[Record]] = {}
    for record in measured.records:
        if record.state == COMPLETED and record.usage is not None:
            records.setdefault(int(record.parameters[CPU_AXIS]), []).append(record)
    usages = {n: [r.usage for r in ran if r.usage] for n, ran in records.items()}
    times = {n: median(alone_on(n, one) for one in ran) for n, ran in usages.items()}
    code = measured.exit_code
    if len(times) < _FEWEST:
        return CpuScan(label=label, rows=(), exit_code=code or FAILED)
    shares = cpu_efficiency(times)
    rows = tuple(
        CpuRow(
            cpus=n,
            wall_time=median(usage.wall_time for usage in usages[n]),
            alone=times[n],
            efficiency=shares[n],
            is_beyond=n > len(allowed_cpus()),
        )
        for n in sorted(times)
    )
    cpus = cpus_that_pay(rows)
    request = from_usages(records[cpus])
    # the request is for the CPUs chosen here, whatever the run waited for
    on_cpus = {n for one in records[cpus] if one.usage for n in need_notes(one.usage)}
    notes = tuple(note for note in request.notes if note not in on_cpus)
    return CpuScan(
        label=label,
        rows=rows,
        cpus=cpus,
        request=msgspec.structs.replace(request, cpus=cpus, notes=notes),
        exit_code=code,
    )


def alone_on(cpus: int, usage: Usage) -> Seconds:
    """Return the time that a run would take on *cpus* of its own.

    Threads beyond those wait for each other, and would there as well.
    """
    wait = usage.cpu_wait
    if wait is None or not usage.cpu_time:
        return usage.wall_time
    return min(usage.wall_time, max(wait.alone, usage.cpu_time / cpus))


def allowed_cpus() -> list[int]:
    """Return the CPUs that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    return sorted(os.sched_getaffinity(0))


@contextmanager
def held_to(number: int, here: Sequence[int]) -> Iterator[None]:
    """Let processes that are started meanwhile run on *number* CPUs of *here* only."""
    # not on macOS and Windows: only the variables limit the command there
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    with suppress(OSError):
        os.sched_setaffinity(0, here[:number])
    try:
        yield
    finally:
        # it may have changed meanwhile, as by the batch system
        with suppress(OSError):
            os.sched_setaffinity(0, here)
