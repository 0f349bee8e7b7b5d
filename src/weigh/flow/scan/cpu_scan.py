"""``weigh scan cpus=1,2,4 -- COMMAND``: run a command on a few numbers of CPUs."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from statistics import median

import msgspec

from weigh.errors import FAILED, FormatError, UsageError
from weigh.estimate.scaling import (
    CpuRow,
    CpuScan,
    cpu_efficiency,
    cpus_that_pay,
)
from weigh.flow.here import Here
from weigh.flow.records.records import open_store
from weigh.flow.scan.scan import ScanOptions, ScanRuns
from weigh.model.record import Record, Usage
from weigh.need import need_notes
from weigh.request import COMPLETED, from_usages
from weigh.store.identity import new_id
from weigh.store.past_calls import StoredScan
from weigh.sweep.tasks import field_names, fill_fields
from weigh.sweep.values import ParameterAxis, parse_axis
from weigh.units import Seconds

NAME = "cpus"
# variables of numeric libraries and runtimes that start threads
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS"),
    *("GOMAXPROCS", "POLARS_MAX_THREADS"),
)
_FEWEST = 2  # numbers of CPUs
_LABEL_LETTERS = 6


def is_cpu_scan(axes: Sequence[str]) -> bool:
    """Return whether the only parameter is the number of CPUs."""
    return len(axes) == 1 and axes[0].startswith(f"{NAME}=")


def cpu_counts_of_axis(axis: ParameterAxis) -> tuple[int, ...]:
    """Return the numbers of CPUs of an axis.

    Raises:
        FormatError: one is not a whole number above 0.
        UsageError: there are fewer than two.
    """
    for value, text in zip(axis.values, axis.texts, strict=True):
        if isinstance(value, str) or value != int(value) or value < 1:
            raise FormatError(f"{NAME}={text}: not a whole number of CPUs")
    numbers = sorted({int(value) for value in axis.values})
    if len(numbers) < _FEWEST:
        raise UsageError(f"{NAME}: one number; efficiency takes two, better three")
    return tuple(numbers)


class _CpuScanRuns(ScanRuns):
    """Runs that are held to a number of CPUs, also by variables of libraries."""

    @contextmanager
    def surroundings(self, texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Hold what is started meanwhile to the CPUs; yield its environment."""
        # the command inherits the affinity
        with held_to(int(texts[NAME]), allowed_cpus()):
            yield {**self.env, **dict.fromkeys(_THREADS, texts[NAME])}


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
        if name != NAME:
            raise UsageError(f"{{{name}}} has no values: scan cpus= alone")
    # a label of its own makes the records of a scan findable together
    label = options.label or f"scan-{new_id()[:_LABEL_LETTERS]}"
    runs = [{NAME: str(number)} for number in numbers]
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
            records.setdefault(int(record.parameters[NAME]), []).append(record)
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
    return min(usage.wall_time, wait.alone * max(1.0, wait.wanted / cpus))


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
