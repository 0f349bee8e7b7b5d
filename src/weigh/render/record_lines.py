"""One view of a record: its rows, and the two screens of them.

``weigh run`` prints the rows that sum a run up, ``weigh records show`` all of them; the
HTML page has the same rows.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    PeakMemory,
    ProgramRegions,
    Record,
    RecordedRank,
    RepeatedRun,
    Request,
    RunOutcome,
    Usage,
)
from weigh.render.printable import (
    WIDTH,
    local_time,
    peak_text,
    printable_text,
    quoted_command_line,
    range_text,
    without_control_characters,
)
from weigh.render.request_lines import (
    any_layout_notes,
    folded_note_lines,
    lines_behind_name,
    packed_lines,
)
from weigh.request import why_no_request
from weigh.schedulers import kind_or_first
from weigh.units import (
    MIB,
    Bytes,
    duration_or_dash,
    format_duration,
    format_size,
    size_or_dash,
)

if TYPE_CHECKING:
    from weigh import joined_ranks, usage_needs
    from weigh.estimate import growth as estimate_growth
    from weigh.render import columns, gpu_lines, progress_lines, region_lines
    from weigh.render import words as render_words
else:  # each is imported when it is first used
    estimate_growth = lazy_module("weigh.estimate.growth")
    joined_ranks = lazy_module("weigh.joined_ranks")
    usage_needs = lazy_module("weigh.usage_needs")
    columns = lazy_module("weigh.render.columns")
    gpu_lines = lazy_module("weigh.render.gpu_lines")
    progress_lines = lazy_module("weigh.render.progress_lines")
    region_lines = lazy_module("weigh.render.region_lines")
    render_words = lazy_module("weigh.render.words")

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
_NAME, _LONG_NAME = 9, 11  # columns of the names of a summary's rows, and of all
_INDENT = " " * (2 + _NAME)
_FILE_SHARE = 0.2  # of the peak: more is worth a line
_FILE_FLOOR = 32 * MIB  # less may be the program's own libraries
_MOST_NODES = 4  # named in the summary
MOST_RANKS = 32  # rows; of more, the largest are listed
_WORTH_NAMING = 0.5  # of the value: a lower bound below that
_SURE = 1.02  # bounds closer than this are written as one figure
_NEXT = "weigh request; run it with --repeat 3 to learn how much it varies"


class ShownRow(msgspec.Struct, frozen=True):
    """One row: ``name`` is empty where it goes on with the row above.

    The ``text`` may hold control characters of the program and the scheduler.
    """

    name: str
    text: str
    is_summary: bool = False  # ``weigh run`` prints it, too


def record_rows(record: Record, *, gpus_allocated: bool = False) -> Iterator[ShownRow]:
    """Yield all that is known of a run, except for its request and its tables.

    With *gpus_allocated*, unused GPUs are listed.
    """
    for row in _all_record_rows(record, gpus_allocated=gpus_allocated):
        if row.text:
            yield row


def _all_record_rows(record: Record, *, gpus_allocated: bool) -> Iterator[ShownRow]:
    yield from _outcome_rows(record.outcome)
    yield from _identity_rows(record)
    if record.usage is not None:
        # of several runs, the summary has a table in place of these rows
        of_one_run = not record.repeats
        for row in _usage_rows(record.usage, _memory_trend_text(record)):
            yield ShownRow(row.name, row.text, row.is_summary and of_one_run)
        if record.usage.gpus:
            fields = gpu_lines.gpu_rows(record.usage.gpus, allocated=gpus_allocated)
            yield from (ShownRow(*row) for row in fields)
            for words in usage_needs.preallocation_words(record.usage, record.state):
                yield ShownRow("", words, is_summary=True)
    yield ShownRow("nodes", _nodes_text(record), is_summary=True)
    yield from _ranks_rows(record.ranks)
    if record.missing:
        text = f"{'; '.join(record.missing)}: the figures are a lower bound"
        yield ShownRow("missing", text, is_summary=True)
    if record.progress is not None and record.batches is None:
        text = progress_lines.steps_and_speed_text(record.progress)
        yield ShownRow("progress", text, is_summary=True)
    yield from _context_rows(record)


def render_summary(
    record: Record,
    request: Request | None = None,
    *,
    colour: bool = False,
    gpus_allocated: bool = False,
    scheduler: str | None = None,
) -> str:
    """Write the summary of a finished record, with the request derived from it.

    With *gpus_allocated*, unused GPUs are listed. *scheduler* is the one that the
    request is written for, by default the first of the table.
    """
    lines = [_run_headline(record, colour=colour)]
    if record.repeats:
        lines += _repeat_statistics_lines(record.repeats)
    for row in record_rows(record, gpus_allocated=gpus_allocated):
        if row.is_summary:
            lines += _folded_row(row)
    lines += _measured_region_lines(record)
    if request is not None:
        lines += _run_request_lines(request, record, scheduler)
    elif record.usage is not None and (why_not := why_no_request(record)):
        lines += _folded_row(ShownRow("request", f"none: {why_not}"))
    # the texts hold words of the program and the scheduler
    safe = (
        lines[0],
        *map(without_control_characters, lines[1:]),
    )  # the first line has colours
    return "".join(f"{line}\n" for line in safe)


def render_record(record: Record) -> str:
    """Write all of a record, every figure with its source, in at most 80 columns."""
    lines = [_run_headline(record, colour=False)]
    for row in record_rows(record):
        lines += _folded_row(row, _LONG_NAME)
    lines += _measured_region_lines(record)
    lines += _rank_table_lines(record.ranks)
    return "\n".join(lines)


def _run_headline(record: Record, *, colour: bool) -> str:
    """Write state and time on the left, the record's id on the right."""
    wall = record.usage.wall_time if record.usage else 0.0
    # a warm-up is no run to be counted
    counted = [repeat for repeat in record.repeats if not repeat.warmup]
    took = f"{len(counted)} runs" if counted else format_duration(wall)
    joiner = "," if counted else " for" if record.state == "RUNNING" else " in"
    state = f"weigh  {printable_text(record.state)}"
    ended = f"{joiner} {took}{signal_or_exit_text(record)}"
    name = f"run {printable_text(record.id)}"
    gap = " " * max(2, WIDTH - len(state) - len(ended) - len(name))
    if colour:
        tint = _GREEN if record.state == "COMPLETED" else _RED
        state = f"weigh  {tint}{record.state}{_PLAIN}"
    return f"{state}{ended}{gap}{name}"


