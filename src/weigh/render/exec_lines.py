"""The texts of ``weigh exec``: dry run, progress, and summary."""

import os
import shlex
from collections.abc import Iterator, Sequence

from weigh.model.progress import ExecReport, FailedTask
from weigh.progress.eta import TaskTally
from weigh.render.printable import WIDTH, printable_text, shortened_text, width_of
from weigh.render.progress_lines import time_range_suffix
from weigh.render.request_lines import named_lines
from weigh.units import count_with_noun, format_duration

_MOST_FAILURES = 10  # tasks that are listed; the joblog has all
_SENT = "sent"  # in a plan's folder: what was submitted, each as N.plan


def progress_line(tally: TaskTally) -> str:
    """Return the progress line that a terminal redraws."""
    # one column is left free: a full line would wrap, and stay on the screen
    return shortened_text(f"weigh  {_progress_text(tally)}", WIDTH - 1)


def heartbeat_line(tally: TaskTally, time_of_day: str) -> str:
    """Return a progress line for a log."""
    return f"{time_of_day}  {_progress_text(tally)}"


def _progress_text(tally: TaskTally) -> str:
    words = [f"{tally.done:,} of {tally.tasks:,} done"]
    words += [f"{tally.failed:,} failed"] if tally.failed else []
    words.append(f"{tally.running:,} running")
    words += [f"{tally.waiting:,} waiting"] if tally.waiting else []
    if tally.left is not None:
        within = time_range_suffix(tally.left.low, tally.left.high)
        words.append(f"{format_duration(tally.left.value)} to go{within}")
    return ", ".join(words)


def _how_to_resume(
    report: ExecReport, *, resumes: bool, is_then: bool
) -> tuple[str, str]:
    """Return how to run what is left; in a job's log, as its user can."""
    # of a submitted plan: plan/NAME/sent/N.plan/tasks.txt
    folder = os.path.dirname(os.path.dirname(report.task_file))
    # failed tasks of a queue are not run again by another pull
    if not report.left and (not report.failed or report.queue is not None):
        return "resume", ""
    if os.path.basename(folder) == _SENT:  # of a plan that was submitted
        name = os.path.basename(os.path.dirname(folder))
        return "next", f"weigh status {shlex.quote(name)}"
    if report.left or is_then:
        without = "" if resumes else " without --no-resume"
        return "resume", f"run the same command again{without}"
    what = "add --resume-failed" if resumes else "--resume-failed, not --no-resume,"
    return "resume", f"{what} to run failed tasks again"


def summary_lines(
    report: ExecReport, *, resumes: bool = True, is_then: bool = False
) -> list[str]:
    """Return the summary after the last task.

    ``--no-resume`` was typed unless it *resumes*. *is_then*: it is of the command
    behind ``# weigh: then``, whose tasks are all done.
    """
    lines = [_exec_headline(report)]
    for one in report.failures[:_MOST_FAILURES]:
        lines += _failed_task_lines(one)
    more = report.failed - min(len(report.failures), _MOST_FAILURES)
    if report.failures and more > 0:
        path = printable_text(report.joblog)
        lines.append(f"  and {more:,} more: see {path}")
    rows = [
        ("stopped", report.trouble),
        ("stopped", report.halted),
        ("stopped", report.untaken),
        _how_to_resume(report, resumes=resumes, is_then=is_then),
    ]
    for host in report.unsure:
        text = f"tasks of {host}, which may still run them (--gone {host})"
        rows.append(("left", text))
    rows += [("output", report.output), ("joblog", report.joblog)]
    # paths, hosts and reasons are not weigh's own words
    lines += [f"  {name:<10}{printable_text(text)}" for name, text in rows if text]
    return lines


def _exec_headline(report: ExecReport) -> str:
    tasks = count_with_noun(report.tasks, "task")
    parts = [f"{report.done:,} of {tasks} done"]
    for number, words in (
        (report.failed, "failed"),
        (report.interrupted, "interrupted"),
        (report.left - report.interrupted, "not run"),
        (report.earlier, "of them in an earlier run"),
        (report.retried, "tried again"),
    ):
        parts += [f"{number:,} {words}"] if number > 0 else []
    return f"weigh  {', '.join(parts)}; {format_duration(report.wall_time)}"


def _failed_task_lines(failed_task: FailedTask) -> Iterator[str]:
    """Yield why a task failed, and its output; the summary names the folder below."""
    line = f"task {failed_task.task}: {printable_text(failed_task.reason)}"
    path = printable_text(failed_task.output or "")
    whole = f"{line}   {path}".rstrip()
    room = WIDTH - 12  # behind the title
    # a reason is never cut, as it may end in what to do
    if width_of(path) > room:
        path = shortened_text(path.rpartition("/")[2], room)
    rows = [whole] if width_of(whole) <= room else [line, path]
    for name, row in zip(("failed", ""), rows, strict=False):
        yield from named_lines(name, row, indent=2, name_width=10)


def plan_lines(
    commands: Sequence[tuple[int, str]], tasks: int, then: str
) -> Iterator[str]:
    """Yield the output of ``--dry-run``; *commands* are (number, command).

    *then* is the command when all tasks are done; empty if there is none.
    """
    for seq, command in commands:
        yield f"{seq}\t{printable_text(command)}"
    all_tasks = count_with_noun(tasks, "task")
    yield f"{len(commands):,} of {all_tasks} would run"
    if then:
        yield f"when all are done: {printable_text(then)}"
