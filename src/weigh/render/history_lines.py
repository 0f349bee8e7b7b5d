"""Notes and JSON of a request learnt from past runs: what it is based on."""

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.estimate.fit import TRUSTED_RATIO
from weigh.estimate.history import ENOUGH, MOST_SEEN, HistoryPrediction
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import printable_text, shortened_text, three_digit_text
from weigh.units import (
    Bytes,
    count_with_noun,
    duration_or_dash,
    format_duration,
    format_size,
    size_or_dash,
)

_LONGEST_COMMAND = 60  # columns


class HistoryKind(msgspec.Struct, frozen=True):
    """The runs that count as the same job, and those that do not.

    ``sizes`` are the next run's, None if unknown; ``spans`` the measured ranges.
    ``left_out`` counts runs by the reason why they do not count; ``mixed`` are the
    parameters whose texts vary.
    """

    label: str | None
    command: tuple[str, ...]
    completed: int  # number of completed runs
    sizes: Mapping[str, float | None] = {}
    spans: Mapping[str, tuple[float, float]] = {}
    left_out: Mapping[str, int] = {}
    mixed: tuple[str, ...] = ()


class RequestFromHistory(msgspec.Struct, frozen=True):
    """A request from history: of what kind of job, and what was predicted.

    ``node`` is the memory of a node, if the request had to be cut to it.
    """

    kind: HistoryKind
    memory: HistoryPrediction
    time: HistoryPrediction
    node: Bytes | None = None


