"""What the commands of a script do with what the job gets, under either scheduler."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from some_limits import GRIDENGINE, SLURM
from some_scripts import (
    CWD,
    facts,
    of_gridengine,
    of_slurm,
    qsub,
    sbatch,
    script,
    stated,
)

from weigh.flow.check.script import facts_of
from weigh.flow.here import here_of
from weigh.model.cluster import ClusterLimits, QueueLimits
from weigh.model.lint import CommandPlace
from weigh.schedulers.gridengine import lint as gridengine_lint
from weigh.schedulers.script import read_script

KNOWN: dict[str, Any] = {
    "files": {
        f"{CWD}/in_{{}}.csv": (1, 2, 3),
        f"{CWD}/tasks_{{}}.txt": tuple(range(20)),
        f"{CWD}/later_{{}}.txt": (),
    },
    "lines": {f"{CWD}/ids.txt": 3, f"{CWD}/params.txt": 20},
}
GONE: dict[str, Any] = {
    "paths": {f"{CWD}/solver": "file", f"{CWD}/a.py": "file"},
    "executable": {f"{CWD}/solver": False, f"{CWD}/a.py": False},
}
SOLVERS = [
    *("./solver in.dat\n", "srun ./solver\n", "srun -n 4 --exclusive ./solver\n"),
    *("mpirun -np 4 ./solver\n", "time ./solver\n"),
]
GPUS = ["export CUDA_VISIBLE_DEVICES=0,1\npython x.py\n"]


ESCAPES = {"n": "\n", "r": "\r", "b": "\ufeff", "\\": "\\"}
LIMITS: dict[str, dict[str, ClusterLimits | None]] = {
    "without limits": {"slurm": None, "gridengine": None},
    "with the limits of the cluster": {"slurm": SLURM, "gridengine": GRIDENGINE},
    "with limits that nobody enforces": {
        "slurm": msgspec.structs.replace(SLURM, enforced=False)
    },
}


def judged_scripts() -> Iterator[tuple[str, ...]]:
    """Yield rows of both tables: scheduler, limits, rule, verdict, directives, body."""
    for scheduler in ("slurm", "gridengine"):
        limits = rule = ""
        path = Path(__file__).with_name(f"judged_scripts.{scheduler}.txt")
        for line in path.read_text().splitlines():
            if line.startswith("    "):
                verdict, directives, body = line[4:].split(" | ", 2)
                body = re.sub(r"\\(.)", lambda one: ESCAPES[one[1]], body)
                end = "" if limits == "whole scripts" else "\n"
                yield scheduler, limits, rule, verdict, directives, body + end
            elif line.startswith("@"):
                limits = line.removeprefix("@ ")
            elif not line.startswith("#"):
                rule = line


def agrees(found: dict[str, Any], rule: str, verdict: str) -> bool:
    """Return whether the rule states what the row says."""
    if verdict == "nothing":
        return rule not in found
    if rule == "any":
        return all(one.accepted for one in found.values()) == (verdict == "accepted")
    severity, _, words = verdict.partition(": ")
    if severity not in {"note", "problem", "refused"}:
        severity, words = "", "" if verdict == "found" else verdict
    return bool(stated(found, rule, severity, words))


@pytest.mark.parametrize("row", [*judged_scripts()], ids=" ".join)
def test_a_script_is_judged_by_what_the_scheduler_does_with_it(
    row: tuple[str, ...],
) -> None:
    scheduler, limits, rule, verdict, line, body = row
    if limits == "whole scripts":
        found = of_slurm(body) if scheduler == "slurm" else of_gridengine(body)
    else:
        ask = sbatch if scheduler == "slurm" else qsub
        known = {**KNOWN, **GONE, "limits": LIMITS[limits][scheduler]}
        found = ask(line, body=body, **known)
    assert agrees(found, rule, verdict)


@pytest.mark.parametrize(
    "value",
    [
        *("TO_FILL_ACCOUNT", "<account>", "your_account", "YOUR-PROJECT", "CHANGEME"),
        *("def-x@domain.com", "/path/to/logs/%j.out", "someone@domain.com", "xxx"),
    ],
)
def test_a_placeholder_left_in_a_directive_is_found(value: str) -> None:
    assert "placeholder" in sbatch(f'--comment="{value}"')


@pytest.mark.parametrize(
    "value", ["def-lab", "ann@cs.uni.ac.uk", "gpu_long", "youth", "logs/%x.out", "a<b"]
)
def test_a_word_of_ones_own_is_no_placeholder(value: str) -> None:
    assert "placeholder" not in sbatch(f'--comment="{value}"')


@pytest.mark.parametrize("flag", ["-l", "--login", "-login", "-il", "-el", "-e"])
def test_a_login_shell_has_conda_s_hook(flag: str) -> None:
    found = of_slurm(f"#!/bin/bash {flag}\nconda activate pt\n")
    assert ("conda" in found) == (flag == "-e")


def test_an_executable_program_is_no_finding() -> None:
    known = {**GONE, "executable": {f"{CWD}/solver": True}}
    assert not any("not-executable" in sbatch(body=one, **known) for one in SOLVERS)


# programs and files


def test_a_command_that_is_nowhere_is_an_error() -> None:
    commands = {"pyhton": CommandPlace(), "ls": CommandPlace("/bin/ls", "/bin/ls")}
    found = sbatch(body="ls\npyhton x\n", commands=commands)
    stated(found, "command-not-found", "problem", "did you mean python?")


def test_a_program_that_the_nodes_may_have_is_a_note() -> None:
    gone = {"gromacs": CommandPlace(), "nvidia-smi": CommandPlace()}
    found = sbatch(body="nvidia-smi\ngromacs x\n", commands=gone)
    assert stated(found, "command-not-found", "note", "").text == "gromacs x"


@pytest.mark.parametrize(
    "bringer", ["module load python", "source venv/bin/activate", "export PATH=$PATH:x"]
)
def test_a_command_may_be_brought_by_the_script(bringer: str) -> None:
    found = sbatch(body=f"{bringer}\nfoo x\n", commands={"foo": CommandPlace()})
    assert "command-not-found" not in found


def test_shell_words_and_own_functions_need_no_path() -> None:
    gone = dict.fromkeys(("cd", "f", "$X", "./x", "export"), CommandPlace())
    found = sbatch(body="f() { true; }\ncd x\nf\n$X y\n./x\n", commands=gone)
    assert "command-not-found" not in found


@pytest.mark.parametrize("name", ["julia", "python3.11", "parallel", "paraview"])
def test_a_program_is_no_misspelling_of_itself(name: str) -> None:
    found = sbatch(body=f"{name} x\n", commands={name: CommandPlace()})
    assert found["command-not-found"].cure == ""


def test_the_fix_is_in_the_schedulers_own_words() -> None:
    known = {"train": CommandPlace(path="/home/me/bin/train")}
    slurm = sbatch("--export=NONE", body="train\n", commands=known)["bare-path"]
    assert "#$" not in slurm.cure
    assert "#$ -V" in qsub(body="train\n", commands=known)["bare-path"].cure


@pytest.mark.parametrize(
    ("body", "missing", "line"),
    [
        ("cd src\npython train.py\n", ["src/train.py"], 3),
        ("cd $SOMEWHERE\npython train.py\n", ["src/train.py"], None),
        ("sort x > data.txt\ncat < data.txt\n", ["data.txt"], None),
        ("python3 -m venv venv\nsource venv/bin/a\n", ["venv/bin/a"], None),
        ("source venv/bin/a\n", ["venv/bin/a"], 2),
        ("cd /disk/scratch/$USER\n", ["/disk/scratch/me"], None),
    ],
)
def test_a_missing_file_is_found_unless_the_script_makes_it(
    body: str, missing: list[str], line: int | None
) -> None:
    paths = {path if path[0] == "/" else f"{CWD}/{path}": "missing" for path in missing}
    found = sbatch(body=body, paths={f"{CWD}/src": "directory", **paths})
    assert (found["missing-path"].line if "missing-path" in found else None) == line


def test_a_script_of_python_has_no_shell_commands() -> None:
    found = of_slurm("#!/usr/bin/env python3\n#SBATCH --mem=1G\n[[x]]\n")
    assert {one.severity for one in found.values()} <= {"note"}


def test_the_program_behind_env_is_found() -> None:
    assert read_script("#!/usr/bin/env -S python3 -u\n").program == "python3"
    assert not read_script("#!/usr/bin/env python3\n").is_shell
    assert read_script("#! /bin/bash -l\n").program == "bash"


def test_module_is_a_function_that_only_dash_does_not_get() -> None:
    text = "#!/bin/sh\n#SBATCH --mem=1G\nmodule load gcc\n"
    assert of_slurm(text)["module"].severity == "note"
    assert of_slurm(text, plain_shell="dash")["module"].severity == "problem"


@pytest.mark.parametrize(
    "word", ["#_SBATCH", "#xSBATCH", "#NOSBATCH", "#offSBATCH", "## SBATCH"]
)
def test_a_directive_switched_off_is_a_note_at_most(word: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{word} --mem=1G\nhostname\n")
    assert {one.severity for one in found.values()} <= {"note"}


@pytest.mark.parametrize(
    "option", ["--image=a/b", "--module=gpu", "--container-image=x"]
)
def test_an_option_of_a_site_s_plugin_is_not_judged(option: str) -> None:
    assert {one.severity for one in sbatch(option).values()} == {"note"}


def test_a_script_that_writes_job_scripts_is_not_one() -> None:
    body = 'n=4\necho "\n#$ -t 1-$n\n#$ -l h_rt=$n:0\nhostname" > job.sh\n'
    assert of_gridengine(f"#!/bin/bash\n{body}") == {}


# with the limits of a cluster


def test_a_gpu_type_that_no_node_has_is_found() -> None:
    there = qsub("-l ngpus=1,gpu_type=v100", limits=GRIDENGINE)
    assert "gpus-beyond-node" not in there
    found = qsub("-l ngpus=1,gpu_type=h100", limits=GRIDENGINE)["gpus-beyond-node"]
    assert "h100 does not exist" in found.effect


def test_options_of_sge_request_count_before_the_scripts() -> None:
    home = ("sge_request", "# site\n-cwd -l h_rt=1:00:00\n")
    paths = {f"{CWD}/a.py": "file", "/home/me/a.py": "missing"}
    known: dict[str, Any] = {"body": "python a.py\n", "paths": paths}
    assert "missing-path" in qsub(**known)
    found = qsub(**known, defaults=(home,))
    assert not {"missing-path", "starts-at-home", "default-time"} & found.keys()
    assert "missing-path" in qsub("-clear", **known, defaults=(home,))
    assert "missing-path" in qsub("-wd /home/me", **known, defaults=(home,))


def test_a_finding_on_a_default_names_its_file_and_no_line() -> None:
    known = facts(defaults=(("~/.sge_request", "-t 0-4\n"),), limits=GRIDENGINE)
    text = "#!/bin/bash\nhostname\n"
    found = {one.rule: one for one in gridengine_lint.LINT.lint(text, known)}
    assert found["array"].line is None
    assert "(~/.sge_request)" in found["array"].text


@pytest.mark.parametrize(
    ("queue", "body", "noted"),
    [
        ("gpu.q", "hostname\n", True),
        ("short.q", "hostname\n", False),
        ("short.q", "python train.py --cuda\n", True),
    ],
)
def test_no_gpu_is_noted_where_one_seems_to_be_meant(
    *, queue: str, body: str, noted: bool
) -> None:
    found = qsub("-cwd", f"-q {queue}", body=body, limits=GRIDENGINE)
    assert ("default-gpu" in found) == noted


@pytest.mark.parametrize(
    ("name", "sure"),
    [("smp", True), ("openmp", True), ("mpi", False), ("ompi", False), ("x16", False)],
)
def test_slots_are_compared_with_one_node_where_the_name_means_one(
    *, name: str, sure: bool
) -> None:
    found = qsub("-cwd", f"-pe {name} 36", "-l h_vmem=9G", limits=GRIDENGINE)
    assert ("cpus-beyond-node" in found) == ("memory-beyond-node" in found) == sure


def test_the_shell_is_no_question_where_the_queue_starts_the_script() -> None:
    queue = QueueLimits(name="a.q", start_mode="unix_behavior")
    assert "no-shell" not in qsub("-cwd", limits=ClusterLimits(queues=(queue,)))
    assert "no-shell" in qsub("-cwd")
    assert "interpreter" not in qsub("-S bash", limits=ClusterLimits(queues=(queue,)))
    assert qsub("-S bash")["interpreter"].severity == "note"


def test_a_log_folder_without_its_slash_is_one_where_it_is_there() -> None:
    directory = {f"{CWD}/logs": "directory"}
    assert "log-shared" not in qsub("-cwd", "-t 1-4", "-o logs", paths=directory)


# what bash itself reads, and what is removed


def checked(body: str) -> set[str]:
    """Return the rules that find something, with bash asked as `weigh check` does."""
    text = script("#SBATCH", "--time=1", body=body)
    return set(of_slurm(text, syntax=facts_of(here_of("/", {})).syntax))


@pytest.mark.parametrize(
    ("body", "is_broken"),
    [
        ('echo "begin\npython x.py\n', True),
        ("if [ -f x ]; then\n  echo a\n", True),
        ("for i in 1 2; do\n  echo $i\n", True),
        ("for i in 1 2: do\necho $i\ndone\n", True),
        ("cat > f <<EOF\na\nEOF \npython x.py\n", True),
        ("shopt -s extglob\nrm !(a|b)\n", False),
        ("case $1 in a) echo;; esac\n", False),
        ("cat <<EOF\n$(date)\nEOF\n", False),
    ],
)
def test_what_bash_cannot_read_is_found(body: str, *, is_broken: bool) -> None:
    assert ("syntax" in checked(body)) is is_broken
