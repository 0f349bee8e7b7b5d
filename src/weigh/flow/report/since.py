"""``weigh report --since``: resources held and not used, and what would save most."""

import time
from collections.abc import Iterator, Sequence

import msgspec

from weigh.flow.follow.view import look
from weigh.flow.here import Here
from weigh.flow.records import joined_records as report_records
from weigh.flow.records.records import RecordStore, open_store
from weigh.flow.report.report import of_job, plan_if_still_there
from weigh.planning.record_match import kind_of_command
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import count_with_commas, printable_text, three_digit_text
from weigh.render.report_lines import WIDTH
from weigh.review.elements import ReviewedElement, single_run_element
from weigh.review.notes import FAILED
from weigh.review.runs import ReviewedRun, epoch_seconds, requested_by_records, run_of
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.store.index import read_index
from weigh.sweep.quoting import bash_quoted
from weigh.units import GIB, HOUR, Seconds, parse_duration

# what a GPU and 4 GiB count in CPUs, to add them up: nodes of computing centres
# have 12 to 16 cores and 60 to 250 GiB per GPU
_CPUS_PER_GPU = 16
_GIB_PER_CPU = 4
_SHOWN = 12  # rows


class ResourceHours(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs, CPUs and GiB of memory, each times hours."""

    gpu: float = 0.0  # hours
    cpu: float = 0.0  # hours
    memory: float = 0.0  # GiB hours

    @property
    def weight(self) -> float:
        """Return all three as CPU hours, weighted as nodes are equipped."""
        return self.gpu * _CPUS_PER_GPU + self.cpu + self.memory / _GIB_PER_CPU

    def __add__(self, other: "ResourceHours") -> "ResourceHours":
        return ResourceHours(
            gpu=self.gpu + other.gpu,
            cpu=self.cpu + other.cpu,
            memory=self.memory + other.memory,
        )

    def text(self) -> str:
        """Return the hours as text, without those that are zero."""
        parts = ((self.gpu, "GPU h"), (self.cpu, "CPU h"), (self.memory, "GiB h"))
        return (
            ", ".join(f"{three_digit_text(v)} {unit}" for v, unit in parts if v)
            or "nothing"
        )


class KindUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one plan, label or command: what they held, and did not use of it."""

    name: str
    runs: int  # attempts
    failed: int  # of them
    held: ResourceHours
    unused: ResourceHours


class UnusedResources(msgspec.Struct, frozen=True, kw_only=True):
    """What was not used since a date, the most first."""

    schema: str = "weigh.waste/3"
    since: str  # date
    kinds: tuple[KindUsage, ...]


def unused_since(here: Here, text: str) -> UnusedResources:
    """Rank the resources held and not used in the last *text*, such as ``30d``.

    Raises:
        FormatError: *text* is not a time.
        StoreError: the store cannot be read.
    """
    store = open_store(here.cwd, here.env)
    finalise_interrupted(store.root, store.machine)
    begin = _begin(store, text)
    runs_by_name = {
        name: [pair for pair in pairs if _is_judged(pair[0])]
        for name, pairs in _elements_by_name(here, store, begin).items()
    }
    kinds = [
        _usage_of_kind(name, pairs) for name, pairs in runs_by_name.items() if pairs
    ]
    return UnusedResources(
        since=time.strftime("%Y-%m-%d", time.localtime(begin)),
        kinds=tuple(sorted(kinds, key=lambda one: -one.unused.weight)),
    )


def runs_since(here: Here, text: str) -> list[ReviewedRun]:
    """Return all attempts of the last *text*, in jobs and outside of them."""
    store = open_store(here.cwd, here.env)
    found = _elements_by_name(here, store, _begin(store, text))
    return [run for pairs in found.values() for _, runs in pairs for run in runs]


def unused_text(found: UnusedResources) -> str:
    """Write the ranking in at most 80 columns."""
    lines = [f"  since {found.since}"]
    if not found.kinds:
        return f"{lines[0]}   nothing to judge: no run recorded a request"
    held = sum((one.held for one in found.kinds), ResourceHours())
    unused = sum((one.unused for one in found.kinds), ResourceHours())
    lines += [f"  held        {held.text()}", f"  not used    {unused.text()}"]
    lines += _table_lines(found.kinds[:_SHOWN])
    if len(found.kinds) > _SHOWN:
        lines.append(
            f"  and {count_with_commas(len(found.kinds) - _SHOWN)} more (--json)"
        )
    lines.append(f"  what to change: weigh report {bash_quoted(found.kinds[0].name)}")
    return "\n".join(lines)


def _table_lines(kinds: Sequence[KindUsage]) -> Iterator[str]:
    names = tuple(printable_text(one.name) for one in kinds)
    columns = [TableColumn("not used", names, right=False, flexible=True)]
    columns += [
        TableColumn(title, tuple(cells))
        for title, cells in (
            ("GPU h", [three_digit_text(one.unused.gpu) for one in kinds]),
            ("CPU h", [three_digit_text(one.unused.cpu) for one in kinds]),
            ("GiB h", [three_digit_text(one.unused.memory) for one in kinds]),
            ("of held", [_share_text(one) for one in kinds]),
            ("runs", [count_with_commas(one.runs) for one in kinds]),
            ("failed", [count_with_commas(one.failed) for one in kinds]),
        )
    ]
    return (line.rstrip() for line in table_lines(columns, WIDTH))


def _share_text(kind: KindUsage) -> str:
    held = kind.held.weight
    return f"{100 * kind.unused.weight / held:.0f} %" if held else "-"


_ElementRuns = tuple[ReviewedElement, tuple[ReviewedRun, ...]]


def _begin(store: RecordStore, text: str) -> Seconds:
    """Return the time *text* ago, or the epoch if that is earlier."""
    return max(0.0, store.now - parse_duration(text))


def _elements_by_name(
    here: Here, store: RecordStore, begin: Seconds
) -> dict[str, list[_ElementRuns]]:
    """Return elements with all attempts in them, by plan, label or command."""
    known = jobs_file.read_jobs(store.root)
    jobs = [job for job in known if job.submitted >= begin]
    found: dict[str, list[_ElementRuns]] = {}
    counted_ids: set[str | None] = set()
    for view in look(here.at_store(store.root), jobs, known):
        runs, elements = of_job(view, store, plan_if_still_there(view.job))
        counted_ids |= {run.row.record for run in runs}
        found.setdefault(view.job.name, []).extend(
            (one, tuple(run for run in one.runs if run.row.started is not None))
            for one in elements
        )
    outside = [
        entry.head.id
        for entry in read_index(store.root).entries
        # a record within a job was counted with its element
        if entry.head.id not in counted_ids
        and (epoch_seconds(entry.head.started) or 0.0) >= begin
    ]
    for record in report_records.by_ids(store.root, outside).values():
        words = kind_of_command(record.command, record.parameters)
        run = run_of(record)
        pair = single_run_element(run, requested_by_records([record])), (run,)
        found.setdefault(record.label or " ".join(words), []).append(pair)
    return found


def _is_judged(element: ReviewedElement) -> bool:
    requested = element.requested
    # without a request there is nothing that was held
    known = requested.memory is not None or requested.cpus is not None or requested.gpus
    return bool(known) and element.wall_time is not None


def _usage_of_kind(name: str, pairs: Sequence[_ElementRuns]) -> KindUsage:
    runs = [run for _, attempts in pairs for run in attempts]
    return KindUsage(
        name=name,
        runs=len(runs),
        failed=sum(run.row.state in FAILED for run in runs),
        held=sum((_held_resource_hours(one) for one, _ in pairs), ResourceHours()),
        unused=sum((_unused_resource_hours(one) for one, _ in pairs), ResourceHours()),
    )


def _held_resource_hours(element: ReviewedElement) -> ResourceHours:
    hours, requested = (element.wall_time or 0.0) / HOUR, element.requested
    return ResourceHours(
        gpu=requested.gpus * hours,
        cpu=(requested.cpus or 0) * hours,
        memory=(requested.memory or 0) / GIB * hours,
    )


def _unused_resource_hours(element: ReviewedElement) -> ResourceHours:
    """Return what an element held and did not use; all of it if every task failed.

    Resources that were not measured count as used.
    """
    held, requested = _held_resource_hours(element), element.requested
    # all tasks failed: whatever was used was of no use
    if element.runs and all(run.row.state in FAILED for run in element.runs):
        return held
    busy = 1.0 if element.utilization is None else element.utilization
    return ResourceHours(
        gpu=held.gpu * (1 - busy),
        cpu=held.cpu * _unused_share(requested.cpus, element.cpus),
        memory=held.memory * _unused_share(requested.memory, element.memory),
    )


def _unused_share(requested: float | None, used: float | None) -> float:
    return max(0.0, 1 - used / requested) if requested and used is not None else 0.0
