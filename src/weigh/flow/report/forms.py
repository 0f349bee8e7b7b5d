"""What ``weigh report`` writes besides a report: a list, a ticket, a statement.

Without a name it lists the user's jobs, ``--as ticket`` is one failure for the support
staff, ``--as paper`` the compute statement of a publication in Markdown.
"""

import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from weigh.errors import SchedulerError, UsageError
from weigh.flow.follow.task_history import tail_of
from weigh.flow.follow.view import JobView, look
from weigh.flow.here import Here
from weigh.flow.records.records import RecordStore, open_store
from weigh.flow.report.report import (
    ReportMaterial,
    gather_report_material,
    of_job,
    plan_if_still_there,
)
from weigh.flow.site.schedulers import current_user
from weigh.joined_ranks import largest_known
from weigh.model.mask import MASK
from weigh.model.record import RecordedHost, State
from weigh.model.report import AccountedElement, ListedJob, ListedJobs, ReportRow
from weigh.render.printable import printable_text, three_digit_text
from weigh.render.request_lines import named_lines
from weigh.render.words import STATE_WORDS, requested_amounts_text, short_name
from weigh.review.notes import FAILED, failure_text_without_numbers
from weigh.review.runs import (
    ReviewedRun,
    gpu_time_and_energy,
    held_gpus,
)
from weigh.schedulers import KINDS, find_kind, schedulers_on_path
from weigh.schedulers.command import lines_of_command
from weigh.schedulers.kind import DialectTraits, PastAccounting
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.units import (
    DAY,
    HOUR,
    Seconds,
    count_with_noun,
    format_duration,
    format_size,
    parse_duration,
)

_LONGEST_SPAN = 3650 * DAY  # sacct refuses dates before 1970
_JOB_NUMBER = re.compile(r"\d+")  # of 12_3, 12.3 and 12+1


def listed_jobs(here: Here, since: str) -> ListedJobs:
    """List the user's jobs of the last *since*, such as ``7d``, the oldest first.

    Those that weigh submitted from here have the figures of its records, the others
    those of the schedulers' accounting.

    Raises:
        FormatError: *since* is not a time.
        StoreError: the store cannot be read.
    """
    store = open_store(here.cwd, here.env)
    begin = max(0.0, store.now - parse_duration(since))
    span = min(store.now - begin, _LONGEST_SPAN)
    found: dict[tuple[str, str], ListedJob] = {}
    for name in schedulers_on_path(here.env):
        for job in _jobs_in_accounting(here, name, span):
            found[name, job.id] = job
    finalise_interrupted(store.root, store.machine)
    known = jobs_file.read_jobs(store.root)
    recent = [job for job in known if job.submitted >= begin]
    for view in look(here.at_store(store.root), recent, known):
        job = _job_of_weigh(view, store)
        found[job.scheduler, job.id] = job
    date = time.strftime("%Y-%m-%d", time.localtime(begin))
    return ListedJobs(since=date, jobs=tuple(sorted(found.values(), key=_job_order)))


def _job_order(job: ListedJob) -> tuple[str, int]:
    # schedulers number jobs as they are submitted
    number = _JOB_NUMBER.search(job.id)
    return job.scheduler, int(number[0]) if number else 0


def _jobs_in_accounting(
    here: Here, scheduler: str, span: Seconds
) -> Iterator[ListedJob]:
    """Yield the jobs that accounting lists, all elements of an array as one."""
    kind = KINDS[scheduler]
    source = kind.accounting
    if not isinstance(source, PastAccounting):
        return
    by_address_space = kind.traits.address_space is not None
    user = here.env.get("USER") or current_user()  # cron and containers set none
    names: dict[str, str] = {}
    elements: dict[str, dict[int, AccountedElement]] = {}
    try:
        lines = lines_of_command(source.past_argv(user, span), env=here.env)
        for past in source.read_past(lines):
            number = _JOB_NUMBER.match(past.id)
            job = past.id if number is None else number[0]
            names[job] = past.name
            # of an element that was requeued the last attempt counts
            elements.setdefault(job, {})[past.accounted.element] = past.accounted
    except SchedulerError as error:
        # the commands are installed on many machines that belong to no cluster
        if not kind.backend.NO_CLUSTER.search(str(error)):
            here.notify(f"{kind.accounts} lists no jobs: {error}")
    for job, of_job_id in elements.items():
        every = list(of_job_id.values())
        states = Counter(one.state for one in every)
        if by_address_space:
            every = [
                msgspec.structs.replace(one, max_rss=one.virtual_memory)
                for one in every
            ]
        yield _listed_job((job, names[job], scheduler), states, every)


