"""Text, plots and JSON of ``weigh scan``: what fits, how fast, what to request."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import msgspec

from weigh.estimate.advice import GPU, Advice, Capacity, Need
from weigh.estimate.curve import Constant
from weigh.estimate.fit import Fit
from weigh.estimate.samples import size_text
from weigh.model.record import Request
from weigh.render.columns import Column, columns_of, table, wrap
from weigh.render.printable import indented_json
from weigh.render.request_lines import packed_lines
from weigh.units import (
    Seconds,
    duration_or_dash,
    format_brief,
    format_duration,
    format_size,
    size_or_dash,
)

_HEIGHT = 8
_MEASURED, _CURVE, _BOUND = "o", ".", "'"
_GAP = 2


def plots(
    fits: Sequence[tuple[str, Fit]], *, to: float, width: int, level: float
) -> Iterator[str]:
    """Draw the named *fits* from 0 to the size *to*, two side by side."""
    across = width if len(fits) == 1 else (width - _GAP) // 2
    drawn = [plot(fit, name, to=to, width=across, level=level) for name, fit in fits]
    nothing: list[str] = []
    for left, right in zip_longest(drawn[::2], drawn[1::2], fillvalue=nothing):
        for one, other in zip_longest(left, right, fillvalue=""):
            gap = " " * (across - columns_of(one) + _GAP)
            yield f"{one}{gap}{other}".rstrip()
    if fits:
        marks = f"{_MEASURED} measured   {_CURVE} fitted   {_BOUND} bound of"
        yield f"  {marks} {level * 100:.4g} %"


def plot(fit: Fit, title: str, *, to: float, width: int, level: float) -> list[str]:
    """Draw *fit* from 0 to the size *to* in *width* columns."""
    far = max(to, fit.largest_size)
    top = max(fit.upper(far, level), fit.upper(fit.points[0].x, level))
    sized = "memory" in fit.quantity
    label_of_top = format_size(round(top)) if sized else format_duration(top)
    margin = columns_of(label_of_top) + 2
    across = max(10, width - margin - 4)
    rows = _grid(fit, far, top, across, level)
    lines = [f"  {title}"]
    for number, row in enumerate(rows):
        label = {0: label_of_top, _HEIGHT - 1: "0"}.get(number, "")
        lines.append(f"  {label:>{margin - 1}} |{''.join(row)}".rstrip())
    lines.append(_axis(fit, far, margin, across))
    return lines


def _grid(
    fit: Fit, far: float, top: float, across: int, level: float
) -> list[list[str]]:
    rows = [[" "] * across for _ in range(_HEIGHT)]

    def put(x: float, y: float, mark: str) -> None:
        column = min(across - 1, round(x / far * (across - 1)))
        row = _HEIGHT - 1 - min(_HEIGHT - 1, max(0, round(y / top * (_HEIGHT - 1))))
        rows[row][column] = mark

    for column in range(across):
        x = far * max(column, 0.5) / (across - 1)
        if x >= fit.points[0].x:
            put(x, fit.upper(x, level), _BOUND)
            put(x, fit.predict(x), _CURVE)
    for point in fit.points:
        put(point.x, point.y, _MEASURED)
    return rows


def _axis(fit: Fit, far: float, margin: int, across: int) -> str:
    """Write the measured sizes under the axis, where there is room."""
    line = [" "] * across
    free = 0
    for x in _marks(fit, far):
        text = size_text(x)
        at = min(across - len(text), round(x / far * (across - 1)))
        if at >= free:
            line[at : at + len(text)] = text
            free = at + len(text) + 1
    return " " * (margin + 3) + "".join(line).rstrip()


def _marks(fit: Fit, far: float) -> Iterator[float]:
    yield from (point.x for point in fit.points)
    if far > fit.largest_size:
        yield far


SCHEMA = "weigh.estimate/1"
WIDTH = 80
_LABEL = 13
_LONGEST_COMMAND = 50
_KEPT = "\N{NO-BREAK SPACE}"
_STEPS = (
    "steps: gradients of smaller batches are added up; the effective batch stays.",
    "A different batch size would change the training.",
)


def render(
    advice: Advice, *, request: Request | None = None, narrow: str | None = None
) -> Iterator[str]:
    """Yield the lines of the screen, the answers last.

    *request* is for the target, or else for the recommended size; *narrow* is the
    command that narrows the ranges.
    """
    yield from _plots(advice)
    yield from _measured(advice)
    yield ""
    yield from _doubts(advice, narrow)
    yield from _limits(advice)
    yield from _speed(advice)
    yield from _steady(advice)
    request_rows = tuple(_request(advice, request))
    if advice.recommended is not None:
        yield from _items("recommended", _recommended(advice, advice.recommended))
        yield from request_rows if advice.target is None else ()
    if advice.target is not None:
        yield from _items(_name(advice, advice.target), [_needs(advice.target)])
        yield from request_rows
    yield from _items("from", _basis(advice))


def render_json(
    advice: Advice, *, request: Request | None = None, **more: object
) -> str:
    """Write everything as one JSON document."""
    fields = msgspec.to_builtins(advice)
    document = {"schema": SCHEMA, **more, "request": request, **fields}
    return indented_json(document)


def _plots(advice: Advice) -> Iterator[str]:
    estimate, wanted = advice.estimate, advice.options
    best = advice.recommended.size if advice.recommended else 0.0
    named = (
        ("GPU memory", estimate.gpu_memory),
        ("RAM", estimate.memory),
        ("time", estimate.time),
    )
    drawn = [(name, fit) for name, fit in named if _varies(fit) and fit is not None]
    if drawn:
        far = max(wanted.target or 0.0, best)
        yield from plots(drawn, to=far, width=WIDTH, level=wanted.level)
        yield ""


def _varies(fit: Fit | None) -> bool:
    return fit is not None and not isinstance(fit.curve, Constant)


def _measured(advice: Advice) -> Iterator[str]:
    rows = advice.rows
    columns = [Column(advice.estimate.by, tuple(size_text(row.size) for row in rows))]
    if any(row.gpu_memory for row in rows):
        cells = tuple(size_or_dash(row.gpu_memory) for row in rows)
        columns.append(Column("GPU peak", cells))
    if any(row.memory for row in rows):
        columns.append(
            Column("RAM peak", tuple(size_or_dash(row.memory) for row in rows))
        )
    columns.append(Column("time", tuple(duration_or_dash(row.time) for row in rows)))
    if any(row.time_per_sample for row in rows):
        cells = tuple(_brief(row.time_per_sample) for row in rows)
        columns.append(Column("per sample", cells))
    if advice.speeds and len(advice.speeds) == len(rows):
        cells = tuple(f"{100 * share:.0f} %" for share in advice.speeds)
        columns.append(Column("of best speed", cells))
    if any(row.runs > 1 for row in rows):
        columns.append(Column("runs", tuple(str(row.runs) for row in rows)))
    yield from table(columns, WIDTH)
    failed = advice.estimate.failed
    if failed is not None:
        yield f"  {size_text(failed)} ran out of memory (used as a bound)"


def _doubts(advice: Advice, narrow: str | None) -> Iterator[str]:
    if advice.why:
        yield from _items("unsure", advice.why)
        if narrow is not None:
            yield from _items("narrow it", [narrow])
        yield ""


def _limits(advice: Advice) -> Iterator[str]:
    """Write what each limit holds, and how many steps make the target fit."""
    limits = advice.capacities
    if not limits:
        return
    only_gpus = all(one.limit.of == GPU for one in limits)
    columns = [
        _left("GPU" if only_gpus else "limit", [one.limit.name for one in limits]),
        Column("memory", tuple(format_size(one.limit.memory) for one in limits)),
        _left("holds", [_holds(one) for one in limits]),
    ]
    if advice.target is not None:
        title = f"for {size_text(advice.target.size)}"
        columns.append(_left(title, [_fits(one) for one in limits]))
    yield from table(columns, WIDTH)
    if any(one.accumulation is not None for one in limits):
        yield f"  {_STEPS[0]}"
        yield f"  {_STEPS[1]}"
    yield ""


def _left(title: str, cells: Sequence[str]) -> Column:
    return Column(title, tuple(cells), right=False)


def _holds(limit: Capacity) -> str:
    held = limit.holding
    if held.unbounded:
        return "any"
    if held.at_most is None:
        return "not even 1"
    if held.size is None:
        return f"0 to {held.at_most}"
    if held.why and held.at_most > held.size:
        return f"{held.size} to {held.at_most}"
    return str(held.size)


def _fits(limit: Capacity) -> str:
    if limit.fits_target:
        return "fits"
    split = limit.accumulation
    if split is None:
        return "does not fit"
    return f"{split.steps} steps of {split.micro_batch}"


def _speed(advice: Advice) -> Iterator[str]:
    timed, wanted = advice.estimate.speed, advice.options
    if timed is None:
        return
    if not advice.speeds:
        if isinstance(timed.curve, Constant):
            few = "; --repeat 3 may show more" if _once(timed) else ""
            yield from _items("speed", [f"no size is clearly quicker{few}"])
        return
    last, best = timed.points[-1], advice.best_size
    text = f"{size_text(last.x)} has {100 * advice.speeds[-1]:.0f} % of the best"
    if best is None:
        text += "; it still rises with size"
    elif best > last.x:
        text += f", {best} would have {_percent(wanted.near)}"
    else:
        text += f"; {best} has {_percent(wanted.near)} already"
    whole = "of the whole run, its start-up included"
    yield from _items("speed", [text, *([whole] if timed.quantity == "time" else [])])


def _once(fit: Fit) -> bool:
    return all(point.runs == 1 for point in fit.points)


def _steady(advice: Advice) -> Iterator[str]:
    for name, fit in (
        ("GPU memory", advice.estimate.gpu_memory),
        ("RAM", advice.estimate.memory),
    ):
        if fit is not None and not _varies(fit):
            upper = round(fit.upper(fit.largest_size, advice.options.level))
            text = f"the same at every size: up to {format_size(upper)}"
            yield from _items(name, [text])


def _recommended(advice: Advice, need: Need) -> list[str]:
    near = _percent(advice.options.near)
    why = f"the smallest with {near} of the best speed"
    if advice.held_back is not None:
        why = advice.held_back
    return [f"{advice.estimate.by}={size_text(need.size)}: {why}", _needs(need)]


def _request(advice: Advice, request: Request | None) -> Iterator[str]:
    if request is not None:
        for number, line in enumerate(packed_lines(request, None, WIDTH - 15)):
            yield f"  {'request' if number == 0 else '':{_LABEL}}{line}"
    elif advice.target is not None:
        yield from _items(
            "request", ["none yet: the target is too far beyond the runs"]
        )


def _name(advice: Advice, need: Need) -> str:
    name = f"{advice.estimate.by}={size_text(need.size)}"
    return name if len(name) < _LABEL else f"at {size_text(need.size)}"


def _needs(need: Need) -> str:
    parts = []
    for what, low, high in (
        ("GPU ", need.gpu_memory, need.gpu_memory_upper),
        ("RAM ", need.memory, need.memory_upper),
    ):
        if low is not None and high is not None:
            parts.append(what + _range(format_size(low), format_size(high)))
    if need.time is not None and need.time_upper is not None:
        ends = (need.time, need.time_upper)
        parts.append(_range(*(format_duration(end) for end in ends)))
    return ", ".join(part.replace(" ", _KEPT) for part in parts)


def _range(low: str, high: str) -> str:
    """Write a range, with the unit once if both ends share it."""
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    same = high.count(" ") == 1 and high.endswith(f" {unit}")
    return f"{number if same else low} to {high}"


def _basis(advice: Advice) -> list[str]:
    estimate = advice.estimate
    runs = sum(row.runs for row in advice.rows)
    sizes = len(advice.rows)
    command = " ".join(estimate.group.command)
    text = f"{sizes} size{'s' * (sizes != 1)}, {runs} run{'s' * (runs != 1)}"
    if len(command) <= _LONGEST_COMMAND and command.isprintable():
        text += f" of {command}"
    sure = _percent(advice.options.level)
    bases = [text, f"ranges: from the prediction to its {sure} upper bound"]
    if estimate.gpu_memory is None:
        bases.append("GPU memory can only be measured on a GPU")
    return bases


def _items(name: str, texts: Sequence[str]) -> Iterator[str]:
    """Write *texts* after a name, each on a new line."""
    label = f"{name:{_LABEL}}" if len(name) < _LABEL else f"{name}  "
    for text in texts:
        for line in wrap(
            text,
            WIDTH,
            initial_indent=f"  {label}",
            subsequent_indent=" " * (_LABEL + 2),
            break_on_hyphens=False,
            break_long_words=False,
        ):
            yield line.replace(_KEPT, " ")
        label = " " * _LABEL


def _percent(share: float) -> str:
    return f"{share * 100:.4g} %"


def _brief(seconds: Seconds | None) -> str:
    return "-" if seconds is None else format_brief(seconds)
