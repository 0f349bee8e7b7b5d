"""A job script given as a command: its directives would be lost, so it is refused."""

import os
from pathlib import Path

import pytest
from following import Weigh

DIRECTIVES = """#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --mem=14G   # enough
#SBATCH --time=12:00:00

python train.py
#SBATCH --qos=ignored
"""


@pytest.fixture
def folder(here: Weigh) -> Weigh:
    script = here.folder / "job.sh"
    script.write_text(DIRECTIVES)
    script.chmod(0o755)
    (here.folder / "grid.sh").write_text("#!/bin/bash\n#$ -l ngpus=1\ntrue\n")
    (here.folder / "plain.sh").write_text("#!/bin/bash\n# SBATCH is a word\necho hi\n")
    (here.folder / "job.py").write_text("#!/usr/bin/python3\n#SBATCH --mem=9G\n")
    return here


RUNS_IT = [
    ("bash", "job.sh"),
    ("./job.sh",),
    ("sh", "-e", "job.sh"),
    ("bash", "-l", "-o", "pipefail", "job.sh", "argument"),
    ("bash", "--", "job.sh"),
    ("env", "X=1", "bash", "job.sh"),
    ("X=1", "bash", "job.sh"),
    ("srun", "--ntasks", "1", "bash", "job.sh"),
    ("srun", "-p", "gpu", "./job.sh"),
    ("nice", "-n", "10", "timeout", "1h", "./job.sh"),
    ("weigh", "run", "--", "bash", "job.sh"),
    ("bash", "-c", "cd . && bash job.sh"),
    ("bash", "-lc", "source job.sh"),
    ("bash", "-c", "bash < job.sh"),
]


@pytest.mark.parametrize("command", RUNS_IT, ids=" ".join)
def test_a_command_that_runs_a_job_script_is_refused_with_what_would_be_lost(
    folder: Weigh, command: tuple[str, ...]
) -> None:
    code, out, err = folder("submit", "--on", "local", "--dry-run", "--", *command)

    assert (code, out) == (2, "")
    words = " ".join(err.split())
    assert "job.sh has 3 directives that would be lost" in words
    assert "--gres=gpu:1 --mem=14G --time=12:00:00" in words
    assert "by sbatch" in words
    assert not (folder.folder / "plan").exists()


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        (("bash", "grid.sh"), "-l ngpus=1"),
        (("python3", "-u", "job.py"), "--mem=9G"),
        (("sbatch", "job.sh"), "submits a job of its own"),
        (("qsub", "-q", "gpu", "grid.sh"), "submits a job of its own"),
    ],
    ids=str,
)
def test_other_job_scripts_are_refused_as_well(
    folder: Weigh, command: tuple[str, ...], lost: str
) -> None:
    code, _, err = folder("submit", "--on", "local", "--dry-run", "--", *command)

    assert code == 2
    assert lost in " ".join(err.split())


@pytest.mark.parametrize(
    "command",
    [
        ("bash", "plain.sh"),
        ("cat", "job.sh"),
        ("timeout", "60", "cat", "job.sh"),
        ("python3", "-c", "print(1)", "job.sh"),
        ("python3", "-m", "http", "job.sh"),
        ("bash", "-c", "wc -l job.sh"),
        ("bash", "no-such-file.sh"),
        ("bash",),
        ("bash", "plain.sh", "job.sh"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_names_a_job_script_is_submitted(
    folder: Weigh, command: tuple[str, ...]
) -> None:
    code, _, err = folder("submit", "--on", "local", "--dry-run", "--", *command)

    assert code == 0, err


def test_a_plan_is_refused_for_a_line_that_runs_a_job_script(folder: Weigh) -> None:
    tasks = Path(folder.folder, "tasks.txt")
    tasks.write_text("echo 1\nbash job.sh 2\n")
    said = ("--memory", "1G", "--cpus", "1", "--time", "5m")

    code, _, err = folder("plan", "tasks.txt", *said)
    assert code == 2
    assert "job.sh has 3 directives" in err


VERBS = [("plan", "--memory=1G", "--cpus=1", "--time=5m"), ("exec",), ("check",)]
SUBMISSIONS = [
    "sbatch job.sh 1\nsbatch job.sh 2\n",
    "sbatch --wrap 'python3 a.py 1'\n",
    "sbatch -p gpu no-such-file.sh\n",
    "qsub -q gpu grid.sh\nqsub -q gpu grid.sh\n",
    "for i in 1 2 3; do sbatch job.sh $i; done\n",
    "mkdir -p log\nfor i in 1 2 3\ndo\n  sbatch job.sh $i\ndone\n",
]


@pytest.mark.parametrize("text", SUBMISSIONS)
@pytest.mark.parametrize("verb", VERBS, ids=str)
def test_a_task_file_that_submits_jobs_is_refused_in_one_line(
    folder: Weigh, verb: tuple[str, ...], text: str
) -> None:
    Path(folder.folder, "tasks.txt").write_text(text)

    code, out, err = folder(*verb, "tasks.txt")

    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "tasks.txt submits jobs itself, by" in err
    assert "bash tasks.txt submits them" in err
    assert not (folder.folder / "plan").exists()


@pytest.mark.parametrize("verb", VERBS, ids=str)
def test_a_loop_over_several_lines_is_no_list_of_tasks(
    folder: Weigh, verb: tuple[str, ...]
) -> None:
    text = "for i in 1 2 3\ndo\n  echo $i >>ran\ndone\n"
    Path(folder.folder, "tasks.txt").write_text(text)

    code, _, err = folder(*verb, "tasks.txt")

    assert (code, err.count("\n")) == (2, 1)
    assert "a loop over several lines (for i in 1 2 3), but each line is a task" in err
    assert not Path(folder.folder, "ran").exists()


def test_a_loop_on_one_line_is_a_task(folder: Weigh) -> None:
    line = "for i in 1 2; do echo $i >>ran; done\nwhile false; do :; done < job.sh\n"
    Path(folder.folder, "tasks.txt").write_text(line)

    assert folder("exec", "tasks.txt")[0] == 0
    assert Path(folder.folder, "ran").read_text() == "1\n2\n"


@pytest.mark.parametrize("text", SUBMISSIONS)
def test_a_file_of_submissions_is_no_script_and_no_task_file(
    folder: Weigh, text: str
) -> None:
    Path(folder.folder, "tasks.txt").write_text(text)

    code, _, err = folder("submit", "tasks.txt", "--on", "local", "--dry-run")

    assert code == 2
    assert "itself: run it with bash" in err


def test_a_task_that_submits_the_next_job_at_its_end_runs(folder: Weigh) -> None:
    lines = "true; command -v sbatch job.sh\necho 2\n"
    Path(folder.folder, "tasks.txt").write_text(lines)

    code, _, err = folder("exec", "tasks.txt")

    assert "submits jobs itself" not in err
    assert code in {0, 1}


def test_a_named_pipe_as_script_does_not_block(folder: Weigh) -> None:
    os.mkfifo(folder.folder / "pipe.sh")

    code, _, err = folder(
        "submit", "--on", "local", "--dry-run", "--", "bash", "pipe.sh"
    )

    assert code == 0, err


def test_exec_warns_of_a_task_that_is_a_job_script(folder: Weigh) -> None:
    Path(folder.folder, "tasks.txt").write_text("true\nbash grid.sh\n")

    code, _, err = folder("exec", "tasks.txt")

    assert code == 0, err
    assert "grid.sh has 1 directive that would be lost: -l ngpus=1" in err
