"""Judge the trials of ``weigh check TASKS`` by their records and their output."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL

import msgspec

from weigh.estimate.growth import growth_of
from weigh.estimate.readings import gpu_memory
from weigh.flow.run.run_measured import error_in, last_line
from weigh.model.check import TaskTrial
from weigh.model.record import Record
from weigh.need import has_waited
from weigh.outcome import error_at_end, signal_name
from weigh.render.printable import utf8_text
from weigh.render.words import rate_words
from weigh.runner.divergence import DivergenceWatch, LostNumber
from weigh.store.index import read_index, read_record
from weigh.store.lines import read_tail
from weigh.units import MIB, Seconds, format_duration

_AT_ONCE: Seconds = 1.0  # a crash before that is one of the start
_PIECE = 4 * MIB  # bytes
_LONGEST_EVIDENCE = 200  # characters
_MOST_NAMED = 3  # tasks in a note
_TAIL = 1 << 13  # bytes
# ends that are weigh's doing, not the task's
_STOPPED_BY_WEIGH = frozenset({"TIMEOUT", "CANCELLED", "INTERRUPTED", "PREEMPTED"})


def latest_attempts(scratch: str) -> dict[int, list[Record]]:
    """Return the records of each task, its latest attempt last."""
    store = os.path.join(scratch, "store")
    records: dict[int, list[Record]] = {}
    for entry in read_index(store).entries:
        record = read_record(entry)
        if record.job is not None and record.job.task is not None:
            records.setdefault(record.job.task, []).append(record)
    for attempts in records.values():
        # the index has the newest record first
        attempts.sort(key=lambda record: (record.job and record.job.attempt) or 0)
    return records


def judged_trial(  # noqa: PLR0913 - one trial, fully described
    task_number: int,
    command: str,
    record: Record | None,
    *,
    parameters: Mapping[str, int | float | str],
    folder: str,
    allow_nan: bool,
) -> TaskTrial:
    """Return the verdict on one task; *record* is None for one that was not begun."""
    trial = TaskTrial(
        task=task_number,
        command=utf8_text(command),
        parameters={
            utf8_text(name): utf8_text(value) if isinstance(value, str) else value
            for name, value in parameters.items()
        },
        state="PENDING",
        verdict="not tried",
    )
    if record is None or record.usage is None:
        return trial
    attempt = 1 if record.job is None else record.job.attempt or 1
    log = (
        f"{folder}/{task_number}.out"
        if attempt == 1
        else f"{folder}/{task_number}.{attempt}.out"
    )
    lost = None if allow_nan else _divergence_in(log)
    verdict, is_wrong = _verdict_on(record, lost)
    evidence = error_in(log) if is_wrong else last_line(log)
    usage, is_cut = record.usage, record.state in _STOPPED_BY_WEIGH
    has_wait = usage.cpu_wait is not None and has_waited(usage)
    return msgspec.structs.replace(
        trial,
        # a task that is stopped when its time is up has not failed
        state="RUNNING" if record.state == "TIMEOUT" else record.state,
        verdict=verdict,
        is_wrong=is_wrong,
        exit_code=None if is_cut else record.exit_code,
        signal=None if is_cut else record.signal,
        wall_time=usage.wall_time,
        cpu_time=usage.cpu_time,
        cpus_used=usage.cpus_used,
        cpus_wanted=usage.cpu_wait.wanted if has_wait and usage.cpu_wait else None,
        peak_memory=None if usage.peak_memory is None else usage.peak_memory.value,
        gpu_memory=gpu_memory(usage),
        growth_rate=_growth_rate(record),
        output=os.path.relpath(log),
        output_size=_trial_log_size(log),
        evidence=utf8_text(
            (evidence if lost is None else lost.text)[:_LONGEST_EVIDENCE]
        ),
    )


def _verdict_on(record: Record, lost: LostNumber | None) -> tuple[str, bool]:
    """Return the verdict in words, and whether something is wrong."""
    took = format_duration(record.usage.wall_time) if record.usage else "?"
    if record.state in {"INTERRUPTED", "PREEMPTED"}:
        return "stopped with weigh", False
    if record.state == "CANCELLED":
        evidence = record.outcome.evidence if record.outcome else ()
        return f"wrote {' '.join(evidence)}", True
    if record.state not in {"COMPLETED", "TIMEOUT"}:
        return _failure_words(record, took), True
    if lost is not None:
        return f"{lost.word} in line {lost.line}", True
    fine = f"fine, {took}" if record.state == "COMPLETED" else "still running, fine"
    return fine, False


def _failure_words(record: Record, took: str) -> str:
    if record.state == "OUT_OF_MEMORY":
        how = "out of memory"
    elif record.signal is not None:
        how = signal_name(record.signal)
    elif record.exit_code or record.outcome is None:
        how = f"exit {record.exit_code}"
    else:
        how = record.outcome.reason
    is_start = record.usage is not None and record.usage.wall_time < _AT_ONCE
    return f"{how} at once" if is_start else f"{how} after {took}"


def _growth_rate(record: Record) -> float | None:
    """Return the bytes a second by which memory still rose; None where it did not."""
    if record.series is None:
        return None
    growth = growth_of(record.series.t, record.series.memory)
    if growth is None or not growth.growing or growth.trend is None:
        return None
    return growth.trend.rate


def _divergence_in(log: str) -> LostNumber | None:
    """Find the first lost number or exploded loss in a file of any size."""
    watch = DivergenceWatch()
    with suppress(OSError), open(log, "rb") as file:
        # in pieces: a file of output may be of any size
        while piece := file.read(_PIECE):
            lost = watch.feed(piece)
            if lost is not None:
                return lost
    return watch.end()


def trial_notes(
    trials: Sequence[TaskTrial], records: Mapping[int, Sequence[Record]]
) -> list[str]:
    """Return notes about what is not a problem but worth knowing."""
    tried = [trial for trial in trials if trial.state != "PENDING"]
    rates = {t.task: t.growth_rate for t in tried if t.growth_rate is not None}
    silent = [trial.task for trial in tried if not trial.output_size]
    killed = [
        trial.task
        for trial in tried
        # weigh sends TERM first, so only a task that ignored it gets KILL
        if trial.state == "RUNNING" and records[trial.task][-1].signal == SIGKILL
    ]
    again = [trial.task for trial in tried if len(records[trial.task]) > 1]
    notes = [
        f"task {trial.task} ends with 0, yet its output ends in: {error}"
        for trial in tried
        if trial.state == "COMPLETED" and trial.output and not trial.is_wrong
        for error in filter(None, [error_at_end(_end_of(trial.output))])
    ][:_MOST_NAMED]
    if rates:
        most = rate_words(max(rates.values()))
        rising = _tasks_named(list(rates))
        notes.append(f"memory still rises in {rising}: {most} at most")
    if silent:
        notes.append(f"{_tasks_named(silent)} printed nothing")
    if killed:
        notes.append(
            f"{_tasks_named(killed)} ignored TERM and was killed: at a time limit, no "
            "checkpoint could be saved"
        )
    if again:
        notes.append(f"{_tasks_named(again)} ran twice: too little memory for several")
    if len(tried) < len(trials) or any(t.state == "INTERRUPTED" for t in tried):
        notes.append("interrupted before all tasks were tried")
    return notes


def _end_of(log: str) -> str:
    return read_tail(log, _TAIL).decode("utf-8", "replace")


def _tasks_named(tasks: Sequence[int]) -> str:
    return f"task{'s' * (len(tasks) > 1)} {', '.join(map(str, tasks))}"


def _trial_log_size(log: str) -> int:
    with suppress(OSError):
        return os.stat(log).st_size
    return 0
