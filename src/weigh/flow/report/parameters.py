"""The parameters of a job's tasks: from the table that the sweep wrote."""

import os
from collections.abc import Iterable, Mapping

from weigh.errors import FormatError, WeighError
from weigh.flow.follow.status import View
from weigh.flow.submit.ship import read_plan
from weigh.sweep.table import read_table, table_path
from weigh.sweep.task_file import read_task_lines

Parameters = dict[str, int | float | str]


def parameters_of(view: View) -> Mapping[int, Parameters]:
    """Give the parameters of each task by its number; none where it was edited since.

    Also none where there is no table: a task file that no sweep wrote.
    """
    try:
        plan = read_plan(view.job.plan_folder)
    except WeighError:
        return {}
    known: dict[int, tuple[str, Parameters]] = {}
    beside = os.path.join(view.job.cwd, table_path(plan.task_file))
    try:
        with open(beside, encoding="utf-8", newline="") as file:
            for task in read_table(file):
                known[task.seq] = task.line, task.parameters
    except (OSError, FormatError, UnicodeDecodeError):
        return {}
    return {
        number: known[number][1]
        for number, line in _lines(view, {task.element for task in view.tasks})
        if number in known and known[number][0] == line
    }


def _lines(view: View, elements: Iterable[int]) -> Iterable[tuple[int, str]]:
    """Yield the tasks as they are in the plan: number and line."""
    numbers = {(task.element, task.seq): task.task for task in view.tasks}
    for element in elements:
        name = f"tasks_{view.job.first + element}.txt"
        try:
            with open(os.path.join(view.job.plan_folder, name), "rb") as file:
                for task in read_task_lines(file, name):
                    number = numbers.get((element, task.seq))
                    if number is not None:
                        yield number, task.command
        except (OSError, WeighError):
            continue
