"""What a request learnt from history rests on, in words and as a document."""

import math
from collections.abc import Iterator, Mapping

import msgspec

from weigh.estimate.history import ENOUGH, FURTHEST, Prediction
from weigh.estimate.history_pool import MOST_SEEN
from weigh.units import Bytes, format_duration, format_size

_LONGEST_COMMAND = 60
_HOSTS_NAMED = 3
_SURE = 0.1  # a share killed above this is worth a way out


class Kind(msgspec.Struct, frozen=True):
    """The runs that count as the same job, and those that were left apart.

    ``sizes`` are the coming run's, None where not known; ``spans`` from which to which
    they were measured. ``left_out`` counts runs by why they do not count, ``apart``
    says in words what else there is.
    """

    keys: tuple[str, ...]
    label: str | None
    command: tuple[str, ...]
    completed: int
    sizes: Mapping[str, float | None] = {}
    spans: Mapping[str, tuple[float, float]] = {}
    hosts: tuple[str, ...] = ()
    left_out: Mapping[str, int] = {}
    apart: tuple[str, ...] = ()


class Learnt(msgspec.Struct, frozen=True):
    """A request from history: of what kind of job, and what was predicted.

    ``others`` are the memory that the other risks would ask for; ``node`` the memory
    of a node, where it was less than what should be asked for.
    """

    kind: Kind
    memory: Prediction
    time: Prediction
    others: Mapping[str, Bytes] = {}
    node: Bytes | None = None


def notes(learnt: Learnt) -> tuple[str, ...]:
    """Say what *learnt* rests on: the runs, the level, the share to expect killed."""
    memory, time = learnt.memory, learnt.time
    return (
        f"from {_count(memory.runs)} of {_described(learnt.kind)}",
        f"memory {format_size(round(memory.value))}{_for(learnt.kind)}: {_by(memory)}",
        *_record_of(memory, "killed"),
        f"time {format_duration(time.value)}: {_by(time)}",
        *_record_of(time, "cut off"),
        *_capped(learnt),
        *_risks(learnt),
        *_reach(learnt),
        *kind_notes(learnt.kind),
    )


def cold_notes(kind: Kind) -> tuple[str, ...]:
    """Say that there is too little to learn from, and what to do about it."""
    more = ENOUGH - kind.completed
    known = f"{kind.completed} of {_described(kind)} completed so far"
    return (
        f"run {ENOUGH} of these first: {known}, {more} more will do",
        "until then this is the biggest use known and headroom:",
    )


def kind_notes(kind: Kind) -> Iterator[str]:
    """Say which runs were counted together, and which were not."""
    for name, value in kind.sizes.items():
        low, high = kind.spans[name]
        if value is None:
            yield (
                f"{name} went from {low:g} to {high:g} and the coming run's is not "
                f"known: --param {name}=VALUE"
            )
    if len(kind.hosts) > 1:
        named = ", ".join(kind.hosts[:_HOSTS_NAMED])
        more = len(kind.hosts) - _HOSTS_NAMED
        named += f" and {more} more" if more > 0 else ""
        keys = ",".join((*kind.keys, "host"))
        yield (
            f"measured on {len(kind.hosts)} hosts ({named}), whose times may differ: "
            f"--group {keys} keeps to one"
        )
    if kind.left_out:
        counts = (f"{number} {why}" for why, number in sorted(kind.left_out.items()))
        yield f"not counted: {', '.join(counts)}"
    yield from kind.apart


def document(learnt: Learnt) -> dict[str, object]:
    """Give *learnt* for the JSON form."""
    return {
        **kind_document(learnt.kind),
        "memory": _figures(learnt.memory),
        "time": _figures(learnt.time),
        "other_risks": dict(learnt.others),
        "node_memory": learnt.node,
    }