def signal_or_exit_text(record: Record) -> str:
    """Return the signal or exit code of a run that failed, behind a comma."""
    if record.signal is not None:
        return f", signal {record.signal}"
    return f", exit code {record.exit_code}" if record.exit_code else ""


def _outcome_rows(outcome: RunOutcome | None) -> Iterator[ShownRow]:
    # the headline has the exit code already
    if outcome is not None and not outcome.reason.startswith("exit code"):
        text = "; ".join((outcome.reason, *outcome.evidence))
        yield ShownRow("ended", text.removeprefix("ended "), is_summary=True)


def _identity_rows(record: Record) -> Iterator[ShownRow]:
    yield ShownRow("label", record.label or "")
    yield ShownRow("command", quoted_command_line(record.command))
    pairs = (f"{name}={value}" for name, value in record.parameters.items())
    yield ShownRow("parameters", ", ".join(pairs))
    yield ShownRow("folder", record.cwd or "")
    ended = f" to {' '.join(local_time(record.ended))}" if record.ended else ""
    yield ShownRow("when", f"{' '.join(local_time(record.started))}{ended}")
    host = record.host
    if host is not None:
        system = host.system if host.system != "unknown" else ""
        cpus = "" if host.cpus is None else f"{host.cpus} CPUs"
        memory = size_or_dash(host.memory, "")
        yield ShownRow("where", _words_with_commas(host.name, system, cpus, memory))


def _context_rows(record: Record) -> Iterator[ShownRow]:
    """Yield what the run was a part of, and what is in doubt of its figures."""
    if record.repeats:
        yield ShownRow("repeats", f"{len(record.repeats)} runs; the largest is shown")
    if record.requested is not None:
        words = render_words.requested_amounts_text(record.requested)
        yield ShownRow("requested", words)
    got = record.allocation
    if got is not None:
        counts = _named_values(
            ("queue", got.queue),
            ("CPUs", got.cpus),
            ("nodes", got.nodes),
            ("GPUs", got.gpus),
        )
        text = _words_with_commas(got.scheduler, counts, size_or_dash(got.memory, ""))
        yield ShownRow("granted", text)
    job = record.job
    if job is not None:
        numbers = _named_values(
            ("element", job.element), ("task", job.task), ("attempt", job.attempt)
        )
        yield ShownRow("job", _words_with_commas(job.id, numbers))
    code = record.provenance
    if code is not None:
        commit = f"commit {code.git_commit[:12]}" if code.git_commit else ""
        versions = (("Python", code.python or None), ("weigh", code.weigh or None))
        yield ShownRow("code", _words_with_commas(commit, _named_values(*versions)))
    for warning in () if record.monitor is None else record.monitor.warnings:
        yield ShownRow("note", warning)


