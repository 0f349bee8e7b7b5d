"""What the lint says of scripts that few people write, and somebody does."""

from msgspec.structs import replace
from some_limits import GRIDENGINE, SLURM
from some_scripts import CWD, qsub, sbatch

from weigh.schedulers.shell import read_body

ELEMENT = "${SLURM_ARRAY_TASK_ID}"


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


def test_behind_a_second_component_directives_are_about_that() -> None:
    found = sbatch("--mem=1G", "hetjob", "--no-such-option")
    assert "unknown-option" not in found


def test_a_missing_folder_of_two_logs_is_reported_once() -> None:
    lines = ("--output=logs/a.out", "--error=logs/a.err")
    found = sbatch(*lines, paths={f"{CWD}/logs": "missing"})
    assert found["log-directory"].text == "--output=logs/a.out"


def test_a_newline_within_a_case_ends_no_command() -> None:
    text = "case $1\nin\n  a)\n\n python a.py ;;\n\n b) python b.py ;;\nesac\n"
    words = [one.words for one in read_body(text).commands]
    assert words == [("python", "a.py"), ("python", "b.py")]
