"""Notes on failures: tasks that failed alike, slow nodes, retries."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from weigh.model.report import ReportNote, ReportRow
from weigh.units import count_with_noun

_SLOWER = 1.25  # times the others' median
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


def failure_notes(
    report_rows: Sequence[ReportRow], unit: str = "task"
) -> Iterator[ReportNote]:
    """Yield which tasks failed and how, grouped by the kind of failure.

    *unit* is what a row is called.
    """
    # grouped by what was printed, without numbers: 500 tasks with one bug are one line
    failed = [row for row in report_rows if row.state in FAILED - _OF_LIMITS]
    ways: dict[str, list[ReportRow]] = {}
    for row in failed:
        ways.setdefault(failure_text_without_numbers(row), []).append(row)
    ordered = sorted(ways.values(), key=len, reverse=True)
    for alike in ordered[:_MOST_WAYS]:
        yield _common_failure_note(alike, report_rows, unit)
    left = sum(map(len, ordered[_MOST_WAYS:]))
    if left:
        yield ReportNote(
            about="failed", words=f"{left:,} more failed in other ways", weight=60
        )
    yield from _retry_notes(report_rows, unit)
    yield from _unfinished_notes(report_rows, unit)


def node_notes(
    report_rows: Sequence[ReportRow], form: str, unit: str = "task"
) -> Iterator[ReportNote]:
    """Yield which nodes are slower than the others, with the flag to exclude them.

    *form* is that flag, with ``{}`` for the node.
    """
    times: dict[str, list[float]] = {}
    for row in report_rows:
        if row.state == "COMPLETED" and row.node and row.wall_time:
            times.setdefault(row.node, []).append(row.wall_time)
    slow = sorted(_slow_nodes(times), key=lambda pair: pair[1], reverse=True)
    for node, factor in slow[:_MOST_NODES]:
        count = len(times[node])
        yield ReportNote(
            about=node,
            words=f"its {count} {unit}s took {factor:.1f}x as long as the others",
            flag=form.format(node),
            weight=42,
            is_finding=True,
        )


def failure_text_without_numbers(report_row: ReportRow) -> str:
    """Return how a run failed, without numbers that differ between runs."""
    return _NUMBERS.sub("N", failure_text(report_row))


def failure_text(report_row: ReportRow) -> str:
    """Return how a run failed; output before a signal is not its cause."""
    words = (
        report_row.error
        or report_row.reason
        or report_row.state.lower().replace("_", " ")
    )
    if report_row.signal and not report_row.error and not report_row.reason:
        return f"killed by signal {report_row.signal}"
    if report_row.error and report_row.signal:
        return f"signal {report_row.signal}, after: {report_row.error}"
    return words


def _common_failure_note(
    alike: Sequence[ReportRow], report_rows: Sequence[ReportRow], unit: str
) -> ReportNote:
    first = alike[0]
    number = len(alike)
    if number == len(report_rows) > 1:
        which = f"all {number:,} {unit}s alike"
    elif number > 1:
        which = f"{number:,} {unit}s alike, {_first_task_text(alike, unit)}"
    else:
        which = _task_or_run_name(first, unit)
    nodes = Counter(row.node for row in alike if row.node)
    everywhere = {row.node for row in report_rows if row.node}
    where = ""
    if number > 1 and len(nodes) == 1 and len(everywhere) > 1:
        where = f", all on {next(iter(nodes))}"
    return ReportNote(
        about="failed",
        words=f"{which}{where}: {failure_text(first)}",
        # a failure of many is more likely the program's than that of one input
        weight=95 if number > 1 else 75,
        is_finding=True,
    )


def _first_task_text(alike: Sequence[ReportRow], unit: str) -> str:
    number = alike[0].task
    return "see --json" if number is None else f"the first is {unit} {number}"


def _task_or_run_name(report_row: ReportRow, unit: str) -> str:
    if report_row.task is None:
        return f"run {(report_row.record or '')[:6]}"
    return f"{unit} {report_row.task}"


def _retry_notes(report_rows: Sequence[ReportRow], unit: str) -> Iterator[ReportNote]:
    again = [
        row for row in report_rows if row.attempts > 1 and row.state == "COMPLETED"
    ]
    if again:
        what = count_with_noun(len(again), unit)
        yield ReportNote(
            about="retried",
            words=(
                f"{what} succeeded only after a retry ({_first_task_text(again, unit)})"
            ),
            weight=10,
        )


def _unfinished_notes(
    report_rows: Sequence[ReportRow], unit: str
) -> Iterator[ReportNote]:
    waiting = sum(row.state in {"PENDING", "RUNNING"} for row in report_rows)
    if waiting:
        verb = "has" if waiting == 1 else "have"
        yield ReportNote(
            about="running",
            words=f"{count_with_noun(waiting, unit)} {verb} not ended yet: "
            "the figures are preliminary",
            weight=99,
        )


def _slow_nodes(times: dict[str, list[float]]) -> Iterator[tuple[str, float]]:
    for node, own in times.items():
        # without its own times: a slow node with half of the tasks would hide itself
        others = [time for name, all_ in times.items() if name != node for time in all_]
        if len(own) < _ENOUGH or len(others) < _ENOUGH:
            continue
        middle = statistics.median(others)
        # one long task is not a slow node: most of its tasks have to be slower
        slower = sum(time > middle for time in own) / len(own)
        own_middle = statistics.median(own)
        factor = own_middle / middle if middle > 0 else 0.0
        is_clear = factor >= _SLOWER and own_middle - middle >= _CLEARLY
        if is_clear and slower >= _MOST_ROWS:
            yield node, factor
