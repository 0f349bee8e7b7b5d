"""Lines of a file that a script runs word by word, without a shell that reads them."""

import os
import subprocess
from pathlib import Path

import pytest
from some_scripts import CWD, qsub, sbatch

LINES = "./prog --name 'two words' > out\n./prog plain\n"
PICK = '$(sed -n "${SLURM_ARRAY_TASK_ID}p" cmds.txt)'
# how scripts run a line of cmds.txt
RUNS = {
    "sed": "srun $(sed -n ${SLURM_ARRAY_TASK_ID}p cmds.txt)",
    "sed, quoted": f"srun {PICK}",
    "backticks": "`sed -n ${SLURM_ARRAY_TASK_ID}p cmds.txt`",
    "awk": "srun $(awk NR==$SLURM_ARRAY_TASK_ID cmds.txt)",
    "head and tail": "time $(head -n $SLURM_ARRAY_TASK_ID cmds.txt | tail -n 1)",
    "a variable": f"CMD={PICK}\nsrun -n 1 --exclusive $CMD",
    "a quoted variable": f'CMD="{PICK}"\n$CMD',
    "a variable for the file": f"F=cmds.txt\nsrun {PICK.replace('cmds.txt', '$F')}",
    "an array": ("mapfile -t L < cmds.txt\nsrun ${L[$((SLURM_ARRAY_TASK_ID - 1))]}"),
    "a list in the script": (
        "L=(\"./prog --name 'two words' > out\" './prog plain')\n"
        "srun ${L[$((SLURM_ARRAY_TASK_ID - 1))]}"
    ),
    "a line in the script": "CMD=\"./prog --name 'two words' > out\"\n$CMD",
    "a loop": "while read -r line; do\n  $line\ndone < cmds.txt",
    "with more words": f"CMD={PICK}\nsrun $CMD --seed 1",
}
FINE = {
    "eval": f'CMD={PICK}\neval "$CMD"',
    "bash -c": f'srun bash -c "{PICK}"',
    "sh": "sed -n ${SLURM_ARRAY_TASK_ID}p cmds.txt | sh",
    "an argument": f"srun ./prog {PICK}",
    "an option's value": f"N={PICK}\nsrun -n $N ./prog",
    "shown": f"echo {PICK}",
    "another file": "srun $(sed -n ${SLURM_ARRAY_TASK_ID}p plain.txt)",
    "a launcher": 'MPI="srun --mpi=pmix"\n$MPI ./prog',
    "xargs": "xargs -a cmds.txt -I{} sh -c '{}'",
}
TEXTS = {f"{CWD}/cmds.txt": LINES, f"{CWD}/plain.txt": "./prog a\n# 'note'\n"}
PROGRAM = 'echo "$2" >> seen'
SRUN = 'while [ "${1#-}" != "$1" ] || [ "$1" = 1 ]; do shift; done; exec "$@"'
ARRAY = ("--mem=1G", "--time=10", "--array=1-2%2", "--output=o_%a")


@pytest.mark.parametrize("body", RUNS.values(), ids=RUNS)
def test_a_line_with_quotes_that_is_run_by_word_splitting_is_found(body: str) -> None:
    found = sbatch(*ARRAY, body=f"{body}\n", texts=TEXTS)["word-splitting"]
    assert found.severity == "problem"
    assert ":1 has quotes, and no shell reads that here" in found.effect


@pytest.mark.parametrize("body", FINE.values(), ids=FINE)
def test_a_line_that_a_shell_reads_or_that_needs_none_is_not(body: str) -> None:
    assert "word-splitting" not in sbatch(*ARRAY, body=f"{body}\n", texts=TEXTS)


@pytest.mark.parametrize("body", RUNS.values(), ids=RUNS)
def test_the_line_that_is_offered_works(body: str, tmp_path: Path) -> None:
    found = sbatch(*ARRAY, body=f"{body}\n", texts=TEXTS)["word-splitting"]
    (tmp_path / "cmds.txt").write_text(LINES)
    for name, text in (("prog", PROGRAM), ("srun", SRUN)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    fixed = body.replace(found.text.strip(), found.cure)
    assert fixed != body
    env = {"SLURM_ARRAY_TASK_ID": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", fixed], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "seen").read_text().splitlines()[0] == "two words"
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("./prog a | tee log", "a pipe"),
        ("./prog a > log", "a redirection"),
        ("cd a && ./prog", "several commands"),
        ("./prog $HOME", "a variable"),
        ("OMP_NUM_THREADS=4 ./prog", "an assignment"),
    ],
)
def test_what_the_line_has_is_named(line: str, what: str) -> None:
    body = "$(sed -n ${SGE_TASK_ID}p cmds.txt)\n"
    texts = {f"{CWD}/cmds.txt": f"./prog a\n{line}\n"}
    found = qsub("-cwd", "-t 1-2", body=body, texts=texts)["word-splitting"]
    assert f"cmds.txt:2 has {what}," in found.effect
