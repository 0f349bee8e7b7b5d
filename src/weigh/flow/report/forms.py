"""What ``weigh report`` writes besides a report: unused hours, a ticket, a statement.

``--since`` ranks what was held and not used, ``--ticket`` is one failure for the
support staff, ``--paper`` the compute statement of a publication in Markdown.
"""

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from weigh._version import __version__
from weigh.errors import UsageError
from weigh.flow.follow.task_history import tail_of
from weigh.flow.follow.view import look
from weigh.flow.here import Here
from weigh.flow.records import joined_records as report_records
from weigh.flow.records.records import RecordStore, open_store
from weigh.flow.report.report import (
    ReportMaterial,
    gather_report_material,
    of_job,
    plan_if_still_there,
)
from weigh.model.mask import MASK
from weigh.model.record import Record, RecordedHost
from weigh.model.report import ReportRow
from weigh.planning.record_match import kind_of_command
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import count_with_commas, printable_text, three_digit_text
from weigh.render.report_lines import WIDTH
from weigh.render.request_lines import named_lines
from weigh.render.words import STATE_WORDS, short_name
from weigh.review.elements import ReviewedElement, single_run_element
from weigh.review.notes import FAILED, failure_text_without_numbers
from weigh.review.runs import (
    ElementRequest,
    ReviewedRun,
    epoch_seconds,
    gpu_time_and_energy,
    held_gpus,
    requested_by_records,
    run_of,
)
from weigh.schedulers import find_kind
from weigh.schedulers.kind import DialectTraits
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.store.index import read_index
from weigh.sweep.quoting import bash_quoted
from weigh.units import (
    GIB,
    HOUR,
    Seconds,
    count_with_noun,
    format_duration,
    format_limit,
    format_size,
    parse_duration,
)

# what a GPU and 4 GiB count in CPUs, to add them up: nodes of computing centres
# have 12 to 16 cores and 60 to 250 GiB per GPU
_CPUS_PER_GPU = 16
_GIB_PER_CPU = 4
_MOST_KINDS = 12  # rows of the ranking


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
        words = [f"{three_digit_text(hours)} {unit}" for hours, unit in parts if hours]
        return ", ".join(words) or "nothing"


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
    begin = _time_ago(store, text)
    kinds = []
    for name, elements in _elements_by_name(here, store, begin).items():
        # without a request there is nothing that was held
        judged = [one for one in elements if _held_resource_hours(one).weight]
        runs = [run for one in judged for run in _started_runs(one)]
        if judged:
            kind = KindUsage(
                name=name,
                runs=len(runs),
                failed=sum(run.row.state in FAILED for run in runs),
                held=sum(map(_held_resource_hours, judged), ResourceHours()),
                unused=sum(map(_unused_resource_hours, judged), ResourceHours()),
            )
            kinds.append(kind)
    return UnusedResources(
        since=time.strftime("%Y-%m-%d", time.localtime(begin)),
        kinds=tuple(sorted(kinds, key=lambda one: -one.unused.weight)),
    )


def unused_text(found: UnusedResources) -> str:
    """Write the ranking in at most 80 columns."""
    kinds = found.kinds[:_MOST_KINDS]
    lines = [f"  since {found.since}"]
    if not kinds:
        return f"{lines[0]}   nothing to judge: no run recorded a request"
    held = sum((one.held for one in found.kinds), ResourceHours())
    unused = sum((one.unused for one in found.kinds), ResourceHours())
    lines += [f"  held        {held.text()}", f"  not used    {unused.text()}"]
    names = tuple(printable_text(one.name) for one in kinds)
    shares = [100 * one.unused.weight / one.held.weight for one in kinds]
    columns = [TableColumn("not used", names, right=False, flexible=True)]
    for unit, field in (("GPU h", "gpu"), ("CPU h", "cpu"), ("GiB h", "memory")):
        hours = [getattr(one.unused, field) for one in kinds]
        columns.append(TableColumn(unit, tuple(map(three_digit_text, hours))))
    columns.append(TableColumn("of held", tuple(f"{s:.0f} %" for s in shares)))
    for title in ("runs", "failed"):
        counts = [getattr(one, title) for one in kinds]
        columns.append(TableColumn(title, tuple(map(count_with_commas, counts))))
    lines += [line.rstrip() for line in table_lines(columns, WIDTH)]
    more = len(found.kinds) - len(kinds)
    if more:
        lines.append(f"  and {count_with_commas(more)} more (--json)")
    lines.append(f"  what to change: weigh report {bash_quoted(kinds[0].name)}")
    return "\n".join(lines)


def _time_ago(store: RecordStore, text: str) -> Seconds:
    """Return the time *text* ago, or the epoch if that is earlier."""
    return max(0.0, store.now - parse_duration(text))


