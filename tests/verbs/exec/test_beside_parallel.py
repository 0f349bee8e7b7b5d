"""A task file under GNU parallel and ``weigh exec``: docs/workflows.md, as it is."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from run_captured import run_captured

pytestmark = pytest.mark.skipif(
    shutil.which("parallel") is None, reason="no GNU parallel here"
)
WEIGH = (sys.executable, "-m", "weigh", "exec", "--jobs", "1")
PARALLEL = ("parallel", "--jobs", "1", "--will-cite")
TASKS = "echo out; echo errors >&2\nexit 3\nexit 4\ntrue\nexit 5\nkill -9 $$\n"


def ran(folder: Path, argv: tuple[str, ...], tasks: str, log: str) -> int:
    """Run the tasks; return the exit code."""
    (folder / "tasks.txt").write_text(tasks)
    words = [*argv, "--joblog", log]
    env = {**os.environ, "HOME": str(folder)}
    if argv[0] != "parallel":
        return run_captured([*words, "tasks.txt"], cwd=folder, env=env).returncode
    with (folder / "tasks.txt").open("rb") as file:
        return run_captured(words, cwd=folder, env=env, stdin=file).returncode


def column(folder: Path, log: str, name: str) -> list[str]:
    rows = [one.split("\t") for one in (folder / log).read_text().splitlines()]
    return [row[rows[0].index(name)] for row in rows[1:]]


def test_numbers_exit_values_and_signals_are_the_same(tmp_path: Path) -> None:
    ran(tmp_path, PARALLEL, TASKS, "p")
    assert ran(tmp_path, WEIGH, TASKS, "w") == 1
    for name in ("Seq", "Exitval", "Signal", "Command"):
        assert column(tmp_path, "p", name) == column(tmp_path, "w", name)
    # what a task printed; only weigh counts its errors too
    assert column(tmp_path, "p", "Receive")[0] == str(len("out\n"))
    assert column(tmp_path, "w", "Receive")[0] == str(len("out\nerrors\n"))


def test_each_resumes_what_the_other_began(tmp_path: Path) -> None:
    lines = "".join(f"echo {n} >>ran\n" for n in range(4))
    ran(tmp_path, PARALLEL, lines[: len(lines) // 2], "log")
    assert ran(tmp_path, WEIGH, lines, "log") == 0
    assert ran(tmp_path, (*PARALLEL, "--resume"), lines + "echo 4 >>ran\n", "log") == 0
    assert (tmp_path / "ran").read_text().split() == list("01234")


def test_a_comment_is_no_task_of_weigh(tmp_path: Path) -> None:
    ran(tmp_path, PARALLEL, "# why\n\ntrue\n", "p")
    ran(tmp_path, WEIGH, "# why\n\ntrue\n", "w")
    assert column(tmp_path, "p", "Seq") == ["1", "2", "3"]
    assert column(tmp_path, "w", "Seq") == ["1"]


@pytest.mark.parametrize(
    ("halt", "parallel", "weigh"),
    [
        ("never", 4, 1),
        ("now,fail=1", 3, 3),
        ("now,fail=2", 2, 4),
        ("now,success=1", 0, 0),
    ],
)
def test_exit_codes_with_halt_are_those_of_the_page(
    halt: str, parallel: int, weigh: int, tmp_path: Path
) -> None:
    assert ran(tmp_path, (*PARALLEL, "--halt", halt), TASKS, "p") == parallel
    assert ran(tmp_path, (*WEIGH, "--halt", halt), TASKS, "w") == weigh
