"""What is off in the commands of a script, under either scheduler."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_limits import GRIDENGINE, SLURM
from some_scripts import CWD, of_gridengine, of_slurm, sbatch

from weigh.model.lint import CommandPlace
from weigh.schedulers.script import read_script

SPICES = st.sampled_from(
    (
        *("#SBATCH ", "#$ ", "--mem=", "-t ", "--array=", "-l h_vmem=", "--gres=gpu:"),
        *(
            "0-9%3",
            "9" * 5000,
            "\n",
            " ",
            ":",
            "=",
            "&",
            "\u00b2",
            "\udc80",
            "\0",
            "~/",
        ),
        *("cd ", "trap x TERM", "$SLURM_ARRAY_TASK_ID", "#!/bin/sh\n", "-pe smp "),
        *("conda activate x", "-o a/", "--time=", "h_rt=", "-d afterok:", "--signal="),
    )
)


@pytest.mark.parametrize(
    "value",
    [
        *("TO_FILL_ACCOUNT", "<account>", "your_account", "YOUR-PROJECT", "CHANGEME"),
        *(
            "def-someuser@domain.com",
            "/path/to/logs/%j.out",
            "someone@domain.com",
            "xxx",
        ),
    ],
)
def test_a_placeholder_left_in_a_directive_is_found(value: str) -> None:
    assert "placeholder" in sbatch(f'--comment="{value}"')


@pytest.mark.parametrize(
    "value", ["def-lab", "ann@cs.uni.ac.uk", "gpu_long", "youth", "logs/%x.out", "a<b"]
)
def test_a_word_of_ones_own_is_no_placeholder(value: str) -> None:
    assert "placeholder" not in sbatch(f'--comment="{value}"')


def test_a_placeholder_in_a_command_is_a_note() -> None:
    found = sbatch(body="python /path/to/train.py\n")["placeholder"]
    assert found.severity == "note"


def test_conda_needs_its_hook() -> None:
    assert sbatch(body="conda activate pt\n")["conda"].severity == "problem"
    hooked = 'eval "$(conda shell.bash hook)"\nconda activate pt\n'
    sourced = "source ~/miniconda3/etc/profile.d/conda.sh\nconda activate pt\n"
    assert "conda" not in sbatch(body=hooked)
    assert "conda" not in sbatch(body=sourced)
    for flag in ("-l", "--login", "-login", "-il", "-el"):
        assert "conda" not in of_slurm(f"#!/bin/bash {flag}\nconda activate pt\n")
    assert "conda" in of_slurm("#!/bin/bash -e\nconda activate pt\n")


def test_a_module_may_bring_conda() -> None:
    assert "conda" not in sbatch(body="module load anaconda\nconda activate pt\n")
    assert "conda" not in sbatch(body="ml Miniforge3/24\nconda activate pt\n")
    assert "conda" in sbatch(body="module load cuda\nconda activate pt\n")


def test_a_command_that_is_nowhere_is_an_error() -> None:
    commands = {"pyhton": CommandPlace(), "ls": CommandPlace("/bin/ls", "/bin/ls")}
    found = sbatch(body="ls\npyhton x\n", commands=commands)["command-not-found"]
    assert found.severity == "problem"
    assert found.cure == "did you mean python?"


def test_a_program_that_the_nodes_may_have_is_a_note() -> None:
    gone = {"gromacs": CommandPlace(), "nvidia-smi": CommandPlace()}
    found = sbatch(body="nvidia-smi\ngromacs x\n", commands=gone)
    assert found["command-not-found"].text == "gromacs x"
    assert found["command-not-found"].severity == "note"


@pytest.mark.parametrize(
    "bringer", ["module load python", "source venv/bin/activate", "export PATH=$PATH:x"]
)
def test_a_command_may_be_brought_by_the_script(bringer: str) -> None:
    found = sbatch(body=f"{bringer}\nfoo x\n", commands={"foo": CommandPlace()})
    assert "command-not-found" not in found


def test_a_command_on_the_login_node_only_is_an_error() -> None:
    place = CommandPlace(path="/opt/login/bin/foo", on_nodes=False)
    assert "login-only" in sbatch(body="foo x\n", commands={"foo": place})


def test_shell_words_and_own_functions_need_no_path() -> None:
    gone = dict.fromkeys(("cd", "f", "$X", "./x", "export"), CommandPlace())
    found = sbatch(body="f() { true; }\ncd x\nf\n$X y\n./x\n", commands=gone)
    assert "command-not-found" not in found


def test_what_is_in_the_background_at_the_end_is_killed() -> None:
    assert "no-wait" in sbatch(body="python a &\npython b &\necho done\n")
    assert "no-wait" not in sbatch(body="python a &\npython b &\nwait\n")
    assert "no-wait" not in sbatch(body="nvidia-smi -l &\npython train.py\n")


def test_a_trap_waits_for_the_foreground() -> None:
    body = "trap 'cp x y' TERM\npython train.py\n"
    assert "deferred-trap" in sbatch(body=body)
    free = "trap 'kill $P' TERM\npython train.py & P=$!\nwait $P\n"
    assert "deferred-trap" not in sbatch(body=free)


def test_a_signal_for_steps_needs_a_step() -> None:
    assert "signal-to-nobody" in sbatch("--signal=USR1@60", body="python x\n")
    assert "signal-to-nobody" not in sbatch("--signal=USR1@60", body="srun python x\n")


def test_a_signal_for_the_shell_needs_a_trap() -> None:
    assert "signal-untrapped" in sbatch("--signal=B:USR1@60", body="python x\n")
    trapped = "trap save USR1\npython x & wait\n"
    assert "signal-untrapped" not in sbatch("--signal=B:USR1@60", body=trapped)


def test_a_gpu_that_is_used_and_not_requested_is_pointed_out() -> None:
    assert "no-gpu" in sbatch("--mem=1G", body="python train.py --device cuda\n")
    asked = sbatch("--gres=gpu:1", body="python train.py --device cuda\n")
    assert "no-gpu" not in asked


def test_paths_are_followed_through_cd() -> None:
    paths = {f"{CWD}/src": "directory", f"{CWD}/src/train.py": "missing"}
    found = sbatch(body="cd src\npython train.py\n", paths=paths)["missing-path"]
    assert found.line == 3
    left = sbatch(body="cd $SOMEWHERE\npython train.py\n", paths=paths)
    assert "missing-path" not in left


def test_a_file_that_the_script_makes_is_no_problem() -> None:
    paths = {f"{CWD}/data.txt": "missing", f"{CWD}/venv/bin/activate": "missing"}
    made = "sort x > data.txt\ncat < data.txt\n"
    assert "missing-path" not in sbatch(body=made, paths=paths)
    venv = "python3 -m venv venv\nsource venv/bin/activate\n"
    assert "missing-path" not in sbatch(body=venv, paths=paths)
    assert "missing-path" in sbatch(body="source venv/bin/activate\n", paths=paths)


def test_a_path_of_the_nodes_own_is_left_alone() -> None:
    paths = {"/disk/scratch/me": "missing"}
    assert "missing-path" not in sbatch(body="cd /disk/scratch/$USER\n", paths=paths)


def test_a_script_of_python_has_no_shell_commands() -> None:
    found = of_slurm("#!/usr/bin/env python3\n#SBATCH --mem=1G\n[[x]]\n")
    assert {one.severity for one in found.values()} <= {"note"}


def test_the_program_behind_env_is_found() -> None:
    assert read_script("#!/usr/bin/env -S python3 -u\n").program == "python3"
    assert not read_script("#!/usr/bin/env python3\n").is_shell
    assert read_script("#! /bin/bash -l\n").program == "bash"


@given(st.lists(SPICES).map("".join))
def test_no_script_makes_the_lint_stumble(text: str) -> None:
    for limits in (None, SLURM):
        of_slurm(text, limits=limits)
    of_gridengine(text, limits=GRIDENGINE)
