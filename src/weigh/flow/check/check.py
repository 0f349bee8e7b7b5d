"""``weigh check TASKS``: try a few different tasks, and report problems."""

import glob
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

import msgspec

from weigh.errors import StoreError, UsageError, cannot_read
from weigh.estimate.growth import growth_of
from weigh.estimate.readings import gpu_memory
from weigh.flow.check import saved
from weigh.flow.exec.exec import execute
from weigh.flow.here import Here
from weigh.flow.job_scripts import hidden_exit_note, refuse_submissions
from weigh.flow.records.records import open_store
from weigh.flow.report.metric import read_metric, tables_named_by
from weigh.flow.run.run_measured import error_in, last_line
from weigh.joblog import output_name
from weigh.model.mask import SecretMask
from weigh.model.record import Record
from weigh.render.check_lines import CheckedTasks, TaskTrial
from weigh.render.words import rate_words
from weigh.review.runs import epoch_seconds
from weigh.runner.divergence import DivergenceWatch, LostNumber
from weigh.runner.run_context import ExecOptions, RunConsole
from weigh.runner.task_source import TaskParameters, TaskSource
from weigh.schedulers import KINDS
from weigh.schedulers.words import format_ranges
from weigh.store.identity import new_id
from weigh.store.location import make_folder
from weigh.sweep.diverse import (
    Parameters,
    choose_diverse,
    read_parameters,
    varying_task_parameters,
)
from weigh.sweep.task_file import is_script, lines_of_task_file
from weigh.task_metric import MetricExpectation
from weigh.units import MIB, Seconds, count_with_noun, format_duration
from weigh.why_run_ended import signal_name

_OUTPUT = "output"
_LABEL_LETTERS = 6  # letters of an id in a label
_STDIN = "-"
_GRACE: Seconds = 5.0  # from TERM to KILL
_AT_ONCE: Seconds = 1.0  # a crash before that is one of the start
_CLOCK_STEP: Seconds = 0.02  # a file system's clock may be that much behind
_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_WORDS = re.compile(rf"{_NUMBER}|[^\W\d_]+")  # numbers and letters
_WORDS_OF_COMMAND = re.compile(rf"(?<![^\W\d_]){_NUMBER}|[^\W\d_]+")  # not python3's
_PIECE = 4 * MIB  # bytes
_LONGEST_EVIDENCE = 200  # characters
_MOST_NAMED = 3  # tasks whose output ends in an error although they end with 0

_TRIED = frozenset({"COMPLETED", "TIMEOUT"})  # as far as a trial goes

Say = Callable[[str], None]


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks to try, how long each, how many at once (None: as weigh exec).

    With ``allow_nan`` NaN and inf in the output are accepted. ``expect`` is what the
    tasks have to reach in that time, None for nothing.
    """

    tasks: int = 5
    seconds: Seconds = 30.0
    jobs: int | None = None
    allow_nan: bool = False
    expect: MetricExpectation | None = None
    mask: SecretMask = SecretMask()


class ChosenTask(msgspec.Struct, frozen=True):
    """A task to try: its number, its line, and the parameters that it differs in."""

    seq: int
    line: str
    parameters: Parameters


class ChosenTasks(msgspec.Struct, frozen=True):
    """The tasks to try, of so many."""

    tasks: tuple[ChosenTask, ...]
    of: int


def is_job_script(path: str) -> bool:
    """Return whether a file is a job script, not a task file.

    Raises:
        UsageError: it cannot be read.
    """
    if path == _STDIN:
        raise UsageError("weigh check needs a file, not standard input")
    try:
        with open(path, "rb") as file:
            return is_script(lines_of_task_file(file), _is_description)
    except IsADirectoryError:
        return False  # refused where tasks are read
    except OSError as error:
        raise UsageError(cannot_read(path, error, "a task file or script")) from error


def _is_description(line: bytes) -> bool:
    """Return whether the line is a command of a scheduler's that needs no prefix."""
    text = os.fsdecode(line)
    return any(
        kind.directive.match(text) for kind in KINDS.values() if not kind.text.PREFIX
    )


