"""Task files of other tools: what they say is obeyed or refused, never dropped."""

from pathlib import Path

from transcript import check_answers

from weigh.sweep.task_file import read_task_lines


def tasks(text: str) -> str:
    lines = [f"{text}\n".encode(), b"echo b\n"]
    return " + ".join(task.command for task in read_task_lines(lines, "tasks.txt"))


def test_lines_of_other_tools_are_tasks_comments_or_refused_as_was_reviewed() -> None:
    """What a line sets for others is not dropped unseen."""
    path = Path(__file__).with_name("foreign_lines.texts")
    check_answers(path, {"tasks of a line and of echo b behind it": tasks})
