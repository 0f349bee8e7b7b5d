"""``scan`` and ``fit`` on a terminal, at most 80 columns, and as JSON."""

import textwrap
from collections.abc import Iterator

import msgspec

from weigh.estimate.advice import GPU, Advice, Card, Need
from weigh.estimate.curve import Constant
from weigh.model.record import Request
from weigh.report.columns import Column, table
from weigh.report.estimate_plot import plot
from weigh.report.request_lines import packed_lines
from weigh.units import Bytes, Seconds, format_brief, format_duration, format_size

SCHEMA = "weigh.estimate/1"
WIDTH = 80
_LABEL = 13


def render(advice: Advice, asked: Request | None = None) -> Iterator[str]:
    """Give the lines of the screen; *asked* is the request for the target."""
    yield from _measured(advice)
    yield from _doubts(advice)
    yield from _plots(advice)
    for card in advice.cards:
        yield from _item(card.limit.name, _holds(card, advice.estimate.by))
        if card.accumulation is not None:
            yield from _item("", _accumulated(card, advice.estimate.by))
    yield from _speed(advice)
    yield from _steady(advice)
    if advice.target is not None:
        yield from _item(_name(advice, advice.target), _needs(advice.target))
    if advice.recommended is not None:
        yield from _item("recommended", _recommended(advice, advice.recommended))
    if asked is not None:
        for number, line in enumerate(packed_lines(asked, "slurm", WIDTH - 15)):
            yield f"  {'ask for' if number == 0 else '':{_LABEL}}{line}"
    yield from _item("from", _basis(advice))