def choose_tasks(path: str, options: CheckOptions) -> ChosenTasks:
    """Choose the tasks of the file *path* to try: the most different ones.

    Raises:
        UsageError: it is a script, not there, has no task, or only submits jobs.
        FormatError: a line of it cannot be a command.
    """
    lines = lines_of_tasks(path)
    refuse_submissions(path, lines)
    # a table has the values as typed; the lines show only words
    parameters = _of_sweep(path, lines) or list(map(read_parameters, lines))
    shown = varying_task_parameters(parameters)
    tasks = [
        ChosenTask(
            at + 1,
            lines[at],
            {name: parameters[at][name] for name in shown if name in parameters[at]},
        )
        for at in choose_diverse(parameters, options.tasks)
    ]
    return ChosenTasks(tuple(tasks), len(lines))


def lines_of_tasks(path: str) -> list[str]:
    """Return the commands of a task file."""
    source = TaskSource(path)
    lines = [os.fsdecode(source.text(seq)) for seq in range(1, len(source) + 1)]
    source.close()
    return lines


def _of_sweep(path: str, lines: Sequence[str]) -> list[Parameters]:
    """Return the parameters in the table of a sweep, if it has all these lines."""
    with closing(TaskParameters(path)) as table:
        found: list[Parameters] = [
            table.of(seq, line) for seq, line in enumerate(lines, start=1)
        ]
    # edited since: its parameters may be those of other tasks
    return found if all(found) else []


class TrialEnds:
    """The trials that have ended: each last attempt's record, and when it ended."""

    def __init__(self) -> None:
        self.begun: Seconds = time.time()  # since the epoch, as the next
        self.times: dict[int, Seconds] = {}  # by task number
        self.records: dict[int, Record] = {}

    def is_kept(self, record: Record) -> bool:
        """Note the record of a trial; return whether it is kept in the store."""
        if record.job is not None and record.job.task is not None:
            self.records[record.job.task] = record
            self.times[record.job.task] = time.time()
        # a report shows what failed and what Ctrl-C interrupted; the time is ours
        return record.state != "TIMEOUT"


def try_tasks(
    here: Here, path: str, options: CheckOptions, *, say: Say
) -> CheckedTasks:
    """Try a few tasks of *path*, as ``weigh exec`` runs them; *say* prints a line.

    The record of a task that check itself stopped is not kept: its end shows nothing.

    Raises:
        UsageError: the file cannot be carried out as it stands.
        FormatError: a line of it cannot be a command.
        StoreError: there is no room for output, or a task cannot start.
    """
    chosen = choose_tasks(path, options)
    root = open_store(here.cwd, here.env).root
    label = f"check-{new_id()[:_LABEL_LETTERS]}"
    say(
        f"trying {len(chosen.tasks)} of {count_with_noun(chosen.of, 'task')}, up to "
        f"{format_duration(options.seconds)} each"
    )
    folder = make_folder(root, _OUTPUT, label)
    ended = TrialEnds()
    console = RunConsole(lambda _: None, lambda _: options.seconds, ended.is_kept)
    exec_options = msgspec.structs.replace(
        _options_of_trials(chosen, folder, options),
        label=label,
        # what a task prints is read even if it is stopped before its end
        variables={} if "PYTHONUNBUFFERED" in here.env else {"PYTHONUNBUFFERED": "1"},
    )
    try:
        finished = execute(here, path, exec_options, console)
    finally:
        # of no use: the next check tries the tasks again
        for log in glob.glob(f"{glob.escape(folder)}.joblog*"):
            os.unlink(log)
    if finished.result.trouble is not None:
        raise StoreError(finished.result.trouble)
    for warning in finished.warnings:
        say(warning)
    trials = [
        judged_trial(task, ended.records.get(task.seq), folder, options)
        for task in sorted(chosen.tasks, key=lambda task: task.seq)
    ]
    found = () if options.allow_nan else _lost_in_files_of(here, chosen, ended)
    trials, saved_notes = with_saved_files(trials, ended.times, found)
    hidden = filter(None, [hidden_exit_note(lines_of_tasks(path))])
    return CheckedTasks(
        task_file=path,
        tasks=chosen.of,
        label=label,
        seconds=options.seconds,
        side_by_side=min(finished.report.slots, len(trials)),
        trials=tuple(trials),
        notes=(*hidden, *trial_notes(trials, ended.records), *saved_notes),
        signal=finished.result.signal,
    )