class PastKind(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one name and number of CPUs: what they requested, and should.

    ``most`` is the largest memory that accounting shows; bytes and seconds.
    """

    name: str
    jobs: int
    cpus: int
    requested: Bytes | None = None
    most: Bytes | None = None  # None: accounting has no figure
    memory: Bytes | None = None  # what to request; None: unknown
    time: int | None = None  # seconds to request; None: unknown
    out_of_memory: int = 0  # jobs that were killed for memory


_KIND_COLUMNS = (
    TableColumn(
        "name", lambda kind: printable_text(kind.name), right=False, flexible=True
    ),
    TableColumn("jobs", lambda kind: f"{kind.jobs:,}"),
    TableColumn("CPUs", lambda kind: str(kind.cpus), drop=1),
    TableColumn("requested", lambda kind: size_or_dash(kind.requested, "?")),
    TableColumn("most used", lambda kind: size_or_dash(kind.most, "?")),
    TableColumn("killed", lambda kind: f"{kind.out_of_memory:,}", drop=2),
    TableColumn("request", lambda kind: size_or_dash(kind.memory, "?")),
    TableColumn("time", lambda kind: duration_or_dash(kind.time, "?"), drop=3),
)


def kinds_table(kinds: Sequence[PastKind], width: int) -> Iterator[str]:
    """Yield a table of kinds of jobs, one line each."""
    return table_lines(kinds, _KIND_COLUMNS, width)


def prediction_notes(learnt: RequestFromHistory) -> tuple[str, ...]:
    """Return notes: the runs used, the margins, the share expected to be killed."""
    memory, time = learnt.memory, learnt.time
    runs, kind = count_with_noun(memory.runs, "run"), _kind_description(learnt.kind)
    size = format_size(round(memory.value)) + _kind_sizes_text(learnt.kind)
    took = format_duration(time.value)
    return (
        f"from {runs} of {kind}",
        f"memory {size}: {_prediction_source_text(memory)}",
        f"time {took}: {_prediction_source_text(time)}",
        *_node_limit_notes(learnt),
        *_extrapolation_notes(learnt),
        *kind_notes(learnt.kind),
    )


def cold_notes(history_kind: HistoryKind) -> tuple[str, ...]:
    """Return notes for too few runs: how many more are needed."""
    more = ENOUGH - history_kind.completed
    runs = count_with_noun(history_kind.completed, "completed run")
    known = f"{runs} of {_kind_description(history_kind)}"
    return (
        f"{known}; {ENOUGH} are needed: run {more} more",
        "until then, the request is the largest usage plus headroom:",
    )


def kind_notes(history_kind: HistoryKind) -> Iterator[str]:
    """Yield which runs were counted together, and which were not."""
    for name, value in history_kind.sizes.items():
        low, high = history_kind.spans[name]
        if value is None:
            yield (
                f"{name} went from {low:g} to {high:g} and the next run's value "
                f"is unknown: --param {name}=VALUE"
            )
    if history_kind.left_out:
        counts = (
            f"{number} {why}" for why, number in sorted(history_kind.left_out.items())
        )
        yield f"not counted: {', '.join(counts)}"
    for name in history_kind.mixed:
        yield f"several kinds of {name} mixed: --param {name}=TEXT keeps to one"


def prediction_document(learnt: RequestFromHistory) -> dict[str, object]:
    """Return *learnt* as a JSON object."""
    return {
        **kind_document(learnt.kind),
        "memory": _prediction_figures(learnt.memory),
        "time": _prediction_figures(learnt.time),
        "node_memory": learnt.node,
    }


def kind_document(history_kind: HistoryKind) -> dict[str, object]:
    """Return *history_kind* as a JSON object; the whole answer for too few runs."""
    return {
        "label": history_kind.label,
        "command": list(history_kind.command),
        "runs": history_kind.completed,
        "runs_needed": ENOUGH,
        "sizes": dict(history_kind.sizes),
        "left_out": dict(history_kind.left_out),
    }


def _prediction_figures(prediction: HistoryPrediction) -> dict[str, object]:
    return {
        "value": prediction.value,
        "by": prediction.by,
        "margin": prediction.margin,
        "risk": prediction.risk,
        "runs": prediction.runs,
        "replayed": prediction.replay.runs,
        "killed": prediction.replay.killed,
        "waste": prediction.replay.waste,
        "reach": prediction.reach,
        "after_kill": prediction.after_kill,
    }


def _kind_description(history_kind: HistoryKind) -> str:
    # cut here, because the notes are sentences that hold the command
    words = shortened_text(" ".join(history_kind.command), _LONGEST_COMMAND)
    return words if history_kind.label is None else f"{history_kind.label}: {words}"


def _kind_sizes_text(history_kind: HistoryKind) -> str:
    known = [f"{name}={v:g}" for name, v in history_kind.sizes.items() if v is not None]
    return f" for {', '.join(known)}" if known else ""


def _prediction_source_text(prediction: HistoryPrediction) -> str:
    """Write what a figure follows from, and for how many past runs it was enough."""
    # after a kill no earlier success of the method counts
    if prediction.after_kill is not None:
        return (
            "raised because a similar run was stopped for lack of it; the true need is "
            "unknown and may be higher"
        )
    # a maximum is stated as it is; a line through points was raised by its errors
    raised = ", raised over all of its past errors"
    plus = "" if prediction.by.startswith(MOST_SEEN) else raised
    source = f"{prediction.by}{plus} + {100 * prediction.margin:.2g} %"
    if prediction.is_proven:
        source = "the most that a completed job requested"
    # a size beyond all measured ones has no past run to be compared with
    if prediction.reach > 1:
        return f"{source}; no run of that size was measured"
    runs, killed = prediction.replay.runs, prediction.replay.killed
    if killed:
        return f"{source}; too little for {killed} of the last {runs} runs"
    # one run alone shows nothing
    return f"{source}; enough for each of the last {runs} runs" if runs > 1 else source


def _node_limit_notes(learnt: RequestFromHistory) -> Iterator[str]:
    if learnt.node is not None:
        yield (
            f"limited to {format_size(learnt.node)}, the memory of a node, "
            "which may not be enough"
        )


def _extrapolation_notes(learnt: RequestFromHistory) -> Iterator[str]:
    reach = learnt.memory.reach
    if reach <= 1:
        return
    name, size, largest = max(
        (
            (name, size, learnt.kind.spans[name][1])
            for name, size in learnt.kind.sizes.items()
            if size is not None
        ),
        # the parameter that is furthest beyond its largest measured value
        key=lambda one: one[1] / one[2] if one[2] > 0 else 0,
    )
    trusted = "is" if reach <= TRUSTED_RATIO else "is not"
    # the geometric mean: the same factor from the last run and to the next
    between = float(f"{math.sqrt(largest * size):.2g}")
    # a parameter of whole numbers gets a whole number
    if float(largest).is_integer() and float(size).is_integer():
        between = round(between)
    times = three_digit_text(reach)
    yield (
        f"{name}={size:g} is {times} x the largest measured; extrapolation "
        f"{trusted} trusted that far: measure {name}={between:g} first"
    )