def kind_document(kind: Kind) -> dict[str, object]:
    """Give the *kind* for the JSON form; all there is before there are three runs."""
    return {
        "group": list(kind.keys),
        "label": kind.label,
        "command": list(kind.command),
        "runs": kind.completed,
        "runs_needed": ENOUGH,
        "sizes": dict(kind.sizes),
        "hosts": list(kind.hosts),
        "left_out": dict(kind.left_out),
    }


def _figures(said: Prediction) -> dict[str, object]:
    return {
        "value": said.value,
        "by": said.by,
        "level": said.level,
        "margin": said.margin,
        "risk": said.risk,
        "runs": said.runs,
        "replayed": said.replay.runs,
        "killed": said.replay.killed,
        "waste": said.replay.waste,
        "expected_killed": said.replay.expected_killed,
        "reach": said.reach,
        "after_kill": said.after_kill,
    }


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _described(kind: Kind) -> str:
    words = " ".join(kind.command)
    if len(words) > _LONGEST_COMMAND:
        words = words[: _LONGEST_COMMAND - 3] + "..."
    parts = []
    if "label" in kind.keys and kind.label is not None:
        parts.append(kind.label)
    if "command" in kind.keys or not parts:
        parts.append(words)
    return ": ".join(parts)


def _for(kind: Kind) -> str:
    known = [f"{name}={v:g}" for name, v in kind.sizes.items() if v is not None]
    return f" for {', '.join(known)}" if known else ""


def _by(said: Prediction) -> str:
    if said.after_kill is not None:
        return "raised after a run like this was stopped short of it"
    plus = f" + {100 * said.margin:g} %" if said.margin else ""
    if said.by == MOST_SEEN and said.level == 1:
        return f"{said.by}{plus}"
    of = "all" if said.level == 1 else f"{100 * said.level:g} %"
    return f"{said.by}, raised over {of} of its past errors{plus}"


def _record_of(said: Prediction, ended: str) -> Iterator[str]:
    """Tell how the method did on the past, and what to expect of it."""
    replay, level = said.replay, f"level {100 * said.level:g} %"
    if said.after_kill is not None:
        yield "no level: the true need is not known, it may be more yet"
    elif said.reach > 1:
        yield "no level: nothing so large was measured"
    elif replay.runs:
        waste = f", wasting {_percent(replay.waste or 0)}" if ended == "killed" else ""
        yield (
            f"{level}; the last {replay.runs} played back in order: "
            f"{replay.killed} {ended}{waste}; expect {_expected(said)} {ended}"
        )
    else:
        yield f"{level} of {_count(said.runs)}; expect {_expected(said)} {ended}"


def _expected(said: Prediction) -> str:
    return _percent(said.replay.expected_killed)


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.1f} %" if percent < _SURE * 100 else f"{percent:.0f} %"


def _capped(learnt: Learnt) -> Iterator[str]:
    if learnt.node is not None:
        yield (
            f"cut to {format_size(learnt.node)}, what a node has: it may not be enough"
        )


def _risks(learnt: Learnt) -> Iterator[str]:
    others = [f"{risk} {format_size(size)}" for risk, size in learnt.others.items()]
    if others:
        yield f"risk {learnt.memory.risk}; others would ask for: {', '.join(others)}"


def _reach(learnt: Learnt) -> Iterator[str]:
    reach = learnt.memory.reach
    if reach <= 1:
        return
    name, size, largest = max(
        (
            (name, size, learnt.kind.spans[name][1])
            for name, size in learnt.kind.sizes.items()
            if size is not None
        ),
        key=lambda one: one[1] / one[2] if one[2] > 0 else 0,
    )
    trusted = "a line is trusted" if reach <= FURTHEST else "no line is trusted"
    # the geometric mean: as many times the last as the coming is times it
    between = f"{math.sqrt(largest * size):.2g}"
    yield (
        f"{name}={size:g} is {reach:.2g} x the largest measured, and {trusted} so far: "
        f"measure {name}={float(between):g} first"
    )
