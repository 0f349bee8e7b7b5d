"""Job scripts with all that can be asked of them: bash reads each, and in order."""

import subprocess
from itertools import product

import pytest
from following import Weigh
from rigs import EACH_KIND
from test_job_scripts import RENDER, a_script

from weigh.errors import UsageError
from weigh.model.job import JobRequest, JobScript, JobSetup
from weigh.model.staging import StagingPlan
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import bind_lines, staged_lines, warning, when_home

NAMES = (*KINDS, "local")
SETUPS = (
    JobSetup(),
    JobSetup(container="images/my env.sif"),
)
STAGED = StagingPlan(destination="/home/me/out", warn_time=120, grace=10)


def is_bash(text: str) -> bool:
    read = ["bash", "-n", "-c", text]
    return subprocess.run(read, check=False, timeout=20).returncode == 0


def staged(**changes: object) -> JobScript:
    script = a_script(staging=STAGED, **changes)
    tasks = staged_lines(script, KINDS["slurm"].backend.RULES)
    lines = f"staged() {{\n{tasks}\n}}\nhome() {{\n{when_home()}\n}}\n"
    return a_script(staging=STAGED, **changes | {"staged": lines})


@pytest.mark.parametrize(("name", "setup"), [*product(NAMES, SETUPS)])
def test_bash_reads_a_script_that_stages_or_goes_back_into_its_queue(
    name: str, setup: JobSetup
) -> None:
    assert is_bash(RENDER[name](a_script(requeue=True, setup=setup)))
    script = staged(setup=setup, programs=("python", "bin/tag", "/opt/ffmpeg"))

    text = RENDER[name](script)

    assert is_bash(text)
    assert text.count("staged() {") == 1


def test_programs_of_the_working_folder_are_looked_for_once_it_is_there() -> None:
    script = staged(programs=("python", "bin/tag"))

    text = RENDER["slurm"](script)

    before, _, after = text.partition("staged() {")
    assert ("command -v python" in before, "command -v bin/tag" in before) == (
        True,
        False,
    )
    assert "command -v bin/tag" in after


def test_a_python_of_the_working_folder_tries_no_imports() -> None:
    script = staged(
        programs=("bin/python",), setup=JobSetup(), request=JobRequest(gpus=1)
    )

    assert "torch" not in RENDER["slurm"](script)


def test_a_container_sees_what_was_staged_for_all_tasks() -> None:
    [apptainer, singularity] = bind_lines(JobSetup(container="env.sif"))

    assert apptainer.startswith("export APPTAINER_BIND=")
    assert singularity.startswith("export SINGULARITY_BIND=")
    assert not list(bind_lines(JobSetup()))


def test_an_image_of_a_registry_is_looked_for_by_no_file() -> None:
    text = RENDER["slurm"](a_script(setup=JobSetup(container="docker://python:3.11")))

    assert "[ -e docker" not in text


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (None, 120),
        (3600, 60),
        (100, 12),  # a quarter of the time at most is for what comes after
        (2, 1),
    ],
)
def test_the_warning_leaves_time_for_what_comes_after_the_tasks(
    limit: int | None, seconds: int
) -> None:
    wanted = JobRequest(time_limit=limit)

    assert warning(a_script(staging=STAGED, request=wanted)) == seconds


def test_a_job_with_nothing_after_its_tasks_is_not_warned() -> None:
    assert warning(a_script()) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_tasks_end_before_the_warning(name: str) -> None:
    wanted = JobRequest(time_limit=3600)

    text = RENDER[name](a_script(requeue=True, request=wanted))

    assert '--time "$((3480 - SECONDS))s"' in text


@EACH_KIND
@pytest.mark.parametrize("word", ["a\nb", 'a"b', "a\\b"])
def test_a_queue_or_node_that_no_directive_can_hold_is_refused(
    name: str, word: str
) -> None:
    request = JobRequest(queue=word, exclude=(word,))
    with pytest.raises(UsageError, match="cannot hold"):
        RENDER[name](a_script(request=request))


@pytest.mark.parametrize("on", ["slurm", "gridengine", "local"])
def test_a_value_behind_an_equals_sign_is_that_of_the_option(
    here: Weigh, on: str
) -> None:
    given = {"time": "2h", "memory": "2G", "cpus": "3", "account": "us", "name": "b"}
    words = ("submit", here.plan("true"), "--on", on, "--dry-run")
    apart = here(*words, *(one for k, v in given.items() for one in (f"--{k}", v)))
    assert apart[0] == 0
    assert here(*words, *(f"--{k}={v}" for k, v in given.items())) == apart
    assert apart != here(*words)
