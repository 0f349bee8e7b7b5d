"""A plan costs in proportion to its tasks: twice as many take twice as long."""

import sys
from pathlib import Path
from types import FrameType

from called_weigh import CalledWeigh

FIGURES = ("--memory", "100M", "--time", "1m", "--hours", "1")


def calls_to_plan(weigh: CalledWeigh, folder: Path, tasks: int) -> int:
    """Return how many calls of Python's a plan of so many tasks takes."""
    name = f"t{tasks}"
    (folder / f"{name}.txt").write_text("".join(f"run {n}\n" for n in range(tasks)))
    count = 0

    def counted(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        code, _, err = weigh("plan", f"{name}.txt", *FIGURES, "--dry-run")
    finally:
        sys.setprofile(None)
    assert code == 0, err
    return count


def test_twice_the_tasks_take_twice_the_work(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    calls_to_plan(weigh, tmp_path, 100)  # imports
    few = calls_to_plan(weigh, tmp_path, 500)

    assert calls_to_plan(weigh, tmp_path, 1_000) < 2.3 * few
