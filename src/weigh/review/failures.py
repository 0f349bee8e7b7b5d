"""Notes on failures: tasks that failed alike, slow nodes, retries."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from weigh.model.report import Note, Row
from weigh.units import counted

_SLOWER = 1.25
_CLEARLY = 10.0  # seconds: starts and a busy moment cost short tasks as much
_ENOUGH = 3  # tasks on a node, so that it is compared
_MOST_ROWS = 0.75  # of a node's tasks must be slower than the others' median
FAILED = frozenset(
    {"FAILED", "NODE_FAIL", "PREEMPTED", "INTERRUPTED", "OUT_OF_MEMORY", "TIMEOUT"}
)
_OF_LIMITS = frozenset({"OUT_OF_MEMORY", "TIMEOUT"})  # these are noted with the request
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MOST_NODES = 3
_MOST_WAYS = 3


def failure_notes(rows: Sequence[Row], unit: str = "task") -> Iterator[Note]:
    """Yield which tasks failed and how, grouped by the kind of failure.

    *unit* is what a row is called.
    """
    failed = [row for row in rows if row.state in FAILED - _OF_LIMITS]
    ways: dict[str, list[Row]] = {}
    for row in failed:
        ways.setdefault(way_of(row), []).append(row)
    ordered = sorted(ways.values(), key=len, reverse=True)
    for alike in ordered[:_MOST_WAYS]:
        yield _way(alike, rows, unit)
    left = sum(map(len, ordered[_MOST_WAYS:]))
    if left:
        yield Note(
            about="failed", words=f"{left:,} more failed in other ways", weight=60
        )
    yield from _retries(rows, unit)
    yield from _unfinished(rows, unit)


def node_notes(rows: Sequence[Row], form: str, unit: str = "task") -> Iterator[Note]:
    """Yield which nodes are slower than the others, with the flag to exclude them.

    *form* is that flag, with ``{}`` for the node.
    """
    times: dict[str, list[float]] = {}
    for row in rows:
        if row.state == "COMPLETED" and row.node and row.wall_time:
            times.setdefault(row.node, []).append(row.wall_time)
    slow = sorted(_slow_nodes(times), key=lambda pair: pair[1], reverse=True)
    for node, factor in slow[:_MOST_NODES]:
        count = len(times[node])
        yield Note(
            about=node,
            words=f"its {count} {unit}s took {factor:.1f}x as long as the others",
            flag=form.format(node),
            weight=42,
            is_finding=True,
        )


def way_of(row: Row) -> str:
    """Return how a run failed, without numbers that differ between runs."""
    return _NUMBERS.sub("N", words_of(row))


def words_of(row: Row) -> str:
    """Return how a run failed; output before a signal is not its cause."""
    words = row.error or row.reason or row.state.lower().replace("_", " ")
    if row.signal and not row.error and not row.reason:
        return f"killed by signal {row.signal}"
    if row.error and row.signal:
        return f"signal {row.signal}, after: {row.error}"
    return words


def _way(alike: Sequence[Row], rows: Sequence[Row], unit: str) -> Note:
    first = alike[0]
    number = len(alike)
    if number == len(rows) > 1:
        which = f"all {number:,} {unit}s alike"
    elif number > 1:
        which = f"{number:,} {unit}s alike, {_named(alike, unit)}"
    else:
        which = _one(first, unit)
    nodes = Counter(row.node for row in alike if row.node)
    everywhere = {row.node for row in rows if row.node}
    where = ""
    if number > 1 and len(nodes) == 1 and len(everywhere) > 1:
        where = f", all on {next(iter(nodes))}"
    return Note(
        about="failed",
        words=f"{which}{where}: {words_of(first)}",
        weight=95 if number > 1 else 75,
        is_finding=True,
    )


def _named(alike: Sequence[Row], unit: str) -> str:
    number = alike[0].task
    return "see --json" if number is None else f"the first is {unit} {number}"


def _one(row: Row, unit: str) -> str:
    if row.task is None:
        return f"run {(row.record or '')[:6]}"
    return f"{unit} {row.task}"


def _retries(rows: Sequence[Row], unit: str) -> Iterator[Note]:
    again = [row for row in rows if row.attempts > 1 and row.state == "COMPLETED"]
    if again:
        what = counted(len(again), unit)
        yield Note(
            about="retried",
            words=f"{what} succeeded only after a retry ({_named(again, unit)})",
            weight=10,
        )


def _unfinished(rows: Sequence[Row], unit: str) -> Iterator[Note]:
    waiting = sum(row.state in {"PENDING", "RUNNING"} for row in rows)
    if waiting:
        verb = "has" if waiting == 1 else "have"
        yield Note(
            about="running",
            words=f"{counted(waiting, unit)} {verb} not ended yet: "
            "the figures are preliminary",
            weight=99,
        )


def _slow_nodes(times: dict[str, list[float]]) -> Iterator[tuple[str, float]]:
    for node, own in times.items():
        others = [time for name, all_ in times.items() if name != node for time in all_]
        if len(own) < _ENOUGH or len(others) < _ENOUGH:
            continue
        middle = statistics.median(others)
        slower = sum(time > middle for time in own) / len(own)
        own_middle = statistics.median(own)
        factor = own_middle / middle if middle > 0 else 0.0
        is_clear = factor >= _SLOWER and own_middle - middle >= _CLEARLY
        if is_clear and slower >= _MOST_ROWS:
            yield node, factor
