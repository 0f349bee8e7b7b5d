"""Text, CSV and JSON of what a group held and used, from accounting alone."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh.render.columns import Column, table
from weigh.render.printable import cell, count, printable, three
from weigh.render.report_waste import Hours, hours_words
from weigh.render.request_lines import folded
from weigh.units import Bytes, Seconds, format_duration, format_size

SCHEMA = "weigh.group/1"
WIDTH = 80
BY = ("user", "account", "queue", "name")
_SHOWN = 8
_HEAD = 14
_UNITS = (("cpu", "CPU"), ("memory", "memory"), ("gpu", "GPU"))


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the jobs of one user, account, queue or name.

    ``held`` is what they were granted (of memory: requested), ``known`` the part of it
    of which accounting shows the use, ``used`` that use, ``lost`` what failed and
    killed jobs held. ``wait`` is the median wait in seconds, and nine of ten waited at
    most ``wait_long``.
    """

    name: str
    jobs: int = 0
    failed: int = 0
    killed: int = 0
    held: Hours = Hours()
    known: Hours = Hours()
    used: Hours = Hours()
    lost: Hours = Hours()
    wait: Seconds | None = None
    wait_long: Seconds | None = None

    def share(self, unit: str) -> float | None:
        """Return the share of *unit* (``cpu``) that was used; None if unknown."""
        known = getattr(self.known, unit)
        return getattr(self.used, unit) / known if known else None


