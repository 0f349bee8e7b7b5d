"""Text and JSON of ``weigh check TASKS``: one row per trial task, failures, notes."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.model.lint import SCHEMA, CheckedScript, LintFinding
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import (
    WIDTH,
    indented_json,
    peak_text,
    printable_text,
    shortened_from_start,
    shortened_text,
)
from weigh.render.request_lines import folded_lines, folded_note_lines
from weigh.render.words import task_parameters_text
from weigh.schedulers import kind_or_first
from weigh.schedulers.words import format_ranges
from weigh.sweep.quoting import bash_quoted
from weigh.units import Bytes, Seconds, count_with_noun, format_duration, size_or_dash

_NUMBER = re.compile(r"\d+")


class TaskTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of one task.

    ``state`` is RUNNING for a task that was stopped when its time was up, and PENDING
    for one that was not started. ``growth_rate`` is in bytes per second, if memory
    still rose. ``evidence`` is the most relevant line of output: the first with a NaN,
    or the last. ``verdict`` is the result in a few words.
    """

    task: int
    command: str
    parameters: dict[str, int | float | str] = {}
    state: str
    verdict: str
    is_wrong: bool = False  # then `weigh check` fails
    exit_code: int | None = None
    signal: int | None = None
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None
    cpus_used: float | None = None  # on average
    peak_memory: Bytes | None = None
    peak_is_bound: bool = False  # the task ended before more could be measured
    gpu_memory: Bytes | None = None
    growth_rate: float | None = None
    output: str | None = None
    output_size: Bytes = 0
    evidence: str = ""


class CheckedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of some of ``tasks`` tasks, at most ``seconds`` each.

    ``side_by_side`` is the largest number that ran at once, ``signal`` the signal that
    stopped weigh.
    """

    schema: str = "weigh.check/1"
    task_file: str
    tasks: int
    label: str  # of the records of these trials
    seconds: Seconds
    side_by_side: int
    trials: tuple[TaskTrial, ...]
    notes: tuple[str, ...] = ()
    signal: int | None = None

    @property
    def wrong(self) -> int:
        """Return the number of tasks with a problem."""
        return sum(trial.is_wrong for trial in self.trials)


def check_screen(check: CheckedTasks) -> Iterator[str]:
    """Write the screen."""
    yield _check_headline(check)
    yield from table_lines(check.trials, _TRIAL_COLUMNS)
    for alike in _equal_failures(check.trials):
        yield from _failure_lines(alike)
    yield from folded_note_lines(check.notes, indent="  ")
    yield from _check_conclusion(check)


def check_document(check: CheckedTasks) -> str:
    """Write one JSON document, the schema first."""
    fields = {**msgspec.to_builtins(check), "wrong": check.wrong}
    return indented_json(fields)


def _check_headline(check: CheckedTasks) -> str:
    tries = f"{len(check.trials)} of {count_with_noun(check.tasks, 'task')}"
    at_once = f"{check.side_by_side} at once"
    seconds = f"up to {format_duration(check.seconds)} each"
    return f"{printable_text(check.task_file)}   {tries}, {at_once}, {seconds}"


def _trial_parameters(trial: TaskTrial) -> str:
    return task_parameters_text(trial.parameters) or printable_text(trial.command)


def _trial_memory(trial: TaskTrial) -> str:
    return peak_text(trial.peak_memory, is_bound=trial.peak_is_bound)


def _trial_cpus_used(trial: TaskTrial) -> str:
    return "-" if trial.cpus_used is None else f"{trial.cpus_used:.2f}"


# a column of dashes would take room from the parameters
_TRIAL_COLUMNS = (
    TableColumn("task", lambda trial: str(trial.task)),
    TableColumn("parameters", _trial_parameters, right=False, flexible=True),
    TableColumn("state", lambda trial: trial.state, right=False),
    TableColumn("memory", _trial_memory, optional=True),
    TableColumn("GPU", lambda trial: size_or_dash(trial.gpu_memory), optional=True),
    TableColumn("cpu", _trial_cpus_used, drop=1, optional=True),
    TableColumn("verdict", lambda trial: trial.verdict, right=False),
)


def _equal_failures(trials: Sequence[TaskTrial]) -> Iterable[list[TaskTrial]]:
    """Group the tasks that failed in the same way: but for numbers the same words."""
    ways: dict[object, list[TaskTrial]] = {}
    for trial in trials:
        if trial.is_wrong:
            words = _NUMBER.sub("N", trial.evidence)
            way = trial.state, trial.exit_code, trial.signal, words
            ways.setdefault(way, []).append(trial)
    return ways.values()


def _failure_lines(alike: Sequence[TaskTrial]) -> Iterator[str]:
    """Write one failure: its tasks, and the command and the output of the first."""
    first = alike[0]
    numbers = format_ranges(trial.task for trial in alike)
    tasks = f"  {'task' if len(alike) == 1 else 'tasks'} {numbers:<6} "
    command = printable_text(first.command)
    yield tasks + shortened_from_start(command, WIDTH - len(tasks))
    evidence = printable_text(first.evidence) or "(no output)"
    yield shortened_text(f"    {first.verdict}: {evidence}", WIDTH)
    if first.output is not None:
        yield f"    {printable_text(first.output)}"


def _check_conclusion(check: CheckedTasks) -> Iterator[str]:
    tries = len(check.trials)
    if check.wrong:
        yield f"  {check.wrong} of {tries} failed"
    # after a signal nothing is known of the tasks that were not tried
    elif check.signal is None:
        yield f"  next: weigh plan {bash_quoted(check.task_file)}"


def script_check_lines(checked: CheckedScript) -> Iterator[str]:
    """Write the screen: problems by line, then notes, then the summary."""
    problems = checked.problems
    notes = [one for one in checked.findings if one.severity == "note"]
    for finding in (*problems, *notes):
        yield from _finding_lines(checked.script, finding)
    yield _sum_line(checked)
    if checked.acknowledged:
        names = ", ".join(dict.fromkeys(one.rule for one in checked.acknowledged))
        yield from folded_lines(f"ignored as requested: {names}", WIDTH)
    if checked.lacks_shellcheck:
        yield "mistakes of the shell not checked: install shellcheck"


def script_check_json(checked: CheckedScript) -> str:
    """Write one JSON document, the schema first."""
    problems = checked.problems
    return indented_json(
        {
            "schema": SCHEMA,
            "script": checked.script,
            "scheduler": checked.scheduler,
            "directives": checked.directives,
            "problems": len(problems),
            "accepted": all(one.accepted for one in problems),
            "findings": checked.findings,
            "ignored": checked.acknowledged,
        }
    )


def _finding_lines(script: str, finding: LintFinding) -> Iterator[str]:
    """Write the place and the text in one line, what happens below it."""
    place = printable_text(script)
    if finding.line is not None:
        place += f":{finding.line}"
    yield shortened_text(f"{place}  {printable_text(finding.text)}".rstrip(), WIDTH)
    message = "; ".join(filter(None, (finding.effect, finding.cure)))
    is_note = "note: " if finding.severity == "note" else ""
    text = printable_text(f"{is_note}{message} [{finding.rule}]")
    for line in folded_lines(text, WIDTH - 4):
        yield f"    {line}"


def _sum_line(checked: CheckedScript) -> str:
    problems, tool = checked.problems, kind_or_first(checked.scheduler).submits
    if not problems:
        if not checked.directives:
            return f"no problem found in the commands; no directive for {tool}"
        lines = count_with_noun(checked.directives, "directive")
        return f"no problem found in {lines} for {tool} and the commands"
    count = count_with_noun(len(problems), "problem")
    accepted = sum(one.accepted for one in problems)
    if accepted == len(problems):
        what = "it" if accepted == 1 else "all of them"
        return f"{count}; {tool} would have accepted {what}"
    if not accepted:
        return f"{count}; {tool} would refuse the script"
    return f"{count}; {tool} would have accepted {accepted} of them"
