"""``weigh check TASKS``: try a few different tasks, and report problems."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from weigh.errors import FormatError, StoreError, UsageError, cannot_read
from weigh.flow.check.script import check_here, has_rules, script_scheduler
from weigh.flow.check.trials import judged_trial, latest_attempts, trial_notes
from weigh.flow.exec.exec import execute
from weigh.flow.exec.options import choose_layout
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import read_plan
from weigh.flow.records.records import open_store
from weigh.model.check import Check
from weigh.model.lint import Checked
from weigh.model.mask import Mask
from weigh.model.record import Record
from weigh.runner.build import Console, ExecOptions, Finished
from weigh.runner.task_source import TaskSource
from weigh.schedulers import KINDS
from weigh.store import shards
from weigh.store.identity import new_id, this_machine
from weigh.store.location import make_folder
from weigh.sweep.diverse import Parameters, choose_diverse, read_parameters, varying
from weigh.sweep.table import read_table, table_path
from weigh.sweep.task_file import is_script
from weigh.units import MIB, Seconds, format_duration

_SCRIPT = ("job", ".sh")


def tasks_of_plan(folder: str) -> tuple[dict[int, bytes], str]:
    """Return the tasks of a plan by number, and the task file it was made from.

    Raises:
        UsageError: there is no plan, or its task files are not as it says.
        FormatError: it is none.
    """
    if not os.path.exists(os.path.join(folder, plan_directory.FILE)):
        raise UsageError(
            f"{folder} is a folder without a plan "
            f"(weigh check {os.path.join(folder, 'tasks.txt')})"
        )
    plan = read_plan(folder)
    tasks: dict[int, bytes] = {}
    files = [(element.file, element.tasks) for element in plan.elements]
    if plan.queue is not None:
        files = [(plan.queue.file, plan.queue.tasks)]
    for name, numbers in files:
        path = os.path.join(folder, name)
        tasks |= zip(numbers, _lines(path, len(numbers)), strict=True)
    return dict(sorted(tasks.items())), plan.task_file


def check_scripts(
    folder: str, *, form: str | None, cwd: str, env: Mapping[str, str]
) -> tuple[Checked, ...]:
    """Check the scripts of a plan's jobs that exist, of schedulers that have rules.

    Raises:
        WeighError: one cannot be read.
    """
    return tuple(
        check_here(path, form=form, cwd=cwd, env=env)
        for path in _scripts(folder)
        if has_rules(script_scheduler(os.path.join(cwd, path), path, form, env))
    )


def _scripts(folder: str) -> Iterator[str]:
    begin, end = _SCRIPT
    for name in sorted(os.listdir(folder)):
        if name.startswith(begin) and name.endswith(end):
            number = name[len(begin) : -len(end)].removeprefix("_")
            if not number or number.isdecimal():
                yield os.path.join(folder, name)


def _lines(path: str, count: int) -> list[bytes]:
    source = TaskSource(path)
    try:
        if len(source) != count:
            raise UsageError(
                f"{path} has {len(source)} tasks but its plan has {count} "
                "(weigh plan --replace writes both again)"
            )
        return [source.text(seq) for seq in range(1, count + 1)]
    finally:
        source.close()


_OUTPUT = "output"
_LABEL_LETTERS = 6
_STDIN = "-"
_MOST_OUTPUT = 256 * MIB  # of a task, before it is stopped

Say = Callable[[str], None]


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks to try, how long each, how many at once (None: as many as fit).

    ``grace`` is the time from TERM to KILL in seconds; with ``allow_nan`` NaN and inf
    in the output are accepted.
    """

    tasks: int = 5
    seconds: Seconds = 30.0
    grace: Seconds = 5.0
    jobs: int | None = None
    allow_nan: bool = False
    mask: Mask = Mask()


class ChosenTask(msgspec.Struct, frozen=True):
    """A task to try: its number, its line, and the parameters that it differs in."""

    seq: int
    line: bytes
    parameters: Parameters


class Chosen(msgspec.Struct, frozen=True):
    """The tasks to try, the lines of all tasks by number, notes about the choice."""

    tasks: tuple[ChosenTask, ...]
    lines: dict[int, bytes]
    notes: tuple[str, ...] = ()


def is_job_script(path: str) -> bool:
    """Return whether a file is a job script, not a task file.

    Raises:
        UsageError: it cannot be read.
    """
    if path == _STDIN:
        raise UsageError("weigh check needs a file, not standard input")
    try:
        with open(path, "rb") as file:
            return is_script(file, _is_description)
    except IsADirectoryError:
        return False  # a plan; other directories are refused later
    except OSError as error:
        raise UsageError(
            cannot_read(path, error, "a task file, plan or script")
        ) from error


def _is_description(line: bytes) -> bool:
    """Return whether the line is a command of a scheduler's that needs no prefix."""
    text = os.fsdecode(line)
    return any(
        kind.directive.match(text) for kind in KINDS.values() if not kind.text.PREFIX
    )


def choose(path: str, options: CheckOptions) -> Chosen:
    """Choose the tasks of *path*, a file or a plan, to try; the most different ones.

    Raises:
        UsageError: it is a script, not there, or has no task.
        FormatError: a line of it cannot be a command.
    """
    lines, origin = _tasks(path)
    numbers = list(lines)
    texts = list(map(os.fsdecode, lines.values()))
    tabled, notes = _from_table(origin, texts)
    parameters: Sequence[Parameters] = tabled or list(map(read_parameters, texts))
    shown = set(varying(parameters))
    return Chosen(
        tuple(
            ChosenTask(
                numbers[at],
                lines[numbers[at]],
                {name: v for name, v in parameters[at].items() if name in shown},
            )
            for at in choose_diverse(parameters, options.tasks)
        ),
        lines,
        notes,
    )


