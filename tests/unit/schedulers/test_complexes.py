"""A Grid Engine site's own words for GPUs, CPUs and slots."""

from collections.abc import Mapping, Sequence

import pytest
from some_requests import some_job_script

from weigh.errors import FormatError
from weigh.flow.here import here_of
from weigh.flow.site.ask import PATIENCE
from weigh.flow.site.cluster import in_site_words, read_complexes
from weigh.flow.submit.interactive import interactive
from weigh.model.job import JobRequest
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine.scheduler import COMMANDS

CELL = """\
#name        shortcut type   relop requestable consumable default urgency
cpu          cpu      DOUBLE >=    YES         NO         0       0
gpu          g        INT    <=    YES         JOB        0       1000
gpu_memory   gm       MEMORY <=    YES         YES        0       0
gpu_model    gmod     STRING ==    YES         NO         NONE    0
num_proc     p        INT    ==    YES         NO         0       0
slots        s        INT    <=    YES         YES        1       1000
"""
SHARED = "pe_name sharedmem\nallocation_rule    $pe_slots\n"
ACROSS = "pe_name mpi\nallocation_rule    $fill_up\n"
ANSWERS = {
    ("qconf", "-sc"): CELL,
    ("qconf", "-spl"): "mpi\nsharedmem\n",
    ("qconf", "-sp", "mpi"): ACROSS,
    ("qconf", "-sp", "sharedmem"): SHARED,
}
OURS = {"gpus": "gpu", "gpu_type": "gpu_model", "parallel": "sharedmem"}


def ask(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    patience: float = PATIENCE,
) -> CommandOutput:
    del env, cwd, patience
    said = ANSWERS.get(tuple(argv))
    return CommandOutput(trouble="not here") if said is None else CommandOutput(0, said)


def test_slurm_needs_no_words() -> None:
    assert in_site_words(JobRequest(), "slurm", {"gridengine": OURS}) == JobRequest()


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"gpu": "x"}, "gpu"),
        ({"gpus": 3}, "gpus"),
        ({"parallel": "smp 4"}, "parallel"),
        ({"cpus": "ncpus\n#$ -q x"}, "cpus"),
        ("ngpus", "cluster.gridengine"),
    ],
)
def test_what_is_no_word_is_named(table: object, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        read_complexes("gridengine", table)


def test_a_script_is_written_in_the_words_of_its_site() -> None:
    wanted = in_site_words(
        JobRequest(cpus=4, gpus=2, gpu_type="a100"), "gridengine", {"gridengine": OURS}
    )

    lines = COMMANDS.render(some_job_script(request=wanted)).splitlines()

    assert {"#$ -pe sharedmem 4", "#$ -l gpu=2", "#$ -l gpu_model=a100"} <= set(lines)


def test_a_shell_is_written_in_the_words_of_its_site() -> None:
    ours = read_complexes("gridengine", OURS)
    wanted = JobRequest(cpus=2, gpus=1, gpu_type="a100", complexes=ours)

    argv = interactive(
        here_of("/", {}), wanted, (), scheduler="gridengine", run_command=ask
    ).argv

    assert {"gpu=1", "gpu_model=a100", "sharedmem"} <= set(argv)
