"""Lines of a file that a script runs word by word, without a shell that reads them."""

import os
import subprocess
from pathlib import Path

import pytest
from some_scripts import CWD, sbatch
from transcript import named_texts
from written_programs import write_program

LINES = "./prog --name 'two words' > out\n./prog plain\n"
BODIES = named_texts(Path(__file__).with_name("word_splitting.texts"))
RUNS, FINE = (
    {name: body for name, body in BODIES.items() if name.startswith(kind)}
    for kind in ("splits", "is fine")
)


# how scripts run a line of cmds.txt
TEXTS = {f"{CWD}/cmds.txt": LINES, f"{CWD}/plain.txt": "./prog a\n# 'note'\n"}
PROGRAM = 'echo "$2" >> seen'
SRUN = 'while [ "${1#-}" != "$1" ] || [ "$1" = 1 ]; do shift; done; exec "$@"'
ARRAY = ("--mem=1G", "--time=10", "--array=1-2%2", "--output=o_%a")


@pytest.mark.parametrize("body", RUNS.values(), ids=RUNS)
def test_a_line_with_quotes_that_is_run_by_word_splitting_is_found(body: str) -> None:
    found = sbatch(*ARRAY, body=body, texts=TEXTS)["word-splitting"]
    assert found.severity == "problem"
    assert ":1 has quotes, and no shell reads that here" in found.effect


@pytest.mark.parametrize("body", FINE.values(), ids=FINE)
def test_a_line_that_a_shell_reads_or_that_needs_none_is_not(body: str) -> None:
    assert "word-splitting" not in sbatch(*ARRAY, body=body, texts=TEXTS)


@pytest.mark.parametrize("body", RUNS.values(), ids=RUNS)
def test_the_line_that_is_offered_works(body: str, tmp_path: Path) -> None:
    found = sbatch(*ARRAY, body=body, texts=TEXTS)["word-splitting"]
    (tmp_path / "cmds.txt").write_text(LINES)
    for name, text in (("prog", PROGRAM), ("srun", SRUN)):
        write_program(tmp_path / name, text)
    fixed = body.replace(found.text.strip(), found.cure)
    assert fixed != body
    env = {"SLURM_ARRAY_TASK_ID": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", fixed], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "seen").read_text().splitlines()[0] == "two words"
    assert (tmp_path / "out").exists()