def _elements_by_name(
    here: Here, store: RecordStore, begin: Seconds
) -> dict[str, list[ReviewedElement]]:
    """Return elements by plan, label or command."""
    known = jobs_file.read_jobs(store.root)
    jobs = [job for job in known if job.submitted >= begin]
    found: dict[str, list[ReviewedElement]] = {}
    counted_ids: set[str | None] = set()
    for view in look(here.at_store(store.root), jobs, known):
        runs, elements = of_job(view, store, plan_if_still_there(view.job))
        counted_ids |= {run.row.record for run in runs}
        found.setdefault(view.job.name, []).extend(elements)
    outside = [
        entry.head.id
        for entry in read_index(store.root).entries
        # a record within a job was counted with its element
        if entry.head.id not in counted_ids
        and (epoch_seconds(entry.head.started) or 0.0) >= begin
    ]
    for record in report_records.by_ids(store.root, outside).values():
        words = kind_of_command(record.command, record.parameters)
        element = single_run_element(run_of(record), requested_by_records([record]))
        found.setdefault(record.label or " ".join(words), []).append(element)
    return found


def _started_runs(element: ReviewedElement) -> list[ReviewedRun]:
    """Return all attempts of an element; a task that did not start took nothing."""
    return [run for run in element.runs if run.row.started is not None]


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


_TITLE_WIDTH = 12  # columns of the titles of a ticket
_QUOTED_LINES = 20  # of output


class SupportTicket(msgspec.Struct, frozen=True):
    """The text of a ticket, and whether it is about a failure."""

    text: str
    is_failure: bool


def support_ticket(here: Here, name: str) -> SupportTicket:
    """Return a ticket on the most common failure of a job, or on its first task.

    Raises:
        UsageError: nothing was measured or submitted yet.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    found = gather_report_material(here, name, open_store(here.cwd, here.env))
    # only the last attempt shows how a task ended
    last = [run for run in found.runs if run.is_last]
    ways: dict[str, list[ReviewedRun]] = {}
    for run in last:
        if run.row.state in FAILED:
            ways.setdefault(failure_text_without_numbers(run.row), []).append(run)
    # the most common failure; without one, the first task
    alike = max(ways.values(), key=len) if ways else last[:1]
    lines: list[str] = []
    for title, text in _ticket_entries(found, alike):
        lines += named_lines(title, text, indent=0, name_width=_TITLE_WIDTH)
    tail = _output_tail(alike[0].row) if ways else ()
    if tail:
        lines.append("last lines of output:")
        lines += (f"  {printable_text(line)}" for line in tail)
    return SupportTicket("\n".join(lines), is_failure=bool(ways))


def _ticket_entries(
    report_material: ReportMaterial, alike: Sequence[ReviewedRun]
) -> Iterator[tuple[str, str]]:
    """Yield title and text of what is known of the first of runs that ended *alike*."""
    run = alike[0]
    row, record = run.row, run.record
    is_task = row.task is not None and report_material.unit == "task"
    job = _element_name(report_material, row)
    yield "job", f"{job} task {row.task}" if is_task else job
    yield "scheduler", report_material.scheduler or ""
    yield "node", row.node or "unknown"
    how = f"signal {row.signal}" if row.signal else ""
    if not row.signal and row.exit_code is not None:
        how = f"exit code {row.exit_code}"
    reason = row.reason if row.reason and row.reason not in how else ""
    yield "ended", _joined_words(row.state, how, reason)
    if row.started is not None:
        begun = datetime.fromtimestamp(row.started, UTC)
        lasted = format_duration(row.wall_time or 0.0)
        yield "when", f"{begun:%Y-%m-%d %H:%M:%S} UTC, for {lasted}"
    output = os.path.relpath(row.output) if row.output else ""
    # a path outside of the current folder is clearer as a whole
    output = (row.output or "") if output.startswith("..") else output
    element = next((one for one in report_material.elements if run in one.runs), None)
    requested = element.requested if element else report_material.requested
    yield "requested", _request_text(requested)
    yield "used", _usage_text(row)
    yield "command", row.command
    yield "folder", (record.cwd if record else None) or ""
    yield "output", output
    yield "attempts", _attempts_text(report_material, run)
    if row.state in FAILED and len(alike) > 1:
        nodes = dict.fromkeys(other.row.node for other in alike if other.row.node)
        where = f", on {', '.join(list(nodes)[:5])}" if nodes else ""
        others = count_with_noun(len(alike) - 1, f"other {report_material.unit}")
        yield "the same", f"in {others}{where}"
    yield "versions", ", ".join(_version_words([record] if record else []))


def _joined_words(*words: str) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


def _attempts_text(report_material: ReportMaterial, reviewed_run: ReviewedRun) -> str:
    """Count the attempts at the task of a run, also in jobs that resumed it."""
    row = reviewed_run.row
    # in a plan a task has one number over all jobs; else element and task name it
    fields = ("task",) if report_material.views else ("job", "element", "task")
    ways = []
    for other in report_material.runs if row.task is not None else ():
        is_same = all(getattr(other.row, one) == getattr(row, one) for one in fields)
        if is_same and other.row.started is not None:
            ways.append((other.row.state, other.row.exit_code, other.row.signal))
    alike = ways.count((row.state, row.exit_code, row.signal))
    return f"{len(ways)}, of which {alike} ended this way" if len(ways) > 1 else "1"


def _element_name(report_material: ReportMaterial, report_row: ReportRow) -> str:
    """Return the id of the job or array element in the scheduler's syntax."""
    if report_row.job is None or report_material.scheduler is None:
        return report_row.record or report_material.title
    sizes = {view.job.id: view.job.elements for view in report_material.views}
    if report_row.element is None or sizes.get(report_row.job) == 1:
        return report_row.job
    kind = find_kind(report_material.scheduler)
    traits = DialectTraits() if kind is None else kind.traits
    # schedulers count elements from different numbers
    number = report_row.element + traits.first_element
    if report_material.unit != "task" and report_row.task is not None:
        number = report_row.task  # of a script: its own number of the element
    return traits.element_name.format(report_row.job, number)