def _options_of_trials(
    chosen: ChosenTasks, folder: str, options: CheckOptions
) -> ExecOptions:
    return ExecOptions(
        jobs=options.jobs,
        joblog=f"{folder}.joblog",
        output=folder,
        is_trial=True,
        timeout=options.seconds,
        grace=_GRACE,
        only=tuple(task.seq for task in chosen.tasks),
        mask=options.mask,
    )


def _lost_in_files_of(
    here: Here, chosen: ChosenTasks, ended: TrialEnds
) -> Iterator[saved.SavedFile]:
    """Yield what trials saved below this folder, and in folders that they name."""
    lines = [task.line for task in chosen.tasks]
    return saved.lost_in_saved_files(
        [here.cwd, *folders_named(lines, here.cwd)],
        ended.begun - _CLOCK_STEP,
        saved.pythons_of(lines, here.env),
    )


def judged_trial(
    task: ChosenTask, record: Record | None, folder: str, options: CheckOptions
) -> TaskTrial:
    """Return the verdict on one task by its last attempt, if it was begun at all."""
    trial = TaskTrial(
        task=task.seq,
        command=options.mask.line(task.line),
        parameters=dict(task.parameters),
        state="PENDING",
        verdict="not tried",
    )
    if record is None or record.usage is None:
        return trial
    attempt = 1 if record.job is None else record.job.attempt or 1
    log = os.path.join(folder, output_name(task.seq, attempt))
    lost = None if options.allow_nan else _divergence_in(log)
    verdict, is_wrong = _verdict_on(record, lost)
    if options.expect is not None and not is_wrong and record.state in _TRIED:
        values = read_metric([log], options.expect.metric)
        if not values:
            began = epoch_seconds(record.started) or 0.0
            tables = tables_named_by(task.line.split(), record.cwd or "", began)
            values = read_metric(tables, options.expect.metric)
        failure = options.expect.failure(values)
        verdict, is_wrong = failure or verdict, failure is not None
    evidence = error_in(log) if is_wrong else last_line(log)
    is_cut = record.state in {"TIMEOUT", "INTERRUPTED", "PREEMPTED"}
    return msgspec.structs.replace(
        trial,
        # a task that is stopped when its time is up has not failed
        state="RUNNING" if record.state == "TIMEOUT" else record.state,
        verdict=verdict,
        is_wrong=is_wrong,
        exit_code=None if is_cut else record.exit_code,
        signal=None if is_cut else record.signal,
        wall_time=record.usage.wall_time,
        cpu_time=record.usage.cpu_time,
        cpus_used=record.usage.cpus_used,
        peak_memory=record.peak_memory,
        peak_is_bound=record.peak_is_bound,
        gpu_memory=gpu_memory(record.usage),
        growth_rate=_growth_rate(record),
        output=os.path.relpath(log),
        output_size=_trial_log_size(log),
        evidence=(evidence if lost is None else lost.text)[:_LONGEST_EVIDENCE],
    )


def folders_named(lines: Iterable[str], folder: str) -> Iterator[str]:
    """Yield the folders that commands name, where they may save what they learned."""
    for word in dict.fromkeys(word for line in lines for word in line.split()):
        path = os.path.join(folder, word.rpartition("=")[2].strip("\"'"))
        if os.path.isdir(path):
            yield path


