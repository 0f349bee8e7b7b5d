"""What to say of a task that was tried: how it went, and what gave it away."""

import os
from collections.abc import Iterator, Mapping

import msgspec

from weigh.estimate.growth import growth_of
from weigh.estimate.readings import gpu_memory
from weigh.flow.check.trials import Ended, Stop, TaskToTry
from weigh.flow.run.run_measured import last_line
from weigh.model.check import Trial
from weigh.model.mask import MASK
from weigh.model.record import Measurement, Monitor, Record, Series
from weigh.outcome import signal_name
from weigh.runner.divergence import Divergence, find_divergence
from weigh.runner.retry import Ending, end
from weigh.store.lines import read_tail
from weigh.units import MIB, Seconds, format_duration, format_size

_AT_ONCE: Seconds = 1.0  # a crash before that is one of the start
_PIECE = 4 * MIB
_TAIL = 16384  # bytes of output looked through for words of memory trouble
_LONGEST_EVIDENCE = 200


class _Verdict(msgspec.Struct, frozen=True):
    state: str
    words: str
    is_wrong: bool = False


_STOPPED: dict[Stop | None, _Verdict] = {
    "signal": _Verdict("INTERRUPTED", "stopped with weigh"),
    "memory": _Verdict("OUT_OF_MEMORY", "memory ran out", is_wrong=True),
}


def judge_trial(
    task: TaskToTry,
    ended: Ended | None,
    *,
    parameters: Mapping[str, int | float | str],
    allow_nan: bool,
) -> Trial:
    """Make the verdict on one task; *ended* is None for one that was not begun."""
    trial = Trial(
        task=task.seq,
        command=_text(MASK.line(os.fsdecode(task.line))),
        parameters={_text(name): _plain(value) for name, value in parameters.items()},
        state="PENDING",
        verdict="not tried",
    )
    if ended is None:
        return trial
    lost = None if allow_nan else _divergence(ended.log)
    verdict = _verdict(ended, lost)
    evidence = lost.text if lost is not None else last_line(ended.log)
    return msgspec.structs.replace(
        trial if ended.record is None else _measured(trial, ended.record, ended),
        state=verdict.state,
        verdict=verdict.words,
        is_wrong=verdict.is_wrong,
        output=os.path.relpath(ended.log),
        output_size=_size(ended.log),
        evidence=_text(evidence[:_LONGEST_EVIDENCE]),
    )


def _measured(trial: Trial, record: Record, ended: Ended) -> Trial:
    """Fill in what it used."""
    usage = record.usage
    if usage is None:
        return trial
    peak = usage.peak_memory
    return msgspec.structs.replace(
        trial,
        exit_code=None if ended.stop else record.exit_code,
        signal=None if ended.stop else record.signal,
        wall_time=usage.wall_time,
        cpu_time=usage.cpu_time,
        cpus_used=usage.cpus_used,
        peak_memory=None if peak is None else peak.value,
        gpu_memory=gpu_memory(usage),
        growth_rate=_growth_rate(record),
    )


def _growth_rate(record: Record) -> float | None:
    """Return the bytes a second by which memory still rose; None where it did not."""
    if record.series is None:
        return None
    growth = growth_of(record.series.t, record.series.memory)
    if growth is None or not growth.growing or growth.trend is None:
        return None
    return growth.trend.rate


def _verdict(ended: Ended, lost: Divergence | None) -> _Verdict:
    """Judge: what ended it first, then what it printed."""
    record = ended.record
    if ended.stop in _STOPPED:
        return _STOPPED[ended.stop]
    if record is None or record.usage is None:
        return _Verdict("UNKNOWN", "not measured", is_wrong=True)
    if ended.stop == "output":
        words = f"wrote {format_size(_size(ended.log))}"
        return _Verdict("CANCELLED", words, is_wrong=True)
    time = record.usage.wall_time
    ending = None if ended.stop else _ending(record, ended.log)
    if ending is not None and not ending.succeeded:
        return _Verdict(ending.state, _failure(ending, time), is_wrong=True)
    state = "RUNNING" if ended.stop else "COMPLETED"
    if lost is not None:
        return _Verdict(state, f"{lost.word} in line {lost.line}", is_wrong=True)
    fine = "still running, fine" if ended.stop else f"fine, {format_duration(time)}"
    return _Verdict(state, fine)


def _failure(ending: Ending, time: Seconds) -> str:
    how = f"exit {ending.exit_code}"
    if ending.state == "OUT_OF_MEMORY":
        how = "out of memory"
    elif ending.signal is not None:
        how = signal_name(ending.signal)
    when = "at once" if time < _AT_ONCE else f"after {format_duration(time)}"
    return f"{how} {when}"


def _ending(record: Record, log: str) -> Ending:
    """Judge a run by its last words too, as ``weigh exec`` does."""
    assert record.usage is not None  # noqa: S101 - asked before
    measured = Measurement(
        started=0.0,
        ended=0.0,
        exit_code=record.exit_code,
        signal=record.signal,
        usage=record.usage,
        series=Series(),
        monitor=Monitor(),
        oom_kills=1 if record.state == "OUT_OF_MEMORY" else None,
    )
    return end(measured, tail=read_tail(log, _TAIL))


def _divergence(log: str) -> Divergence | None:
    """Find the first lost number in a file of any size."""
    lines = 0
    for piece in _pieces(log):
        lost = find_divergence(piece)
        if lost is not None:
            return msgspec.structs.replace(lost, line=lines + lost.line)
        lines += piece.count(b"\n")
    return None


def _pieces(log: str) -> Iterator[bytes]:
    """Read a file in pieces of whole lines; one that is too long is cut."""
    rest = b""
    try:
        with open(log, "rb") as file:
            while piece := file.read(_PIECE):
                head, newline, rest = (rest + piece).rpartition(b"\n")
                yield head + newline or rest
                rest = rest if newline else b""
    except OSError:
        return
    yield rest


def _size(log: str) -> int:
    try:
        return os.stat(log).st_size
    except OSError:
        return 0


def _text(text: str) -> str:
    """Put a mark in the place of bytes that are no UTF-8: JSON cannot hold them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plain(value: float | str) -> int | float | str:
    return _text(value) if isinstance(value, str) else value
