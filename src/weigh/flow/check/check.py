"""``weigh check TASKS``: try a few different tasks, and report problems."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh.errors import FormatError, UsageError, cannot_read
from weigh.flow.check.script import check_here
from weigh.flow.check.trials import (
    Rules,
    Setup,
    TaskToTry,
    Tried,
    judge_trial,
    try_side_by_side,
)
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import read_plan
from weigh.flow.records.records import open_store
from weigh.flow.run.run import scheduler_facts
from weigh.model.check import Check, Trial
from weigh.model.lint import Checked
from weigh.render.words import rate_words
from weigh.runner import resources
from weigh.runner.slots import Layout, lay_out
from weigh.runner.task_source import TaskSource
from weigh.schedulers import KINDS
from weigh.store import shards
from weigh.store.identity import new_id, this_machine
from weigh.store.location import make_folder
from weigh.sweep.diverse import Parameters, choose_diverse, read_parameters, varying
from weigh.sweep.table import read_table, table_path
from weigh.sweep.task_file import is_script
from weigh.units import Seconds, format_duration

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
    """Check the scripts of a plan's jobs that exist.

    Raises:
        WeighError: one cannot be read.
    """
    return tuple(
        check_here(path, form=form, cwd=cwd, env=env) for path in _scripts(folder)
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


class Chosen(msgspec.Struct, frozen=True):
    """The tasks to try, their parameters to print, and notes about the choice."""

    tasks: tuple[TaskToTry, ...]
    parameters: tuple[dict[str, int | float | str], ...]
    of: int
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
    tasks, origin = _tasks(path)
    numbers, lines = list(tasks), list(tasks.values())
    texts = [os.fsdecode(line) for line in lines]
    tabled, notes = _from_table(origin, texts)
    parameters: Sequence[Parameters] = tabled or list(map(read_parameters, texts))
    shown = set(varying(parameters))
    places = choose_diverse(parameters, options.tasks)
    return Chosen(
        tuple(
            TaskToTry(numbers[at], lines[at], _texts(tabled[at]) if tabled else {})
            for at in places
        ),
        tuple(
            {name: value for name, value in parameters[at].items() if name in shown}
            for at in places
        ),
        len(lines),
        notes,
    )


def _tasks(path: str) -> tuple[dict[int, bytes], str]:
    """Return the tasks by number, and the task file that they are from."""
    if os.path.isdir(path):
        from weigh.flow.check.check import tasks_of_plan  # noqa: PLC0415 - only here

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
    """Try a few tasks of *path* concurrently; pass progress lines to *say*.

    Records of completed tasks are kept; a task that was stopped leaves no record.

    Raises:
        UsageError: the file cannot be carried out as it stands.
        FormatError: a line of it cannot be a command.
        StoreError: there is no room for output or records.
        WeighError: a task cannot be started.
    """
    chosen = choose(path, options)
    root = open_store(cwd, env).root
    label = f"check-{new_id()[:_LABEL_LETTERS]}"
    layout = _layout(options, env, len(chosen.tasks))
    say(_announced(chosen, options, layout))
    with tempfile.TemporaryDirectory(prefix="weigh-") as records:
        folder = make_folder(root, _OUTPUT, label)
        setup = Setup(layout, env, folder, records, label)
        rules = Rules(seconds=options.seconds, grace=options.grace)
        tried = try_side_by_side(chosen.tasks, setup, rules, say)
    _keep(root, tried)
    trials = _trials(chosen, tried, options)
    return Check(
        task_file=path,
        is_plan=os.path.isdir(path),
        tasks=chosen.of,
        label=label,
        seconds=options.seconds,
        side_by_side=tried.most_at_once,
        trials=trials,
        notes=(*chosen.notes, *_notes(trials, tried)),
        signal=tried.signal,
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


def _texts(parameters: Parameters) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items()}


def _layout(options: CheckOptions, env: Mapping[str, str], tasks: int) -> Layout:
    """Divide CPUs and GPUs of this process into slots, as ``weigh exec`` does."""
    ours = resources.read_resources(
        env,
        scheduler_facts(env)[0],
        affinity=resources.affinity(),
        quota=resources.read_cpu_quota(),
    )
    gpus = ours.gpus or ()
    jobs = options.jobs or (min(ours.cpus, len(gpus)) if gpus else ours.cpus)
    return lay_out(min(jobs, tasks), cpus=ours.cpus, gpus=gpus)


def _announced(chosen: Chosen, options: CheckOptions, layout: Layout) -> str:
    tries, jobs = len(chosen.tasks), len(layout.slots)
    rounds = -(-tries // jobs)
    up_to = "up to " if jobs > 1 else ""
    return (
        f"trying {tries} of {chosen.of:,} tasks, {up_to}{jobs} at once, "
        f"{format_duration(options.seconds)} each: up to "
        f"{format_duration(rounds * options.seconds)}"
    )


def _keep(root: str, tried: Tried) -> None:
    machine = this_machine()
    for one in tried.ended:
        if one.record is not None and one.record.state == "COMPLETED":
            shards.append(root, one.record, machine)


def _trials(chosen: Chosen, tried: Tried, options: CheckOptions) -> tuple[Trial, ...]:
    """Return the results in the order of the file."""
    ended = {one.seq: one for one in tried.ended}
    trials = [
        judge_trial(
            task,
            ended.get(task.seq),
            parameters=parameters,
            allow_nan=options.allow_nan,
        )
        for task, parameters in zip(chosen.tasks, chosen.parameters, strict=True)
    ]
    return tuple(sorted(trials, key=lambda trial: trial.task))


def _notes(trials: Sequence[Trial], tried: Tried) -> tuple[str, ...]:
    """Return notes about what is not a problem but worth knowing."""
    by_seq = {one.seq: one for one in tried.ended}
    silent = [t.task for t in trials if t.state != "PENDING" and not t.output_size]
    killed = [t.task for t in trials if (e := by_seq.get(t.task)) and e.was_killed]
    rising = {t.task: t.growth_rate for t in trials if t.growth_rate is not None}
    notes = []
    if rising:
        most = rate_words(max(rising.values()))
        notes.append(f"memory still rises in {_named(list(rising))}: {most} at most")
    if silent:
        notes.append(f"{_named(silent)} printed nothing")
    if killed:
        notes.append(
            f"{_named(killed)} ignored TERM and was killed: at a time limit, no "
            "checkpoint could be saved"
        )
    if tried.alone:
        notes.append(f"{_named(tried.alone)} ran alone: too little memory for several")
    if tried.signal is not None:
        notes.append("interrupted before all tasks were tried")
    return tuple(notes)


def _named(tasks: Sequence[int]) -> str:
    return f"task{'s' * (len(tasks) > 1)} {', '.join(map(str, tasks))}"
