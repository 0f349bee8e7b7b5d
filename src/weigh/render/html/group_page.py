"""What a group held and used, as one self-contained page without scripts."""

import msgspec
from markupsafe import Markup

from weigh._version import __version__
from weigh.render.html.page import environment, policy, style_sheet
from weigh.render.printable import count, printable, three
from weigh.render.report_group import (
    BY,
    TITLES,
    USED,
    Better,
    Grouped,
    Sums,
    better_words,
    lost,
    percent,
)
from weigh.units import format_duration

_MOST = 200  # rows of a table


class RowView(msgspec.Struct, frozen=True, kw_only=True):
    """One row: its name, and its cells as text."""

    name: str
    cells: tuple[str, ...]


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """The sums by users, accounts, queues or names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[RowView, ...]
    left_out: int


class TotalView(msgspec.Struct, frozen=True, kw_only=True):
    """Hours of one resource: how many, the words for it, and the share used."""

    unit: str
    held: str
    words: str
    share: str
    filled: float | None


class BetterView(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that a better request would serve."""

    who: str
    name: str
    jobs: str
    words: str
    line: str


def render_group_page(found: Grouped) -> str:
    """Write the sums as one HTML page."""
    style = style_sheet()
    return (
        environment()
        .get_template("group.html")
        .render(
            found=found,
            title=printable(f"{found.whose}, {found.since}"),
            totals=tuple(_totals(found)),
            tables=tuple(_table(by, found.by[by]) for by in BY if found.by[by]),
            better=tuple(map(_better, found.better)),
            notes=tuple(map(printable, found.notes)),
            style=Markup(style),  # noqa: S704 - a file of this package
            policy=policy(style, ()),
            version=__version__,
        )
    )


def _totals(found: Grouped) -> list[TotalView]:
    units = (("cpu", "CPU"), ("memory", "memory"), ("gpu", "GPU"))
    return [
        TotalView(
            unit=title,
            held=three(getattr(found.total.held, unit)),
            words=words,
            share=percent(found.total, unit),
            filled=_bar(found.total, unit),
        )
        for (unit, title), (words, _) in zip(units, USED, strict=True)
        if getattr(found.total.held, unit)
    ]


def _table(by: str, rows: tuple[Sums, ...]) -> TableView:
    units = ["cpu", "memory", *(["gpu"] if any(one.held.gpu for one in rows) else [])]
    titles = {
        "cpu": ("CPU h", "used"),
        "memory": ("GiB h", "used"),
        "gpu": ("GPU h", "busy"),
    }
    has_waits = any(one.wait is not None for one in rows)
    columns = [word for unit in units for word in titles[unit]]
    waits = ("median wait", "9 of 10 within") if has_waits else ()
    return TableView(
        title=TITLES.get(by, by),
        columns=("jobs", *columns, "lost", "failed", "killed", *waits),
        rows=tuple(_row(one, units, has_waits=has_waits) for one in rows[:_MOST]),
        left_out=max(0, len(rows) - _MOST),
    )


def _row(one: Sums, units: list[str], *, has_waits: bool) -> RowView:
    cells = [count(one.jobs)]
    for unit in units:
        cells += [three(getattr(one.held, unit)), percent(one, unit)]
    cells += [lost(one), count(one.failed), count(one.killed)]
    if has_waits:
        cells += [_time(one.wait), _time(one.wait_long)]
    return RowView(name=printable(one.name), cells=tuple(cells))


def _bar(one: Sums, unit: str) -> float | None:
    share = one.share(unit)
    return None if share is None else min(100.0, round(100 * share, 1))


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _better(one: Better) -> BetterView:
    return BetterView(
        who=printable(one.user),
        name=printable(one.name) or "(no name)",
        jobs=count(one.jobs),
        words=printable(better_words(one)),
        line=one.line,
    )