class Better(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one kind that a better request would serve, and what that frees.

    ``requested`` and ``most`` are bytes on a node, ``busiest`` CPUs, ``gpu_busy`` a
    share. ``line`` is empty for GPUs that were idle: look at the job first.
    """

    user: str
    name: str
    jobs: int
    requested: Bytes | None
    most: Bytes | None
    cpus: int
    busiest: float | None
    gpus: int
    gpu_busy: float | None
    frees: Hours
    line: str


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs held and used; of ``running`` jobs nothing is counted.

    ``sampled`` are the seconds between samples of memory; ``unsampled`` counts jobs
    without a sample, ``dropped`` rows that could not be read. ``notes`` are what
    accounting cannot show. ``whose`` and ``since`` are words, ``source`` the command.
    """

    schema: str = SCHEMA
    whose: str = ""
    since: str = ""
    source: str = ""
    total: Sums
    by: Mapping[str, tuple[Sums, ...]]
    better: tuple[Better, ...] = ()
    running: int = 0
    dropped: int = 0
    unsampled: int = 0
    sampled: Seconds | None = None
    counts_addresses: bool = False
    notes: tuple[str, ...] = ()


def render_group(found: Grouped) -> str:
    """Write the sums as text of at most 80 columns."""
    return "\n".join(line.rstrip() for line in _lines(found))


def render_group_json(found: Grouped) -> str:
    """Write all sums as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


_HOURS = tuple(
    (unit, what) for unit, _ in _UNITS for what in ("held", "known", "used", "lost")
)
_CSV = (
    *("by", "name", "jobs", "failed", "killed"),
    *(f"{unit}_hours_{what}" for unit, what in _HOURS),
    *("wait_median_seconds", "wait_90_percent_seconds"),
)


def render_group_csv(found: Grouped) -> str:
    """Write one row per user, account, queue and name; the first is the total."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(_CSV)
    everything = (("total", found.total), *((b, o) for b in BY for o in found.by[b]))
    for by, one in everything:
        hours = (round(getattr(getattr(one, what), unit), 3) for unit, what in _HOURS)
        counts = (one.jobs, one.failed, one.killed)
        waits = (one.wait, one.wait_long)
        rows.writerow((by, cell(one.name), *counts, *hours, *waits))
    return out.getvalue().rstrip("\n")


def _lines(found: Grouped) -> Iterator[str]:
    total = found.total
    users = len(found.by["user"])
    whom = f" of {count(users)} users" if users > 1 else ""
    yield f"  {found.whose}, {found.since}   {_jobs(total.jobs)}{whom}"
    if not total.jobs:
        yield from _entry("", "no job ended in that time")
    for (unit, title), (words, used) in zip(_UNITS, USED, strict=True):
        held = getattr(total.held, unit)
        if held:
            share = total.share(unit)
            rest = "use not shown" if share is None else f"{_percent(share)} {used}"
            yield from _entry(title, f"{three(held)} {words}, {rest}")
    if total.failed or total.killed:
        what = f"{hours_words(total.lost)} in {count(total.failed)} failed jobs and "
        yield from _entry("lost", f"{what}{count(total.killed)} killed ones")
    for by in BY:
        if found.by[by] and not (by == "user" and users < 2):  # noqa: PLR2004 - one
            yield ""
            yield from _table(by, found.by[by])
    if found.better:
        yield ""
        yield "  better requests that would free most, and the flags to write"
        for number, one in enumerate(found.better, 1):
            yield from _better(number, one)
    yield ""
    for note in found.notes:
        yield from _entry("note", note)


USED = (("h held", "used"), ("GiB h requested", "used"), ("h held", "busy"))


def _table(by: str, rows: Sequence[Sums]) -> Iterator[str]:
    shown = rows[:_SHOWN]

    def column(
        title: str, of: Callable[[Sums], str], drop: int = 0, *, needed: bool = True
    ) -> Iterator[Column]:
        if needed:
            yield Column(title, tuple(of(one) for one in shown), drop=drop)

    has_gpus = any(one.held.gpu for one in rows)
    names = tuple(printable(one.name) for one in shown)
    yield from table(
        [
            Column(TITLES.get(by, by), names, right=False, flexible=True),
            *column("jobs", lambda one: count(one.jobs)),
            *column("CPU h", lambda one: three(one.held.cpu)),
            *column("used", lambda one: percent(one, "cpu")),
            *column("GiB h", lambda one: three(one.held.memory)),
            *column("used", lambda one: percent(one, "memory")),
            *column("GPU h", lambda one: three(one.held.gpu), needed=has_gpus),
            *column("busy", lambda one: percent(one, "gpu"), needed=has_gpus),
            *column("lost", lost, 2),
            *column("wait", _wait, 3, needed=any(one.wait is not None for one in rows)),
        ],
        WIDTH,
    )
    if len(rows) > _SHOWN:
        yield f"  and {count(len(rows) - _SHOWN)} more (--csv has them all)"


TITLES = {"name": "job name"}


def lost(one: Sums) -> str:
    """Return the share of what was held that failed and killed jobs held."""
    held = one.held.weight
    return _percent(one.lost.weight / held) if held else "-"


def percent(one: Sums, unit: str) -> str:
    """Return the share of *unit* that was used, as text."""
    share = one.share(unit)
    return "-" if share is None else _percent(share)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _wait(one: Sums) -> str:
    return "-" if one.wait is None else format_duration(one.wait)


def better_words(one: Better) -> str:
    """Return what the jobs requested and used, and what a better request frees."""
    words = []
    if one.frees.memory and one.requested and one.most:
        what = f"{format_size(one.requested)} requested, {format_size(one.most)} used"
        words.append(what)
    if one.frees.cpu and one.busiest is not None:
        words.append(f"{one.busiest:.1f} of {count(one.cpus)} CPUs busy")
    if one.frees.gpu and one.gpu_busy is not None:
        noun = "GPU" if one.gpus == 1 else "GPUs"
        words.append(f"{count(one.gpus)} {noun} {_percent(one.gpu_busy)} busy")
    return f"{'; '.join(words)}: {hours_words(one.frees)}"


def _better(number: int, one: Better) -> Iterator[str]:
    whose = f"{printable(one.user)}  " if one.user else ""
    head = f"  {number:>2}  {whose}{printable(one.name) or '(no name)'}"
    yield f"{head}  ({_jobs(one.jobs)})"[:WIDTH]
    yield from (f"      {line}" for line in folded(better_words(one), WIDTH - 6))
    yield f"      -> {one.line or 'look at the job first: no GPU work was seen'}"


def _jobs(number: int) -> str:
    return f"{count(number)} job{'' if number == 1 else 's'}"


def _entry(name: str, text: str) -> Iterator[str]:
    for line in folded(printable(text), WIDTH - _HEAD):
        yield f"  {name:<{_HEAD - 2}}{line}"
        name = ""
