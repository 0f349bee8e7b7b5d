"""``weigh check TASKS``: try a few different tasks, and report problems."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from weigh.errors import FormatError, StoreError, UsageError, cannot_read
from weigh.flow.check.trials import judged_trial, latest_attempts, trial_notes
from weigh.flow.exec.exec import execute
from weigh.flow.exec.options import choose_layout
from weigh.flow.here import Here, here_of
from weigh.flow.job_scripts import hidden_exit_note, refuse_submissions
from weigh.flow.records.records import open_store
from weigh.model.check import CheckedTasks
from weigh.model.mask import SecretMask
from weigh.model.record import Record
from weigh.runner.build import ExecOptions, FinishedRun, RunConsole
from weigh.runner.task_source import TaskSource
from weigh.schedulers import KINDS
from weigh.store import shards
from weigh.store.identity import new_id, this_machine
from weigh.store.location import make_folder
from weigh.sweep.diverse import (
    Parameters,
    choose_diverse,
    read_parameters,
    varying_task_parameters,
)
from weigh.sweep.table import read_table, table_path
from weigh.sweep.task_file import is_script, lines_of_task_file
from weigh.units import MIB, Seconds, format_duration

_OUTPUT = "output"
_LABEL_LETTERS = 6  # letters of an id in a label
_STDIN = "-"
_GRACE: Seconds = 5.0  # from TERM to KILL
_MOST_OUTPUT = 256 * MIB  # of a task, before it is stopped

Say = Callable[[str], None]


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks to try, how long each, how many at once (None: as many as fit).

    With ``allow_nan`` NaN and inf in the output are accepted.
    """

    tasks: int = 5
    seconds: Seconds = 30.0
    jobs: int | None = None
    allow_nan: bool = False
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
    shown = set(varying_task_parameters(parameters))
    tasks = [
        ChosenTask(
            at + 1,
            lines[at],
            {name: v for name, v in parameters[at].items() if name in shown},
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
    try:
        with open(
            table_path(path), encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            known = {task.line: task.parameters for task in read_table(file)}
    except (OSError, FormatError):
        return []
    # edited since: its parameters may be those of other tasks
    return [known[line] for line in lines] if {*lines} <= known.keys() else []


def try_tasks(
    here: Here, path: str, options: CheckOptions, *, say: Say
) -> CheckedTasks:
    """Try a few tasks of *path*, as ``weigh exec`` runs them; *say* prints a line.

    Records of completed tasks are kept; a task that was stopped leaves no record.

    Raises:
        UsageError: the file cannot be carried out as it stands.
        FormatError: a line of it cannot be a command.
        StoreError: there is no room for output or records, or a task cannot start.
    """
    chosen = choose_tasks(path, options)
    root = open_store(here.cwd, here.env).root
    label = f"check-{new_id()[:_LABEL_LETTERS]}"
    jobs = _jobs_at_once(options, here.env, len(chosen.tasks))
    say(_announced(chosen, options, jobs))
    folder = make_folder(root, _OUTPUT, label)
    # a store that is removed: only completed tasks leave a record
    with tempfile.TemporaryDirectory(prefix="weigh-") as scratch:
        finished = _tried(here, path, chosen, options, (jobs, folder, scratch))
        records = latest_attempts(scratch)
    if finished.result.trouble is not None:
        raise StoreError(finished.result.trouble)
    for attempts in records.values():
        _keep_completed(root, attempts[-1], label)
    trials = [
        judged_trial(
            task.seq,
            options.mask.line(task.line),
            records.get(task.seq, [None])[-1],
            parameters=task.parameters,
            folder=folder,
            allow_nan=options.allow_nan,
        )
        for task in sorted(chosen.tasks, key=lambda task: task.seq)
    ]
    hidden = filter(None, [hidden_exit_note(lines_of_tasks(path))])
    return CheckedTasks(
        task_file=path,
        tasks=chosen.of,
        label=label,
        seconds=options.seconds,
        side_by_side=jobs,
        trials=tuple(trials),
        notes=(*hidden, *trial_notes(trials, records)),
        signal=finished.result.signal,
    )


def _tried(
    here: Here,
    task_file: str,
    chosen: ChosenTasks,
    options: CheckOptions,
    place: tuple[int, str, str],
) -> FinishedRun:
    """Run the chosen tasks; all records go to a store of their own."""
    jobs, folder, scratch = place
    exec_options = ExecOptions(
        jobs=jobs,
        joblog=os.path.join(scratch, "joblog"),
        output=folder,
        # attempts: a task that runs out of memory is not tried again
        oom_retries=1,
        timeout=options.seconds,
        grace=_GRACE,
        only=tuple(task.seq for task in chosen.tasks),
        most_output=_MOST_OUTPUT,
        # what a task prints is read even if it is stopped before its end
        variables={} if "PYTHONUNBUFFERED" in here.env else {"PYTHONUNBUFFERED": "1"},
        mask=options.mask,
    )
    return execute(
        here_of(here.cwd, {**here.env, "WEIGH_DIR": os.path.join(scratch, "store")}),
        task_file,
        exec_options,
        RunConsole(notify=lambda _: None, show=lambda _: options.seconds),
    )


def _jobs_at_once(options: CheckOptions, env: Mapping[str, str], tasks: int) -> int:
    """Return how many tasks run at once: as many as ``weigh exec`` would run."""
    with ExitStack() as opened:
        layout = choose_layout(ExecOptions(jobs=options.jobs), env, opened)
    return min(len(layout.slots), tasks)


def _announced(chosen: ChosenTasks, options: CheckOptions, jobs: int) -> str:
    tries = len(chosen.tasks)
    # rounded up
    rounds = -(-tries // jobs)
    up_to = "up to " if jobs > 1 else ""
    return (
        f"trying {tries} of {chosen.of:,} tasks, {up_to}{jobs} at once, "
        f"{format_duration(options.seconds)} each: up to "
        f"{format_duration(rounds * options.seconds)}"
    )


def _keep_completed(root: str, record: Record, label: str) -> None:
    if record.state == "COMPLETED":
        kept = msgspec.structs.replace(record, label=label)
        shards.append_record(root, kept, this_machine())
