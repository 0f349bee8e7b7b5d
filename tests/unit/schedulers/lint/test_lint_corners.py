"""What the lint says of scripts that few people write, and somebody does."""

import pytest
from msgspec.structs import replace
from some_limits import GRIDENGINE, SLURM
from some_scripts import CWD, HOME, qsub, sbatch

from weigh.schedulers.shell import read_body

ELEMENT = "${SLURM_ARRAY_TASK_ID}"


def test_only_templates_with_files_report_which_array() -> None:
    body = f"cat data_{ELEMENT}.csv\ncat other_{ELEMENT}.csv\n"
    files = {f"{CWD}/data_{{}}.csv": (), f"{CWD}/other_{{}}.csv": (4,)}
    found = sbatch(body=body, files=files)["no-array"]
    assert found.effect.startswith("one file other_N.csv, N = 4")


def test_a_path_that_another_variable_hides_has_no_template() -> None:
    found = sbatch("--array=1-3", body=f"cat $DATA/a_{ELEMENT}.csv\n")
    assert "element-without-input" not in found


def test_the_directory_of_the_guide_is_followed() -> None:
    body = f"cd ../../\nparallel < tasks_{ELEMENT}.txt\n"
    files = {f"{HOME}/tasks_{{}}.txt": (0, 1)}
    known = {"cwd": f"{HOME}/script/interference", "files": files}
    found = sbatch("--array=0-2", body=body, **known)
    assert "element 2 has none" in found["element-without-input"].effect


@pytest.mark.parametrize("flag", ["-a", "--arg-file", "::::"])
def test_a_file_of_arguments_for_parallel_is_one_that_is_read(flag: str) -> None:
    body = f"parallel echo {flag} args_{ELEMENT}.txt\n"
    files = {f"{CWD}/args_{{}}.txt": (1, 2)}
    found = sbatch("--array=1-3", body=body, files=files)
    assert "element 3 has none" in found["element-without-input"].effect


def test_where_no_queue_is_requested_the_cluster_is_what_is_too_small() -> None:
    queues = tuple(replace(one, default=False) for one in GRIDENGINE.queues)
    limits = replace(GRIDENGINE, queues=queues)
    found = qsub("-cwd", "-l h_vmem=40G", limits=limits)["memory-beyond-node"]
    assert "the largest node of the cluster has 32.0 GiB" in found.effect


def test_a_queue_may_allow_fewer_cpus_than_its_nodes_have() -> None:
    queue = replace(SLURM.queues[0], cpus=4)
    limits = replace(SLURM, queues=(queue, *SLURM.queues[1:]))
    found = sbatch("--cpus-per-task=6", limits=limits)["cpus-beyond-queue"]
    assert "6 CPUs on one node; short allows 4" in found.effect


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("cd ~/work\ncat in.txt\n", "in.txt"),
        ("source activate\n", "activate"),
        ("python -Ximporttime=a.b run\n", "run"),
        ("git clone https://x/y\npython train.py\n", "train.py"),
        ("tar xf data.tar\npython train.py\n", "train.py"),
    ],
    ids=["no home", "from the PATH", "a flag", "a checkout", "an archive"],
)
def test_a_file_that_may_be_there_is_not_missed(body: str, path: str) -> None:
    paths = {f"{CWD}/{path}": "missing"}
    found = sbatch(body=body, paths=paths, home=None)
    assert "missing-path" not in found


def test_behind_a_second_component_directives_are_about_that() -> None:
    found = sbatch("--mem=1G", "hetjob", "--no-such-option")
    assert "unknown-option" not in found


def test_a_missing_folder_of_two_logs_is_reported_once() -> None:
    lines = ("--output=logs/a.out", "--error=logs/a.err")
    found = sbatch(*lines, paths={f"{CWD}/logs": "missing"})
    assert found["log-directory"].text == "--output=logs/a.out"


def test_a_throttle_that_is_no_number_is_accepted_as_sbatch_does() -> None:
    assert "array" not in sbatch("--array=0-9%x", body="echo $SLURM_ARRAY_TASK_ID\n")


def test_a_newline_within_a_case_ends_no_command() -> None:
    text = "case $1\nin\n  a)\n\n python a.py ;;\n\n b) python b.py ;;\nesac\n"
    words = [one.words for one in read_body(text).commands]
    assert words == [("python", "a.py"), ("python", "b.py")]
