"""Task files of other tools: what they say is obeyed or refused, never dropped."""

import pytest

from weigh.errors import UsageError
from weigh.sweep.task_file import read_task_lines


def tasks(text: str) -> list[str]:
    lines = text.encode().splitlines(keepends=True)
    return [task.command for task in read_task_lines(lines, "tasks.txt")]


@pytest.mark.parametrize("line", ["#DISBATCH PREFIX ( cd a &&", "# DISBATCH BARRIER"])
def test_a_directive_of_disbatch_is_refused_with_the_way_out(line: str) -> None:
    with pytest.raises(UsageError, match=r"tasks\.txt:2: #DISBATCH .* --after FIRST"):
        tasks(f"pwd\n{line}\necho b\n")


@pytest.mark.parametrize(
    "line",
    [
        "export X=1",
        "export PATH=$HOME/bin:$PATH  # mine",
        "cd sub",
        "module load CUDA/12",
        "ml purge",
        "conda activate env",
        "source env/bin/activate",
        ". ~/.bashrc",
        "set -euo pipefail",
        "ulimit -n 4096",
        "unset DISPLAY",
        "X=1",
        "DATA='a b'",
    ],
)
def test_a_line_that_only_sets_something_for_others_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"tasks\.txt:1: .* affects no other line"):
        tasks(f"{line}\npython3 a.py\n")


@pytest.mark.parametrize(
    "line",
    [
        "export X=1; python3 a.py",
        "cd sub && ./run",
        "X=1 ./run",
        "module load CUDA && ./run",
        "source env/bin/activate; python3 a.py",
        ". ./run_all.sh",
        "set -e; ./run",
        "cd sub; ls > out",
        "X=$(./run)",
        "exporter --all",
        "cdo mergetime a b",
        "setup.sh",
        "moduleload x",
        "# DISBATCHed on Monday",
    ],
)
def test_a_line_that_does_something_is_a_task_or_a_comment(line: str) -> None:
    assert tasks(f"{line}\necho b\n")[-1] == "echo b"
