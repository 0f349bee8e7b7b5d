"""``weigh check PLAN``: the tasks that a plan ships, and the scripts of its jobs."""

import os
from collections.abc import Iterator, Mapping

from weigh.errors import UsageError
from weigh.flow.check.script import check_here
from weigh.flow.plan import directory as plan_directory
from weigh.flow.submit.ship import read_plan
from weigh.model.lint import Checked
from weigh.runner.task_source import TaskSource

_SCRIPT = ("job", ".sh")


def tasks_of_plan(folder: str) -> tuple[dict[int, bytes], str]:
    """Give the tasks of a plan by their numbers, and the task file it was made from.

    Raises:
        UsageError: there is no plan, or its task files are not as it says.
        FormatError: it is none.
    """
    if not os.path.exists(os.path.join(folder, plan_directory.FILE)):
        raise UsageError(
            f"{folder} is a folder with no plan in it (weigh plan makes one; or check "
            f"a task file in it, such as {os.path.join(folder, 'tasks.txt')})"
        )
    plan = read_plan(folder)
    tasks: dict[int, bytes] = {}
    for element in plan.elements:
        path = os.path.join(folder, element.file)
        tasks |= zip(element.tasks, _lines(path, len(element.tasks)), strict=True)
    return dict(sorted(tasks.items())), plan.task_file


def check_scripts(
    folder: str, *, form: str | None, cwd: str, env: Mapping[str, str]
) -> tuple[Checked, ...]:
    """Read the scripts of a plan's jobs, if it has any by now.

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
                f"{path} has {len(source)} tasks and its plan says {count} "
                "(weigh plan --replace makes both anew)"
            )
        return [source.text(seq) for seq in range(1, count + 1)]
    finally:
        source.close()