def _words_with_commas(*words: str) -> str:
    return ", ".join(word for word in words if word)


def _named_values(*pairs: tuple[str, str | int | None]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs if value is not None)


def _memory_trend_text(record: Record) -> str:
    """Describe whether memory was flat or rising at the end."""
    usage, series = record.usage, record.series
    if usage is None or usage.growing is None or usage.peak_memory is None:
        return ""
    time = usage.peak_memory.time
    if series is not None and series.t:
        growth = estimate_growth.growth_of(series.t, series.memory)
        # the report and the request go by the flag: one verdict for all screens
        if growth is not None and growth.growing == usage.growing:
            return render_words.growth_words(growth, time)
    if usage.growing:
        return "still rising at the end"
    return "then flat" if time else ""


def _usage_rows(usage: Usage, trend: str) -> Iterator[ShownRow]:
    peak = usage.peak_memory
    if peak is not None:
        yield from _peak_memory_rows(peak, trend)
    elif usage.max_process_memory is None:
        yield ShownRow("memory", "not measured: no data in /proc", is_summary=True)
    else:
        yield ShownRow("memory", "of the job not measured", is_summary=True)
    for name, size, what in (
        # its page tables, stacks and the like are part of the memory above only
        ("largest single process", usage.max_process_memory, ", without kernel memory"),
        ("address space (virtual)", usage.virtual_memory, ""),
        ("cgroup with page cache", usage.cgroup_peak, ""),
    ):
        if size is not None:
            yield ShownRow("", f"{name} {format_size(size)}{what}")
    # most runs are of no kind that is known, and need no import
    if usage.jvm is not None or usage.sign is not None or usage.cache is not None:
        for words in (*usage_needs.heap_words(usage), *usage_needs.sign_words(usage)):
            yield ShownRow("", words, is_summary=True)
        for words in usage_needs.cache_words(usage):
            yield ShownRow("", words)
    yield from _cpu_rows(usage)
    yield from _disk_rows(usage)


def _disk_rows(usage: Usage) -> Iterator[ShownRow]:
    # most runs read nothing that is shared, and need no import
    if usage.file_calls is not None and usage.file_calls.is_shared:
        for words in usage_needs.small_read_words(usage):
            yield ShownRow("disk", words, is_summary=True)
    if usage.read_bytes is not None and usage.write_bytes is not None:
        read, written = format_size(usage.read_bytes), format_size(usage.write_bytes)
        yield ShownRow("disk", f"{read} read, {written} written")


def _cpu_rows(usage: Usage) -> Iterator[ShownRow]:
    if usage.cpu_time is not None:
        yield ShownRow("cpu", _cpu_usage_text(usage), is_summary=True)
        parts = (("user", usage.user_time), ("system", usage.system_time))
        words = [f"{name} {format_duration(t)}" for name, t in parts if t is not None]
        yield ShownRow("", ", ".join(words))
    if usage.cpu_wait is not None:
        # the request has a note of what more CPUs would change
        is_noted = any(usage_needs.need_notes(usage))
        yield ShownRow("", usage_needs.wait_words(usage), is_summary=not is_noted)


def _cpu_usage_text(usage: Usage) -> str:
    count, cores = usage.processes or 1, usage.cpus_used
    busy = ""
    if cores is not None:
        busy = f"{cores:.1f} cores, " if cores > 1 else f"{cores:.2f} of a core, "
    processes = f"{count} process{'es' if count > 1 else ''}"
    return f"{format_duration(usage.cpu_time or 0.0):<10}  {busy}{processes}"