def _job_of_weigh(view: JobView, store: RecordStore) -> ListedJob:
    """Return the row of a job that weigh submitted, from its records and its state."""
    _, elements = of_job(view, store, plan_if_still_there(view.job))
    measured = []
    for number, one in enumerate(elements):
        asked = one.requested
        by_address_space = asked.memory is None
        busy = None if one.cpus is None else one.cpus * (one.wall_time or 0.0)
        measured.append(
            AccountedElement(
                element=number,
                wall_time=one.wall_time,
                time_limit=asked.time_limit,
                max_rss=one.virtual if by_address_space else one.memory,
                memory_asked=asked.virtual_memory if by_address_space else asked.memory,
                cpu_time=busy,
                cpus=asked.cpus,
            )
        )
    job = view.job
    states = Counter(task.state for task in view.tasks)
    return _listed_job((job.id, job.name, job.scheduler), states, measured)


def _listed_job(
    called: tuple[str, str, str],
    states: Mapping[State, int],
    elements: Sequence[AccountedElement],
) -> ListedJob:
    """Return the row of a job: of its elements the largest shares, of CPUs the mean."""
    job_id, name, scheduler = called
    walls = [one.wall_time or None for one in elements]
    limits = [one.time_limit for one in elements]
    sizes = [(one.max_rss, one.memory_asked) for one in elements]
    return ListedJob(
        id=job_id,
        name=name,
        scheduler=scheduler,
        states=dict(states),
        elapsed=largest_known(walls),
        time_share=largest_known(map(_share_of_request, walls, limits)),
        memory_share=largest_known(_share_of_request(*pair) for pair in sizes),
        cpu_share=_share_of_cpus(
            (one.cpu_time, one.cpus, one.wall_time) for one in elements
        ),
    )


def _share_of_request(used: float | None, requested: float | None) -> float | None:
    return used / requested if requested and used is not None else None


def _share_of_cpus(
    held: Iterable[tuple[float | None, int | None, Seconds | None]],
) -> float | None:
    """Return CPU time over CPUs times time, of the elements of which all is known."""
    busy = total = 0.0
    for cpu_time, cpus, wall_time in held:
        if cpu_time is not None and cpus and wall_time:
            busy += cpu_time
            total += cpus * wall_time
    return busy / total if total else None


_TITLE_WIDTH = 12  # columns of the titles of a ticket
_QUOTED_LINES = 20  # of output


def support_ticket(here: Here, name: str) -> str:
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
    return "\n".join(lines)


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
    yield "requested", requested_amounts_text(requested)
    yield "used", _usage_text(row)
    yield "command", row.command
    yield "folder", (record.cwd if record else None) or ""
    yield "output", output
    if row.state in FAILED and len(alike) > 1:
        nodes = dict.fromkeys(other.row.node for other in alike if other.row.node)
        where = f", on {', '.join(list(nodes)[:5])}" if nodes else ""
        others = count_with_noun(len(alike) - 1, f"other {report_material.unit}")
        yield "the same", f"in {others}{where}"


def _joined_words(*words: str) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


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
# characters that Markdown may read as markup
_SPECIAL = frozenset("\\`*_{}[]<>()#+!|~&$")


def compute_statement(here: Here, name: str) -> str:
    """State what the runs called *name* took; each attempt counts, failed ones too.

    Raises:
        UsageError: nothing was measured.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    found = gather_report_material(here, name, open_store(here.cwd, here.env))
    # a task that did not start took nothing
    runs = [run for run in found.runs if run.row.started is not None]
    if not runs:
        raise UsageError(f"no run of {found.title} was measured: nothing to state")
    lines = [f"**Compute.** {escaped_markdown(found.title)}", ""]
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
    # what was used; the hours of a report are those that were held
    if cpu_times:
        hours.append(f"{_hours_text(sum(cpu_times))} hours of CPU time")
    if totals.time is not None:
        hours.append(f"{_hours_text(totals.time)} hours of GPU time")
    yield "Total time", ", ".join(hours)
    if totals.energy is not None:
        of = f", measured in {totals.measured:,} of {count_with_noun(len(runs), 'run')}"
        energy = three_digit_text(totals.energy / _JOULES_PER_KWH)
        yield "Energy of the GPUs", f"{energy} kWh{of}"


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


def _spread_text(values: Sequence[float], text_of: Callable[[float], str]) -> str:
    least, most = min(values), max(values)
    if least == most:
        return text_of(least)
    middle = text_of(statistics.median(values))
    return f"median {middle}, from {text_of(least)} to {text_of(most)}"
