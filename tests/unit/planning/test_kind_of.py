"""Which runs count as the same kind of command."""

import shlex

import pytest

from weigh.planning.record_match import command_parts, kind_of_command


@pytest.mark.parametrize(
    ("command", "general"),
    [
        (
            "bash -c 'python a.py 3 | sort > x/3'",
            "python a.py {number} | sort > {file}",
        ),
        ("/usr/bin/bash -euo pipefail -c './b.sh 1'", "b.sh {number}"),
        ("sh -c 'cat $1' sh in/a.txt", "cat $1 sh {file}"),
        ("bash --norc job.sh 7", "bash --norc job.sh {number}"),
        ("python -c 'print(1/2)'", "python -c print(1/2)"),
        ("Rscript -e 'x <- 1/3' 4", "Rscript -e x <- 1/3 {number}"),
        ("env/bin/python src/a.py 3", "python a.py {number}"),
    ],
)
def test_a_line_of_a_shell_counts_as_its_words(command: str, general: str) -> None:
    assert " ".join(kind_of_command(shlex.split(command), {})) == general


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        ("/usr/bin/python -c print(1)", ("python", "-c")),
        ("python -u ./src/train.py 3", ("python", "src/train.py")),
        ("python 3", ("python",)),
        ("LR=1 mpirun -n4 solver.sh in", ("solver.sh", "in")),
    ],
)
def test_programs_are_known_by_their_name_and_their_script(
    command: str, stem: tuple[str, ...]
) -> None:
    assert command_parts(command.split())[0] == stem