def _peak_memory_rows(peak: PeakMemory, trend: str) -> Iterator[ShownRow]:
    """Yield the peak, and what it is made of."""
    if peak.is_bound:
        at_most = peak_text(peak.high, is_bound=True)
        words = f"{at_most}: too short to measure more exactly"
        yield ShownRow("memory", words, is_summary=True)
        return
    figure = f"{format_size(peak.value):<10}"
    if peak.certainty != "exact" and peak.high > peak.low * _SURE:
        figure += f"  {_peak_bounds_text(peak)}"
    at = "" if peak.time is None else f"peak at {format_duration(peak.time)}"
    course = _words_with_commas(at, trend)
    text = f"{figure}  {course}" if at else f"{figure.rstrip()}, {trend}"
    if not course or len(text) <= WIDTH - len(_INDENT):
        yield ShownRow("memory", text if course else figure, is_summary=True)
    else:  # a second line, rather than a single word in it
        yield ShownRow("memory", figure.rstrip(), is_summary=True)
        yield ShownRow("", course, is_summary=True)
    yield ShownRow("", peak.source)
    floor = max(_FILE_SHARE * peak.value, _FILE_FLOOR)
    large: list[str] = []
    small: list[str] = []
    for name, size in (
        ("shared memory", peak.shared),
        ("mapped files the kernel can drop", peak.file),
        ("anonymous", peak.anonymous),
        ("kernel", peak.kernel),
    ):
        if size:
            is_large = size > floor and name not in {"anonymous", "kernel"}
            (large if is_large else small).append(f"{format_size(size)} {name}")
    for parts, is_large in ((large, True), (small, False)):
        if parts:
            yield ShownRow("", f"of which {', '.join(parts)}", is_large)


def _peak_bounds_text(peak: PeakMemory) -> str:
    """Write the bounds; a low one that shows little is left out."""
    if peak.low >= _WORTH_NAMING * peak.value:
        low, high = format_size(peak.low), format_size(peak.high)
        return f"(between {range_text(low, high, 'and')})"
    return f"(at most {format_size(peak.high)})"


def _nodes_text(record: Record) -> str:
    """Write the memory of the nodes, the largest first; empty if there are none."""
    peaks = {
        node.name: node.peak_memory.value
        for node in record.nodes
        if node.peak_memory is not None
    }
    if not peaks:
        return ""
    ordered = sorted(peaks, key=lambda name: -peaks[name])
    named = [f"{name} {format_size(peaks[name])}" for name in ordered]
    # the largest and the smallest are what matters
    if len(named) > _MOST_NODES:
        named = [*named[: _MOST_NODES - 1], "...", named[-1]]
    total = record.usage.total_memory if record.usage else None
    words = f"; total {format_size(total)}" if total else ""
    return f"{len(peaks)}: {', '.join(named)}{words}"


def _ranks_rows(ranks: Sequence[RecordedRank]) -> Iterator[ShownRow]:
    """Yield the range of peak memory over the ranks, and which are uneven."""
    peaks = [rank.peak_memory for rank in ranks if rank.peak_memory is not None]
    if peaks:
        least, most = min(peaks), max(peaks)
        span = range_text(format_size(least), format_size(most), "and")
        each = format_size(most) if most <= least * _SURE else f"between {span}"
        yield ShownRow("ranks", f"{len(ranks)}, each {each} (RSS)", is_summary=True)
    if ranks:  # most runs have none, and need no import
        for note in joined_ranks.imbalance_notes(ranks):
            yield ShownRow("", note, is_summary=True)


def _measured_region_lines(record: Record) -> list[str]:
    """Write the regions that the program measured, if any."""
    if not (record.phases or record.batches or record.events):
        return []
    loops = () if record.batches is None else (record.batches,)
    return region_lines.region_lines(
        ProgramRegions(
            phases=record.phases,
            batches=loops,
            events=record.events,
            gpus=_staged_gpus(record),
        )
    )


def _staged_gpus(record: Record) -> tuple[GpuUsage, ...]:
    """Return the GPUs of which a loop shows before, model, batches and total."""
    if record.batches is None or record.usage is None:
        return ()
    # only for those GPUs the memory before the loop is known
    in_loop = {gpu.uuid for gpu in record.batches.gpus if gpu.before is not None}
    return tuple(
        msgspec.structs.replace(gpu, peak_memory=_peak_in_use(gpu))
        for gpu in record.usage.gpus
        if gpu.uuid in in_loop and gpu.job_peak != 0
    )


def _peak_in_use(gpu_usage: GpuUsage) -> Bytes | None:
    """Return the job's peak on top of what was in use before it."""
    own = gpu_usage.process_peak_memory
    return (
        gpu_usage.device_peak_memory
        if own is None
        else (gpu_usage.memory_before or 0) + own
    )