def with_saved_files(
    trials: Sequence[TaskTrial],
    ends: Mapping[int, Seconds],
    found: Iterable[saved.SavedFile],
) -> tuple[list[TaskTrial], list[str]]:
    """Return the trials with those wrong that saved lost numbers, and notes.

    A file is of the task that names it, or else of those that ran when it was written;
    *ends* are when the tasks ended, in seconds since the epoch.
    """
    judged = {trial.task: trial for trial in trials}
    unread: dict[str, list[str]] = {}
    for file in found:
        path = os.path.relpath(file.path)
        if file.unread is not None:
            unread.setdefault(file.unread, []).append(path)
            continue
        ran = [one for one in trials if _ran_at(one, ends, file.changed)]
        writers = _most_named_by(ran or trials, path)
        whose = _tasks_named([one.task for one in writers])
        verdict = f"saved {file.tensors[0].word}"
        if len(writers) > 1:
            verdict = f"one of {whose} {verdict}"
        for one in writers or trials:
            judged[one.task] = msgspec.structs.replace(
                judged[one.task],
                verdict=verdict,
                is_wrong=True,
                evidence=f"{path}: {file.words()}"[:_LONGEST_EVIDENCE],
            )
    notes = [
        f"{paths[0]} was not searched for NaN: {why}"
        if len(paths) == 1
        else f"{paths[0]} and {len(paths) - 1} more were not searched for NaN: {why}"
        for why, paths in unread.items()
    ]
    return list(judged.values()), notes


def _ran_at(trial: TaskTrial, ends: Mapping[int, Seconds], moment: Seconds) -> bool:
    ended = ends.get(trial.task)
    if ended is None or trial.wall_time is None:
        return False
    return ended - trial.wall_time - _CLOCK_STEP <= moment <= ended


def _most_named_by(trials: Sequence[TaskTrial], path: str) -> list[TaskTrial]:
    """Return the trials whose command shares most words with a path; all if none does.

    A task with seed 2 writes ``model_2.npy`` or ``run_2/model.npy``.
    """
    words = [
        {*_WORDS_OF_COMMAND.findall(trial.command), *_parts_of_paths(trial.command)}
        for trial in trials
    ]
    names = {*_WORDS.findall(os.path.splitext(path)[0]), *_parts_of_paths(path)}
    names -= set.intersection(*words)
    shared = [len(some & names) for some in words]
    return [one for one, n in zip(trials, shared, strict=True) if n == max(shared)]


def _parts_of_paths(text: str) -> list[str]:
    """Return the folders and files that a text names."""
    return re.split(r"[\s/='\"]+", text)


def _verdict_on(record: Record, lost: LostNumber | None) -> tuple[str, bool]:
    """Return the verdict in words, and whether something is wrong."""
    took = format_duration(record.usage.wall_time) if record.usage else "?"
    if record.state in {"INTERRUPTED", "PREEMPTED"}:
        return "stopped with weigh", False
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
    return watch.feed(b"\n")  # ends a last line without one


def trial_notes(
    trials: Sequence[TaskTrial], records: Mapping[int, Record]
) -> list[str]:
    """Return notes about what is not a problem but worth knowing."""
    rates = {t.task: t.growth_rate for t in trials if t.growth_rate is not None}
    silent = [t.task for t in trials if t.state != "PENDING" and not t.output_size]
    doubtful = [
        (trial.task, outcome.evidence[0])
        for trial in trials
        if trial.state == "COMPLETED" and not trial.is_wrong
        # the runner has seen an error at the end of its output
        if (outcome := records[trial.task].outcome) is not None
    ]
    notes = [
        f"task {task} ends with 0, yet its output ends in: {error}"
        for task, error in doubtful[:_MOST_NAMED]
    ]
    if rates:
        most = rate_words(max(rates.values()))
        rising = _tasks_named(list(rates))
        notes.append(f"memory still rises in {rising}: {most} at most")
    if silent:
        notes.append(f"{_tasks_named(silent)} printed nothing")
    return notes


def _tasks_named(tasks: Sequence[int]) -> str:
    return f"task{'s' * (len(tasks) > 1)} {format_ranges(tasks)}"


def _trial_log_size(log: str) -> int:
    with suppress(OSError):
        return os.stat(log).st_size
    return 0
