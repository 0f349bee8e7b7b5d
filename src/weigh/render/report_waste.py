"""Text and JSON of ``weigh report --since``: unused resources, the most first."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.render.columns import Column, table
from weigh.render.printable import count, printable, three
from weigh.render.report_lines import flagged

SCHEMA = "weigh.waste/1"
WIDTH = 80
# what a GPU and 4 GiB count in CPUs, to add them up: nodes of computing centres
# have 12 to 16 cores and 60 to 250 GiB per GPU
CPUS_PER_GPU = 16
GIB_PER_CPU = 4
_SHOWN = 12
_INDENT = " " * 14


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs, CPUs and GiB of memory, each times hours."""

    gpu: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0

    @property
    def weight(self) -> float:
        """Return all three as CPU hours, weighted as nodes are equipped."""
        return self.gpu * CPUS_PER_GPU + self.cpu + self.memory / GIB_PER_CPU


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a request, and what it would have saved."""

    group: str
    words: str
    flag: str | None
    saves: Hours


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one kind: what was held for them, and what was not used of it.

    ``failing`` is how all of them failed, if all failed the same way.
    """

    name: str
    runs: int
    failed: int
    held: Hours
    wasted: Hours
    failing: str | None = None
    unknown: int = 0


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """Unused resources since a date; ``unknown`` counts runs without a request."""

    schema: str = SCHEMA
    since: str
    groups: tuple[Group, ...] = ()
    changes: tuple[Change, ...] = ()
    runs: int = 0
    unknown: int = 0

    @property
    def held(self) -> Hours:
        """Add up what was held."""
        return added(group.held for group in self.groups)

    @property
    def wasted(self) -> Hours:
        """Add up what was not used."""
        return added(group.wasted for group in self.groups)


def added(hours: "Iterator[Hours] | Sequence[Hours]") -> Hours:
    """Add hours up."""
    known = list(hours)
    return Hours(
        gpu=sum(one.gpu for one in known),
        cpu=sum(one.cpu for one in known),
        memory=sum(one.memory for one in known),
    )


def hours_words(hours: Hours) -> str:
    """Write hours, without those that are zero."""
    parts = ((hours.gpu, "GPU h"), (hours.cpu, "CPU h"), (hours.memory, "GiB h"))
    return ", ".join(f"{three(v)} {unit}" for v, unit in parts if v) or "nothing"


def render_waste(waste: Waste) -> str:
    """Write the ranking as text of at most 80 columns."""
    return "\n".join(_lines(waste))


def render_waste_json(waste: Waste) -> str:
    """Write the ranking as one JSON document."""
    totals = {"held": waste.held, "wasted": waste.wasted}
    document = msgspec.to_builtins(waste) | msgspec.to_builtins(totals)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _lines(waste: Waste) -> Iterator[str]:
    noun = "run" if waste.runs == 1 else "runs"
    yield f"  since {waste.since}   {count(waste.runs)} {noun}"
    if not waste.groups:
        yield "  nothing to judge: no run recorded a request"
        return
    yield from _entry("held", hours_words(waste.held))
    yield from _entry("not used", hours_words(waste.wasted))
    yield from _table(waste.groups[:_SHOWN])
    more = len(waste.groups) - _SHOWN
    if more > 0:
        yield f"  and {count(more)} more (--json has them all)"
    for group in waste.groups:
        if group.failing:
            text = f"{group.name}: all {count(group.runs)} runs, {group.failing}"
            yield from _entry("failing", text)
    for number, change in enumerate(waste.changes[:3]):
        text = f"{change.group}: {change.words}, {hours_words(change.saves)} less"
        yield from _entry("saves most" if number == 0 else "", text, change.flag)
    if waste.unknown:
        noun = "run" if waste.unknown == 1 else "runs"
        yield from _entry(
            "not judged", f"{count(waste.unknown)} {noun} without a recorded request"
        )


def _table(groups: Sequence[Group]) -> Iterator[str]:
    def column(title: str, cells: list[str], *, right: bool = True) -> Column:
        return Column(title, tuple(cells), right=right, flexible=not right)

    hours = [group.wasted for group in groups]
    yield from (
        line.rstrip()
        for line in table(
            [
                column("not used", [printable(g.name) for g in groups], right=False),
                column("GPU h", [three(one.gpu) for one in hours]),
                column("CPU h", [three(one.cpu) for one in hours]),
                column("GiB h", [three(one.memory) for one in hours]),
                column("of held", [_share(group) for group in groups]),
                column("runs", [count(group.runs) for group in groups]),
                column("failed", [count(group.failed) for group in groups]),
            ],
            WIDTH,
        )
    )


def _share(group: Group) -> str:
    held = group.held.weight
    return f"{100 * group.wasted.weight / held:.0f} %" if held else "-"


def _entry(name: str, text: str, flag: str | None = None) -> Iterator[str]:
    for line in flagged(text, flag, WIDTH - len(_INDENT)):
        yield f"  {name:<12}{line}"
        name = ""