def _request_text(requested: ElementRequest) -> str:
    limit = requested.time_limit
    return _joined_words(
        "" if requested.memory is None else format_size(requested.memory),
        "" if requested.cpus is None else f"CPUs {requested.cpus}",
        f"GPUs {requested.gpus}" if requested.gpus else "",
        "" if limit is None else format_limit(limit),
    )


def _usage_text(report_row: ReportRow) -> str:
    gpu = report_row.gpu_memory
    return _joined_words(
        "" if report_row.memory is None else format_size(report_row.memory),
        "" if report_row.cpus is None else f"{report_row.cpus:.2f} of a CPU",
        "" if gpu is None else f"{format_size(gpu)} of GPU",
    )


def _output_tail(report_row: ReportRow) -> tuple[str, ...]:
    """Return the last lines that a task printed."""
    if report_row.output is None or not os.path.isfile(report_row.output):
        return (report_row.error,) if report_row.error else ()
    lines = [line.rstrip() for line in tail_of(report_row.output).splitlines()]
    # the output may hold secrets, and a ticket goes to others
    return tuple(MASK.line(line) for line in lines if line)[-_QUOTED_LINES:]


_JOULES_PER_KWH = 3.6e6
_MOST_VALUES = 8  # of a parameter that are listed; of more the range is stated
# characters that Markdown may read as markup
_SPECIAL = frozenset("\\`*_{}[]<>()#+!|~&$")