def render_json(advice: Advice, asked: Request | None = None) -> str:
    """Write everything as one document."""
    document = {"schema": SCHEMA, "request": asked, **msgspec.to_builtins(advice)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def size_text(size: float) -> str:
    """Write a size: whole where it is."""
    return f"{size:,.0f}".replace(",", "") if size >= 1 else f"{size:g}"


def _measured(advice: Advice) -> Iterator[str]:
    rows, by = advice.rows, advice.estimate.by
    columns = [Column(by, tuple(size_text(row.size) for row in rows))]
    if any(row.gpu_memory for row in rows):
        cells = tuple(_size(row.gpu_memory) for row in rows)
        columns.append(Column("GPU peak", cells))
    columns.append(Column("RAM peak", tuple(_size(row.memory) for row in rows)))
    columns.append(Column("time", tuple(_time(row.time) for row in rows)))
    if any(row.time_per_sample for row in rows):
        cells = tuple(
            "-" if row.time_per_sample is None else format_brief(row.time_per_sample)
            for row in rows
        )
        columns.append(Column("a sample", cells))
    if advice.speeds and len(advice.speeds) == len(rows):
        cells = tuple(f"{share:.0%}" for share in advice.speeds)
        columns.append(Column("of best speed", cells))
    if any(row.runs > 1 for row in rows):
        columns.append(Column("runs", tuple(str(row.runs) for row in rows)))
    yield from table(columns, WIDTH)
    failed = advice.estimate.failed
    if failed is not None:
        yield f"  {size_text(failed)} ran out of memory: a bound too"


def _doubts(advice: Advice) -> Iterator[str]:
    if not advice.why:
        return
    text = "; ".join(advice.why) + ": a range, not a number."
    yield from textwrap.wrap(
        text[0].upper() + text[1:],
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    if advice.next_size is not None:
        yield from _item(
            "narrow it", f"weigh scan --resume {advice.estimate.by}={advice.next_size}"
        )


def _plots(advice: Advice) -> Iterator[str]:
    estimate, wanted = advice.estimate, advice.wanted
    best = advice.recommended.size if advice.recommended else 0.0
    far = max(wanted.target or 0.0, best)
    fits = (estimate.gpu_memory, estimate.memory, estimate.time)
    for fit, title in zip(fits, ("GPU memory", "RAM", "time"), strict=True):
        if fit is not None and not isinstance(fit.curve, Constant):
            yield ""
            yield from plot(fit, title, to=far, width=WIDTH, level=wanted.level)
    yield ""


def _holds(card: Card, by: str) -> str:
    held, room = card.holding, format_size(card.limit.memory)
    if held.unbounded:
        return f"{room} holds any {by}: it does not grow with it"
    if held.at_most is None:
        return f"{room} does not hold even {by}=1"
    if held.size is None:
        return f"{room} may hold up to {held.at_most}, and is not sure to"
    if held.why and held.at_most > held.size:
        return f"{room} holds {held.size} to {held.at_most}"
    sure = f"{held.level:.0%} sure"
    return f"{room} holds {held.size} ({sure}; {held.at_most} as expected)"


def _accumulated(card: Card, by: str) -> str:
    made = card.accumulation
    if made is None:
        return ""
    return (
        f"for {by}={made.batch}: {made.steps} steps of {made.micro_batch}, gradients "
        "added up. The effective batch stays; another one trains differently"
    )


def _speed(advice: Advice) -> Iterator[str]:
    if not advice.speeds:
        return
    last = advice.rows[-1]
    here = advice.speeds[-1]
    text = f"{size_text(last.size)} has {here:.0%} of the best"
    best = advice.best_size
    if best is None:
        text += "; no end to it in sight"
    elif best > last.size:
        text += f", {best} would have {advice.wanted.near:.0%}"
    else:
        text += f"; {best} has {advice.wanted.near:.0%} already"
    yield from _item("speed", text)


def _steady(advice: Advice) -> Iterator[str]:
    for name, fit in (
        ("GPU memory", advice.estimate.gpu_memory),
        ("RAM", advice.estimate.memory),
    ):
        if fit is not None and isinstance(fit.curve, Constant):
            upper = round(fit.upper(fit.largest_size, advice.wanted.level))
            yield from _item(
                name, f"the same at every size: at most {format_size(upper)}"
            )


def _name(advice: Advice, need: Need) -> str:
    name = f"{advice.estimate.by}={size_text(need.size)}"
    return name if len(name) < _LABEL else f"at {size_text(need.size)}"


def _needs(need: Need) -> str:
    parts = [
        _range("GPU", need.gpu_memory, need.gpu_memory_upper),
        _range("RAM", need.memory, need.memory_upper),
    ]
    if need.time is not None and need.time_upper is not None:
        parts.append(
            f"{format_duration(need.time)} to {format_duration(need.time_upper)}"
        )
    return ", ".join(part for part in parts if part)


def _range(what: str, low: Bytes | None, high: Bytes | None) -> str:
    if low is None or high is None:
        return ""
    low_text, high_text = format_size(low), format_size(high)
    if low_text == high_text:
        return f"{what} {low_text}"
    number, _, unit = low_text.partition(" ")
    if high_text.endswith(unit):
        low_text = number
    return f"{what} {low_text} to {high_text}"


def _recommended(advice: Advice, need: Need) -> str:
    size = size_text(need.size)
    return f"{advice.estimate.by}={size}: {_needs(need)}"


def _basis(advice: Advice) -> str:
    runs = sum(row.runs for row in advice.rows)
    sizes = len(advice.rows)
    text = f"{sizes} size{'s' * (sizes != 1)}, {runs} run{'s' * (runs != 1)}"
    text += f"; bounds hold with {advice.wanted.level:.0%} on 60 public curves"
    if advice.estimate.gpu_memory is None and not any(
        card.limit.of == GPU for card in advice.cards
    ):
        text += "; GPU memory takes a run on a GPU"
    return text


def _item(name: str, text: str) -> Iterator[str]:
    label = f"{name:{_LABEL}}" if len(name) < _LABEL else f"{name}  "
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label}",
        subsequent_indent=" " * (_LABEL + 2),
        break_on_hyphens=False,
    )


def _size(size: Bytes | None) -> str:
    return "-" if size is None else format_size(round(size))


def _time(seconds: Seconds | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