def rank_table(ranks: Sequence[RecordedRank]) -> dict[str, tuple[str, ...]]:
    """Return where each rank ran and what it used, by column; of many the largest.

    A column in which nothing is known is left out.
    """
    shown = list(ranks)
    if len(ranks) > MOST_RANKS:
        # the ranks that need most are those one looks for
        shown = sorted(ranks, key=lambda one: -(one.peak_memory or 0))[:MOST_RANKS]
    cells = {
        "rank": tuple(str(rank.rank) for rank in shown),
        "step": tuple(printable_text(rank.step or "-") for rank in shown),
        "node": tuple(printable_text(rank.host or "-") for rank in shown),
        "memory": tuple(size_or_dash(rank.peak_memory) for rank in shown),
        "CPU": tuple(duration_or_dash(rank.cpu_time) for rank in shown),
        "time": tuple(duration_or_dash(rank.wall_time) for rank in shown),
        "GPU memory": tuple(_rank_gpu_memory_text(rank) for rank in shown),
    }
    if len({rank.step for rank in ranks}) == 1:
        del cells["step"]
    return {title: texts for title, texts in cells.items() if {*texts} != {"-"}}


def _rank_table_lines(ranks: Sequence[RecordedRank]) -> Iterator[str]:
    """Write the table of ranks; nothing for one rank."""
    if len(ranks) < 2:  # noqa: PLR2004 - one is the run itself
        return
    cells = rank_table(ranks)
    table = [
        columns.TableColumn(title, itemgetter(place), right=False)
        for place, title in enumerate(cells)
    ]
    yield from columns.table_lines([*zip(*cells.values(), strict=True)], table, WIDTH)
    if len(ranks) > MOST_RANKS:
        more = len(ranks) - MOST_RANKS
        yield f"  and {more} smaller ones (weigh records export has all)"


def _rank_gpu_memory_text(rank: RecordedRank) -> str:
    """Write the memory of a rank on each GPU that it used."""
    peaks = [gpu.peak or gpu.torch_reserved for gpu in rank.gpus]
    return ", ".join(format_size(peak) for peak in peaks if peak) or "-"


def _repeat_statistics_lines(repeats: tuple[RepeatedRun, ...]) -> Iterator[str]:
    ran = [repeat for repeat in repeats if not repeat.warmup]
    # failed runs end early, and would lower the figures
    whole = [repeat.usage for repeat in ran if repeat.exit_code == 0]
    counted = whole or [repeat.usage for repeat in ran]
    if not counted:  # it failed in a warm-up run
        for row in _usage_rows(repeats[-1].usage, ""):
            yield from _folded_row(row) if row.is_summary else ()
        return
    yield f"{_INDENT}{'minimum':<12}{'median':<12}maximum"
    figures: tuple[tuple[str, list[float], Callable[[float], str]], ...] = (
        (
            "memory",
            [usage.peak_memory.value for usage in counted if usage.peak_memory],
            size_or_dash,
        ),
        ("time", [usage.wall_time for usage in counted], format_duration),
        (
            "cpu",
            [usage.cpu_time for usage in counted if usage.cpu_time is not None],
            format_duration,
        ),
    )
    for name, values, text_of in figures:
        if values:
            ordered = sorted(values)
            # the lower of two in the middle: a value that was measured
            shown = ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]
            spread = "".join(f"{text_of(value):<12}" for value in shown)
            yield from _folded_row(ShownRow(name, spread.rstrip()))


def _run_request_lines(
    request: Request, record: Record, scheduler: str | None
) -> Iterator[str]:
    room = WIDTH - len(_INDENT)
    lines = list(packed_lines(request, scheduler, room))
    usage = record.usage
    is_only_run = request.runs == 1 and not (request.lower_bound or record.repeats)
    # Grid Engine limits address space, which is more than memory
    is_address_space = kind_or_first(scheduler).traits.address_space is not None
    virtual = usage.virtual_memory if usage is not None and is_address_space else None
    basis = f"virtual size {format_size(virtual)}" if virtual else "usage"
    hint = f"{basis} + {100 * request.headroom:.3g} %"
    if is_only_run and len(f"{lines[-1]}   ({hint})") <= room:
        lines[-1] += f"   ({hint})"
    name = "at least" if request.lower_bound else "request"
    yield from lines_behind_name(name, lines, name_width=_NAME)
    # of a single run the first note is what the hint and the next step have
    notes = request.notes[1:] if is_only_run else request.notes
    notes = (*any_layout_notes(request, scheduler), *notes)
    yield from folded_note_lines(notes, indent=_INDENT)
    if is_only_run and record.allocation is None:
        yield f"  {'next':<{_NAME}}{_NEXT}"


def _folded_row(row: ShownRow, name_width: int = _NAME) -> Iterator[str]:
    """Write one row, folded if it is too long."""
    parts = columns.wrap_by_columns(printable_text(row.text), WIDTH - 2 - name_width)
    yield from lines_behind_name(row.name, parts, name_width=name_width)