def compute_statement(here: Here, name: str, *, since: str | None = None) -> str:
    """State what the runs called *name*, or all of the last *since*, took.

    Every attempt counts, failed ones included.

    Raises:
        UsageError: nothing was measured.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    if since is not None:
        store = open_store(here.cwd, here.env)
        title, every = f"the last {since}", list[ReviewedRun]()
        elements = _elements_by_name(here, store, _time_ago(store, since))
        for of_name in elements.values():
            every += [run for element in of_name for run in element.runs]
    else:
        found = gather_report_material(here, name, open_store(here.cwd, here.env))
        title, every = found.title, list(found.runs)
    # a task that did not start took nothing
    runs = [run for run in every if run.row.started is not None]
    if not runs:
        raise UsageError("no run was measured in that time: there is nothing to state")
    lines = [f"**Compute.** {escaped_markdown(title)}", ""]
    for item, text in _statement_items(runs):
        lines.append(f"- **{item}:** {escaped_markdown(text)}")
    return "\n".join(lines)


def escaped_markdown(text: str) -> str:
    """Escape *text* so that Markdown shows it unchanged."""
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in printable_text(text))


def _statement_items(runs: Sequence[ReviewedRun]) -> Iterator[tuple[str, str]]:
    records = [run.record for run in runs if run.record is not None]
    machines = [_machine_text(one.host) for one in records if one.host]
    if machines:
        yield "Machines", _kinds_text(machines, len(runs))
    gpus = [text for run in runs if (text := _gpus_text(run))]
    yield "GPUs", _kinds_text(gpus, len(runs)) if gpus else "none were used"
    yield "Software", ", ".join(_version_words(records))
    states = Counter(run.row.state for run in runs if run.row.state != "COMPLETED")
    words = [f"{number:,} {STATE_WORDS[state]}" for state, number in states.items()]
    how = f" in total, of which {', '.join(words)}" if words else ", all completed"
    yield "Runs", f"{len(runs):,}{how}"
    for item, field, text_of in (
        ("Memory per run", "memory", lambda size: format_size(round(size))),
        ("GPU memory per run", "gpu_memory", lambda size: format_size(round(size))),
        ("Time per run", "wall_time", format_duration),
    ):
        known = _known_figures(runs, field)
        if known:
            yield item, _spread_text(known, text_of)
    totals = gpu_time_and_energy(runs)
    cpu_times, hours = _known_figures(runs, "cpu_time"), list[str]()
    wall_time = sum(_known_figures(runs, "wall_time"))
    hours.append(f"{_hours_text(wall_time)} hours of runs, failed ones included")
    hours += [f"{_hours_text(sum(cpu_times))} CPU hours"] if cpu_times else []
    hours += [] if totals.time is None else [f"{_hours_text(totals.time)} GPU hours"]
    yield "Total time", ", ".join(hours)
    if totals.energy is not None:
        of = f", measured in {totals.measured:,} of {count_with_noun(len(runs), 'run')}"
        yield "Energy of the GPUs", f"{totals.energy / _JOULES_PER_KWH:.3g} kWh{of}"
    parameters = "; ".join(_parameter_words(runs))
    if parameters:
        yield "Hyper-parameters", parameters


def _known_figures(runs: Sequence[ReviewedRun], field: str) -> list[float]:
    figures = (getattr(run.row, field) for run in runs)
    return [figure for figure in figures if figure is not None]


def _hours_text(seconds: Seconds) -> str:
    return three_digit_text(seconds / HOUR)


def _kinds_text(kinds: Iterable[str], runs: int) -> str:
    """List kinds of machines or GPUs, with the runs on each if there are several."""
    found = Counter(kinds).most_common()
    # the same everywhere: no counts needed
    if len(found) == 1 and found[0][1] == runs:
        return found[0][0]
    words = (f"{kind} ({count_with_noun(number, 'run')})" for kind, number in found)
    return "; ".join(words)


def _machine_text(recorded_host: RecordedHost) -> str:
    cpus, memory = recorded_host.cpus, recorded_host.memory
    return _joined_words(
        "" if cpus is None else f"{cpus} CPUs",
        "" if memory is None else f"{format_size(memory)} of memory",
        recorded_host.system,
    )


def _gpus_text(reviewed_run: ReviewedRun) -> str:
    kinds: Counter[str] = Counter()
    for gpu in held_gpus(reviewed_run):
        size = gpu.memory_total
        kinds[short_name(gpu.name) + (f", {format_size(size)}" if size else "")] += 1
    words = (f"{n} x {kind}" if n > 1 else kind for kind, n in kinds.items())
    return " and ".join(words)


def _version_words(records: Sequence[Record]) -> Iterator[str]:
    """Yield the versions of what ran: weigh, Python, the code, the system."""
    known = [one.provenance for one in records if one.provenance is not None]
    hosts = [one.host for one in records if one.host is not None]
    for name, versions in (
        ("Python", {one.python for one in known}),
        ("weigh", {one.weigh for one in known if one.weigh} or {__version__}),
        ("commit", {(one.git_commit or "")[:12] for one in known}),
        ("kernel", {one.kernel for one in hosts}),
    ):
        found = sorted(version for version in versions if version)
        if found:
            yield f"{name} {' and '.join(found)}"


def _spread_text(values: Sequence[float], text_of: Callable[[float], str]) -> str:
    least, most = min(values), max(values)
    if least == most:
        return text_of(least)
    middle = text_of(statistics.median(values))
    return f"median {middle}, from {text_of(least)} to {text_of(most)}"


def _parameter_words(runs: Sequence[ReviewedRun]) -> Iterator[str]:
    # a dict as an ordered set
    values: dict[str, dict[int | float | str, None]] = {}
    for run in runs:
        for name, value in run.row.parameters.items():
            values.setdefault(name, {})[value] = None
    for name, found in values.items():
        numbers = sorted(v for v in found if not isinstance(v, str))
        if len(numbers) == len(found) > _MOST_VALUES:
            low, high = numbers[0], numbers[-1]
            yield f"{name} from {low:g} to {high:g} ({len(numbers)} values)"
            continue
        words = [f"{v:g}" for v in numbers]
        words += [v for v in found if isinstance(v, str)]
        more = ", ..." if len(words) > _MOST_VALUES else ""
        yield f"{name} {{{', '.join(words[:_MOST_VALUES])}{more}}}"