def _tasks(path: str) -> tuple[dict[int, bytes], str]:
    """Return the tasks by number, and the task file that they are from."""
    if os.path.isdir(path):
        return tasks_of_plan(path)
    source = TaskSource(path)
    try:
        numbers = range(1, len(source) + 1)
        return {seq: source.text(seq) for seq in numbers}, path
    finally:
        source.close()


def check(
    path: str,
    options: CheckOptions,
    *,
    say: Say,
    cwd: str,
    env: Mapping[str, str],
) -> Check:
    """Try a few tasks of *path*, as ``weigh exec`` runs them; *say* prints a line.

    Records of completed tasks are kept; a task that was stopped leaves no record.

    Raises:
        UsageError: the file cannot be carried out as it stands.
        FormatError: a line of it cannot be a command.
        StoreError: there is no room for output or records, or a task cannot start.
    """
    chosen = choose(path, options)
    root = open_store(cwd, env).root
    label = f"check-{new_id()[:_LABEL_LETTERS]}"
    jobs = _jobs_at_once(options, env, len(chosen.tasks))
    say(_announced(chosen, options, jobs))
    folder = make_folder(root, _OUTPUT, label)
    with tempfile.TemporaryDirectory(prefix="weigh-") as scratch:
        task_file = _numbered_file(path, chosen, scratch)
        finished = _tried(task_file, chosen, options, (jobs, folder, scratch), cwd, env)
        records = latest_attempts(scratch)
    if finished.result.trouble is not None:
        raise StoreError(finished.result.trouble)
    for attempts in records.values():
        _keep(root, attempts[-1], label)
    trials = [
        judged_trial(
            task.seq,
            options.mask.line(os.fsdecode(task.line)),
            records.get(task.seq, [None])[-1],
            parameters=task.parameters,
            folder=folder,
            allow_nan=options.allow_nan,
        )
        for task in sorted(chosen.tasks, key=lambda task: task.seq)
    ]
    return Check(
        task_file=path,
        is_plan=os.path.isdir(path),
        tasks=len(chosen.lines),
        label=label,
        seconds=options.seconds,
        side_by_side=jobs,
        trials=tuple(trials),
        notes=(*chosen.notes, *trial_notes(trials, records)),
        signal=finished.result.signal,
    )


def _numbered_file(path: str, chosen: Chosen, scratch: str) -> str:
    """Return a file in which tasks have their numbers: of a plan's, a copy."""
    if not os.path.isdir(path):
        return path
    numbers = range(1, max(chosen.lines) + 1)
    copy = os.path.join(scratch, "tasks.txt")
    with open(copy, "wb") as file:
        file.writelines(chosen.lines.get(seq, b":") + b"\n" for seq in numbers)
    return copy


def _tried(  # noqa: PLR0913, PLR0917 - what one run takes
    task_file: str,
    chosen: Chosen,
    options: CheckOptions,
    place: tuple[int, str, str],
    cwd: str,
    env: Mapping[str, str],
) -> Finished:
    """Run the chosen tasks; all records go to a store of their own."""
    jobs, folder, scratch = place
    exec_options = ExecOptions(
        jobs=jobs,
        joblog=os.path.join(scratch, "joblog"),
        output=folder,
        oom_retries=1,
        timeout=options.seconds,
        grace=options.grace,
        only=tuple(task.seq for task in chosen.tasks),
        most_output=_MOST_OUTPUT,
        # what a task prints is read even if it is stopped before its end
        variables={} if "PYTHONUNBUFFERED" in env else {"PYTHONUNBUFFERED": "1"},
        mask=options.mask,
    )
    return execute(
        task_file,
        exec_options,
        Console(notify=lambda _: None, show=lambda _: options.seconds),
        cwd=cwd,
        env={**env, "WEIGH_DIR": os.path.join(scratch, "store")},
    )


def _from_table(
    path: str, lines: Sequence[str]
) -> tuple[list[Parameters], tuple[str, ...]]:
    """Read the parameters that a sweep wrote next to its task file; none without it.

    Tasks are identified by their lines, so an edited task file keeps what it can.
    """
    table = table_path(path)
    if table == path or not os.path.exists(table):
        return [], ()
    known: dict[str, Parameters] = {}
    try:
        with open(
            table, encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            known = {task.line: task.parameters for task in read_table(file)}
    except FormatError:
        return [], ()
    except OSError as error:
        return [], (f"{table}: {error.strerror}: parameters are read from the lines",)
    if not all(line in known for line in lines):
        return [], (f"{table} has other tasks: parameters are read from the lines",)
    return [known[line] for line in lines], ()


def _jobs_at_once(options: CheckOptions, env: Mapping[str, str], tasks: int) -> int:
    """Return how many tasks run at once: as many as ``weigh exec`` would run."""
    with ExitStack() as opened:
        layout = choose_layout(ExecOptions(jobs=options.jobs), env, opened)
    return min(len(layout.slots), tasks)


def _announced(chosen: Chosen, options: CheckOptions, jobs: int) -> str:
    tries = len(chosen.tasks)
    rounds = -(-tries // jobs)
    up_to = "up to " if jobs > 1 else ""
    return (
        f"trying {tries} of {len(chosen.lines):,} tasks, {up_to}{jobs} at once, "
        f"{format_duration(options.seconds)} each: up to "
        f"{format_duration(rounds * options.seconds)}"
    )


def _keep(root: str, record: Record, label: str) -> None:
    if record.state == "COMPLETED":
        kept = msgspec.structs.replace(record, label=label)
        shards.append(root, kept, this_machine())
