"""Text and JSON of ``weigh scan``: what fits, how fast, what to request."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.estimate.advice import (
    GPU,
    MeasuredSize,
    ScanAdvice,
    SizeNeed,
    SizesWithinLimit,
    is_size_free,
)
from weigh.estimate.curve import ConstantCurve, QuadraticCurve, size_text
from weigh.estimate.estimate import NEAR, SizeEstimate
from weigh.estimate.fit import LEVEL, FittedCurve
from weigh.estimate.scaling import LEAST_EFFICIENCY, CpuScan
from weigh.model.record import Request
from weigh.render.columns import TableColumn, table_lines, wrap_by_columns
from weigh.render.printable import WIDTH, indented_json, range_text
from weigh.render.request_lines import (
    folded_note_lines,
    lines_behind_name,
    named_lines,
    packed_lines,
)
from weigh.units import (
    count_with_noun,
    duration_or_dash,
    format_brief,
    format_duration,
    format_size,
    size_or_dash,
)

SCHEMA = "weigh.estimate/1"
_LABEL = 13  # columns of the names at the left
_LONGEST_COMMAND = 50
# keeps a number and its unit on one line
_KEPT = "\N{NO-BREAK SPACE}"
_STEPS = (
    "steps: gradients of smaller batches are added up; the effective batch stays.",
    "A different batch size would change the training.",
)


def estimate_screen_lines(
    advice: ScanAdvice,
    *,
    scheduler: str,
    request: Request | None = None,
    narrow: str | None = None,
) -> Iterator[str]:
    """Yield the lines of the screen, the answers last.

    *request* is for the target, or else for the recommended size, as *scheduler* writes
    it; *narrow* is the command that narrows the ranges.
    """
    yield from _measured_sizes_table(advice)
    yield ""
    yield from _doubt_lines(advice, narrow)
    yield from _capacity_table_lines(advice)
    yield from _speed_lines(advice)
    yield from _constant_quantity_lines(advice)
    yield from _labelled_lines("grows", list(_growth_shape_texts(advice.estimate)))
    request_rows = tuple(_estimate_request_lines(advice, request, scheduler))
    if advice.recommended is not None:
        yield from _labelled_lines(
            "recommended", _recommendation_texts(advice, advice.recommended)
        )
        yield from request_rows if advice.target is None else ()
    if advice.target is not None:
        yield from _labelled_lines(
            _need_label(advice, advice.target), [_need_range_text(advice.target)]
        )
        yield from request_rows
    yield from _labelled_lines("from", _estimate_basis_texts(advice))


def estimate_json(
    advice: ScanAdvice, *, request: Request | None = None, **more: object
) -> str:
    """Write everything as one JSON document."""
    fields = msgspec.to_builtins(advice)
    document = {"schema": SCHEMA, **more, "request": request, **fields}
    return indented_json(document)


def _depends_on_size(fitted_curve: FittedCurve | None) -> bool:
    return fitted_curve is not None and not isinstance(
        fitted_curve.curve, ConstantCurve
    )


def _measured_sizes_table(advice: ScanAdvice) -> Iterator[str]:
    rows = advice.rows
    shares = dict(zip((row.size for row in rows), advice.speeds, strict=False))
    columns = [
        TableColumn(advice.estimate.by, lambda row: size_text(row.size)),
        # what is 0 throughout was not used
        TableColumn(
            "GPU peak", lambda row: size_or_dash(row.gpu_memory or None), optional=True
        ),
        TableColumn(
            "RAM peak", lambda row: size_or_dash(row.memory or None), optional=True
        ),
        TableColumn("time", lambda row: duration_or_dash(row.time)),
        TableColumn("per sample", _time_per_sample_text, optional=True),
    ]
    # speeds of other sizes than those of the table cannot stand in its rows
    if advice.speeds and len(advice.speeds) == len(rows):
        columns.append(
            TableColumn("of best speed", lambda row: f"{100 * shares[row.size]:.0f} %")
        )
    if any(row.runs > 1 for row in rows):
        columns.append(TableColumn("runs", lambda row: str(row.runs)))
    yield from table_lines(rows, columns)
    failed = advice.estimate.failed
    if failed is not None:
        yield f"  {size_text(failed)} ran out of memory (used as a bound)"


def _time_per_sample_text(row: MeasuredSize) -> str:
    return format_brief(row.time_per_sample) if row.time_per_sample else "-"


def _doubt_lines(advice: ScanAdvice, narrow: str | None) -> Iterator[str]:
    if advice.why:
        yield from _labelled_lines("unsure", advice.why)
        if narrow is not None:
            yield from _labelled_lines("narrow it", [narrow])
        yield ""


def _capacity_table_lines(advice: ScanAdvice) -> Iterator[str]:
    """Write what each limit holds, and how many steps make the target fit."""
    limits = advice.capacities
    if not limits:
        return
    only_gpus = all(one.limit.of == GPU for one in limits)
    columns = [
        TableColumn(
            "GPU" if only_gpus else "limit", lambda one: one.limit.name, right=False
        ),
        TableColumn("memory", lambda one: format_size(one.limit.memory)),
        TableColumn("holds", _holding_text, right=False),
    ]
    if advice.target is not None:
        title = f"for {size_text(advice.target.size)}"
        columns.append(TableColumn(title, _target_fit_text, right=False))
    yield from table_lines(limits, columns)
    if any(one.accumulation is not None for one in limits):
        yield f"  {_STEPS[0]}"
        yield f"  {_STEPS[1]}"
    yield ""


def _holding_text(limit: SizesWithinLimit) -> str:
    held = limit.holding
    if held.unbounded:
        return "any"
    if held.at_most is None:
        return "not even 1"
    if held.size is None:
        return f"0 to {held.at_most}"
    # the data leave it open: the last size that surely fits, and the last that may
    if held.why and held.at_most > held.size:
        return f"{held.size} to {held.at_most}"
    return str(held.size)


def _target_fit_text(limit: SizesWithinLimit) -> str:
    if limit.fits_target:
        return "fits"
    split = limit.accumulation
    if split is None:
        return "does not fit"
    return f"{split.steps} steps of {split.micro_batch}"


def _speed_lines(advice: ScanAdvice) -> Iterator[str]:
    timed = advice.estimate.speed
    if timed is None or not is_size_free(advice.estimate, advice.options):
        return
    if not advice.speeds:
        if isinstance(timed.curve, ConstantCurve):
            # runs of one size each cannot be distinguished from noise
            is_once = all(point.runs == 1 for point in timed.points)
            few = "; --repeat 3 may show more" if is_once else ""
            yield from _labelled_lines("speed", [f"no size is clearly quicker{few}"])
        return
    last, best = timed.points[-1], advice.best_size
    text = f"{size_text(last.x)} has {100 * advice.speeds[-1]:.0f} % of the best"
    if best is None:
        text += "; it still rises with size"
    elif best > last.x:
        text += f", {best} would have {100 * NEAR:.0f} %"
    else:
        text += f"; {best} has {100 * NEAR:.0f} % already"
    whole = "of the whole run, its start-up included"
    yield from _labelled_lines(
        "speed", [text, *([whole] if timed.quantity == "time" else [])]
    )


def _constant_quantity_lines(advice: ScanAdvice) -> Iterator[str]:
    for name, fit in (
        ("GPU memory", advice.estimate.gpu_memory),
        ("RAM", advice.estimate.memory),
    ):
        if fit is not None and not _depends_on_size(fit):
            upper = round(fit.upper(fit.largest_size, LEVEL))
            text = f"the same at every size: up to {format_size(upper)}"
            yield from _labelled_lines(name, [text])


def _growth_shape_texts(size_estimate: SizeEstimate) -> Iterator[str]:
    """Yield what grows faster than the size, and how."""
    for name, fit in (
        ("GPU memory", size_estimate.gpu_memory),
        ("RAM", size_estimate.memory),
        ("time", size_estimate.time),
    ):
        if fit is not None and isinstance(fit.curve, QuadraticCurve):
            by = size_estimate.by
            shape = f"{by} and its square" if fit.curve.slope else f"the square of {by}"
            yield f"{name} with {shape}"


def _recommendation_texts(advice: ScanAdvice, size_need: SizeNeed) -> list[str]:
    why = f"the smallest with {100 * NEAR:.0f} % of the best speed"
    if advice.held_back is not None:
        why = advice.held_back
    return [
        f"{advice.estimate.by}={size_text(size_need.size)}: {why}",
        _need_range_text(size_need),
    ]


def _estimate_request_lines(
    advice: ScanAdvice, request: Request | None, scheduler: str
) -> Iterator[str]:
    if request is not None:
        lines = packed_lines(request, scheduler, WIDTH - 15)
        yield from lines_behind_name("request", lines, name_width=_LABEL)
    elif advice.target is not None:
        yield from _labelled_lines(
            "request", ["none yet: the target is too far beyond the runs"]
        )


def _need_label(advice: ScanAdvice, size_need: SizeNeed) -> str:
    name = f"{advice.estimate.by}={size_text(size_need.size)}"
    # a long name of a parameter would break the column of names
    return name if len(name) < _LABEL else f"at {size_text(size_need.size)}"


def _need_range_text(size_need: SizeNeed) -> str:
    parts = []
    for what, low, high in (
        ("GPU ", size_need.gpu_memory, size_need.gpu_memory_upper),
        ("RAM ", size_need.memory, size_need.memory_upper),
    ):
        if low is not None and high is not None:
            parts.append(what + range_text(format_size(low), format_size(high)))
    if size_need.time is not None and size_need.time_upper is not None:
        ends = (size_need.time, size_need.time_upper)
        parts.append(range_text(*(format_duration(end) for end in ends)))
    return ", ".join(part.replace(" ", _KEPT) for part in parts)


def _estimate_basis_texts(advice: ScanAdvice) -> list[str]:
    estimate = advice.estimate
    runs = sum(row.runs for row in advice.rows)
    sizes = len(advice.rows)
    command = " ".join(estimate.group.command)
    text = f"{count_with_noun(sizes, 'size')}, {count_with_noun(runs, 'run')}"
    if len(command) <= _LONGEST_COMMAND and command.isprintable():
        text += f" of {command}"
    sure = f"{100 * LEVEL:.0f} %"
    bases = [text, f"ranges: from the prediction to its {sure} upper bound"]
    if estimate.gpu_memory is None:
        bases.append("GPU memory can only be measured on a GPU")
    return bases


def _labelled_lines(item_name: str, texts: Sequence[str]) -> Iterator[str]:
    """Write *texts* after a name, each on a new line."""
    label = f"{item_name:{_LABEL}}" if len(item_name) < _LABEL else f"{item_name}  "
    for text in texts:
        for line in wrap_by_columns(
            text,
            WIDTH,
            initial_indent=f"  {label}",
            subsequent_indent=" " * (_LABEL + 2),
            break_on_hyphens=False,
            break_long_words=False,
        ):
            # only now, after the lines were broken
            yield line.replace(_KEPT, " ")
        label = " " * _LABEL


_INDENT = " " * 13


def scaling_lines(cpu_scan: CpuScan, scheduler: str) -> Iterator[str]:
    """Write the times, and the request for the CPUs that pay."""
    if cpu_scan.rows:
        yield from table_lines(cpu_scan.rows, _SCALING_COLUMNS)
    if any(row.is_beyond for row in cpu_scan.rows):
        yield "  * more than the CPUs here: the time it would take at best"
    if cpu_scan.cpus is None or cpu_scan.request is None:
        return
    cpus = count_with_noun(cpu_scan.cpus, "CPU")
    words = f"{cpus}: the most with {100 * LEAST_EFFICIENCY:.0f} % efficiency"
    # the largest number that was tried: more might pay as well
    if cpu_scan.cpus == max(row.cpus for row in cpu_scan.rows):
        words += f"; beyond {cpu_scan.cpus}: not measured"
    yield from named_lines("pays", words, indent=2, name_width=11)
    lines = packed_lines(cpu_scan.request, scheduler, WIDTH - len(_INDENT))
    yield from lines_behind_name("request", lines, name_width=11)
    yield from folded_note_lines(cpu_scan.request.notes, indent=_INDENT)


_SCALING_COLUMNS = (
    TableColumn("cpus", lambda row: str(row.cpus)),
    TableColumn("time", lambda row: format_duration(row.wall_time)),
    TableColumn("without wait", lambda row: format_duration(row.alone)),
    TableColumn(
        "efficiency",
        lambda row: f"{100 * row.efficiency:.0f} %{'*' if row.is_beyond else ''}",
    ),
)


def scaling_json(cpu_scan: CpuScan) -> str:
    """Write a scan as one document."""
    return indented_json(cpu_scan)
