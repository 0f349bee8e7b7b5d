import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transcript import check_answers
from written_programs import write_program

from weigh.flow.run.profile import scalene_command

needs_scalene = pytest.mark.skipif(
    importlib.util.find_spec("scalene") is None,
    reason="scalene is not installed: pip install scalene",
)
PROGRAM = """\
import json, sys
held = [bytes(1000) for _ in range(100_000)]
total = 0
for number in range(4_000_000):
    total += number * number
print(json.dumps([sys.argv, sys.stdin.read(), __name__]))
sys.exit(3)
"""
ARGUMENTS = ("--lr", "0.1", "--", "-x", "two words", "other.py", "---", "-h")
OUTSIDE = {"SLURM_JOB_ID", "SGE_TASK_ID", "NSLOTS", "JOB_ID", "WEIGH_CHANNEL"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def weigh_profile(
    folder: Path, *words: str, **env: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    return subprocess.run(
        [sys.executable, "-m", "weigh", "profile", *words],
        input="some words",
        env={**kept, "WEIGH_DIR": str(folder / "store"), **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@needs_scalene
def test_the_program_runs_as_without_and_its_profile_is_kept(folder: Path) -> None:
    done = weigh_profile(folder, "--", sys.executable, "train.py", *ARGUMENTS)
    argv, words, name = json.loads(done.stdout.splitlines()[0])
    assert (argv, words, name) == (["train.py", *ARGUMENTS], "some words", "__main__")
    assert done.returncode == 3

    (path,) = (folder / "store" / "profiles").iterdir()
    (measured,) = json.loads(path.read_bytes())["files"].values()
    largest = max(measured["lines"], key=lambda line: line["n_peak_mb"])
    assert largest["lineno"] == 2
    assert f"weigh: profile: store/profiles/{path.name} " in done.stderr


@needs_scalene
def test_a_batch_job_is_profiled_when_forced_to_the_file_that_is_named(
    folder: Path,
) -> None:
    command = ("-o", "mine.json", "--", sys.executable, "train.py")
    refused = weigh_profile(folder, *command, SLURM_JOB_ID="481516")
    forced = weigh_profile(folder, "--force", *command, SLURM_JOB_ID="481516")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert forced.stdout.startswith("[[")
    assert json.loads((folder / "mine.json").read_bytes())["files"]


def test_what_cannot_be_profiled_is_refused_as_it_was_reviewed(tmp_path: Path) -> None:
    lacks_scalene = write_program(tmp_path / "python3", "exit 1")

    def refusal(words: str) -> object:
        environ, _, command = words.rpartition(" | ")
        argv = command.replace("BARE", str(lacks_scalene)).split()
        argv[0] = argv[0].replace("PYTHON", sys.executable)
        variables = dict(word.split("=") for word in environ.split())
        return scalene_command(argv, environ=variables)

    path = Path(__file__).with_name("profiled.texts")
    question = "a command, behind the variables of a job"
    check_answers(path, {question: refusal}, {str(tmp_path): "FOLDER"})
