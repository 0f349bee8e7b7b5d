"""The environment of the tasks: made, and seen to be there before anything runs."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from following import Weigh
from transcript import check_answers
from written_programs import write_program

from weigh.flow.submit.checks import imports_torch
from weigh.model.job import JobRequest
from weigh.schedulers.job_script import image_as_run

PYXIS_HERE = '[cluster]\ncontainer = "pyxis"\n'
# as much of it as a job script uses
APPTAINER = """\
[ "$1" = exec ] && shift
while [ "${1#-}" != "$1" ]; do [ "$1" != --bind ] || shift; shift; done
export INSIDE=$1; shift
exec "$@"
"""


@pytest.fixture
def image(here: Weigh, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an image, and an apptainer on PATH."""
    program = write_program(here.folder / "bin/apptainer", APPTAINER)
    monkeypatch.setenv("PATH", str(program.parent), ":")
    image = here.folder / "my image.sif"
    image.touch()
    return image


def fake_torch(here: Weigh, monkeypatch: pytest.MonkeyPatch, *, sees: bool) -> None:
    """Put a torch where python finds it, which sees GPUs or not."""
    folder = here.folder / "modules"
    folder.mkdir(exist_ok=True)
    text = f"class cuda:\n    is_available = staticmethod(lambda: {sees})\n"
    (folder / "torch.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def words_of(here: Weigh, job: str) -> str:
    failure = here.status(job)["failures"][0]
    return f"{failure['reason']} {failure['words']}"


def test_every_task_runs_inside_the_container_or_shows_why_not(
    here: Weigh, image: Path
) -> None:
    tasks = ("echo $INSIDE", "printenv INSIDE", "bash -c 'exit 7'", "no-such-program")
    setup = ("--setup", f"container:{image}")

    job = here.submit(here.plan(*tasks), *setup)

    assert here.finish(job) == {"COMPLETED": 2, "FAILED": 2}
    assert [here("logs", f"{job}_{n}")[1] for n in (1, 2)] == [f"{image}\n"] * 2
    first, second = here.status(job)["failures"]
    assert "7" in first["reason"]
    assert "no-such-program" in f"{second['reason']} {second['words']}"
    job = here.submit(here.plan("no-such-program", name="q"), *setup)
    assert here.finish(job) == {"FAILED": 1}
    assert "not found in the container: no-such-program" in words_of(here, job)


def test_a_node_without_containers_is_reported(here: Weigh) -> None:
    image = here.folder / "a.sif"
    image.touch()

    job = here.submit(here.plan("true"), "--setup", f"container:{image}")

    assert here.finish(job) == {"FAILED": 1}
    assert "neither apptainer nor singularity" in words_of(here, job)


def test_a_job_has_an_environment_of_each_kind_and_any_number_of_lines(
    here: Weigh,
) -> None:
    words = ("submit", here.plan("true"), "--on", "local", "--dry-run")
    both = ("--setup", "conda:rl", "--setup", "module:cuda/12", "--setup", "A=1")

    _, out, _ = here(*words, *both, "--setup", "B=conda:2")

    order = ("module load cuda/12", "conda activate rl", "\nA=1\n", "\nB=conda:2\n")
    places = [out.index(line) for line in order]
    assert places == sorted(places)


def test_an_environment_of_conda_that_is_not_here_is_noted(
    here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the lint decides, whose tests have further cases."""
    monkeypatch.setenv("HOME", str(here.folder))
    for name in ("CONDA_EXE", "CONDA_ENVS_PATH", "CONDA_ENVS_DIRS", "CONDARC"):
        monkeypatch.delenv(name, raising=False)
    (here.folder / "conda/envs/rl").mkdir(parents=True)
    program = write_program(here.folder / "conda/bin/conda", "")
    monkeypatch.setenv("PATH", str(program.parent), ":")
    words = ("submit", here.plan("true"), "--on", "local", "--dry-run", "--setup")

    def noted(*more: str) -> bool:
        said = " ".join(here(*words, *more)[2].split())
        return "conda has no such environment here" in said

    assert [noted(f"conda:{name}") for name in ("rl", "nope")] == [False, True]
    # it may be the module's
    assert not noted("module:anaconda", "--setup", "conda:nope")


def test_only_a_job_with_a_gpu_sees_it_in_apptainer_which_runs_all_without_steps(
    here: Weigh, image: Path
) -> None:
    (here.folder / "weigh.toml").write_text(PYXIS_HERE)
    words = ("submit", here.plan("true"), "--setup", f"container:{image}", "--dry-run")

    with_one, without = here(*words, "--gpus", "1")[1], here(*words)[1]

    assert ("exec --nv" in with_one, "exec --nv" in without) == (True, False)
    assert "command -v apptainer" in without


# Pyxis as far as a job needs it: flags of containers are noted, and start none
PYXIS = """\
[ "$1" != --help ] || {{ echo "  --container-image=IMAGE|PATH"; exit; }}
for word; do
  case $word in
    --container-image=*) export INSIDE=${{word#*=}} ;;
    --container-*) echo "$word" >>{flags} ;;
    *) words+=("$word") ;;
  esac
done
exec {srun} "${{words[@]}}"
"""


def with_pyxis(real: Weigh, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set Pyxis up, and return the file with the flags that it got."""
    (real.folder / "weigh.toml").write_text(PYXIS_HERE)
    flags = real.folder / "flags"
    text = PYXIS.format(flags=flags, srun=shutil.which("srun"))
    program = write_program(real.folder / "bin/srun", text)
    monkeypatch.setenv("PATH", str(program.parent), ":")
    (real.folder / "my.sqsh").touch()
    return flags


@pytest.mark.slurm
def test_a_task_is_a_step_of_pyxis_with_all_that_its_element_has(
    real: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = with_pyxis(real, monkeypatch)
    tasks = ("echo $INSIDE $SLURM_STEP_NUM_TASKS $SLURM_CPUS_PER_TASK", "exit 7")
    words = ("--setup", "container:my.sqsh", "--cpus", "2")

    job = real.submit(real.plan(*tasks), *words)

    assert real.finish(job) == {"COMPLETED": 1, "FAILED": 1}
    assert real("logs", f"{job}_1")[1] == f"{real.folder}/my.sqsh 1 2\n"
    assert "exit code 7" in words_of(real, job)
    assert set(flags.read_text().splitlines()) == {
        "--container-mount-home",
        f"--container-mounts={real.folder}:{real.folder}",
        f"--container-workdir={real.folder}",
    }


@pytest.mark.slurm
def test_staged_inputs_are_mounted_into_the_container(
    real: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = with_pyxis(real, monkeypatch)
    (real.folder / "data").write_text("hello\n")
    words = ("--setup", "container:my.sqsh", "--stage-in", "data")

    job = real.submit(real.plan("tr a-z A-Z <data >out"), *words)

    assert real.finish(job) == {"COMPLETED": 1}
    assert (real.folder / "out").read_text() == "HELLO\n"
    mounts = next(line for line in flags.read_text().split() if "," in line)
    own, shared = (mount.split(":") for mount in mounts.split("=")[1].split(","))
    assert own[0] == own[1]
    assert shared[0] == shared[1]
    assert os.path.dirname(own[0]) == shared[0]


def test_only_training_needs_the_gpu_that_was_requested(
    here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program without torch runs where torch sees no GPU, and where it is missing."""
    trains = 'python3 -c \'import torch; open("trained", "w")\''
    (here.folder / "jax_only.py").write_text("open('ran', 'w')\n")
    without = "python3 -S -c 'import sys; sys.modules.get(\"torch\")'"

    def ends(task: str) -> tuple[str, dict[str, int]]:
        job = here.submit(
            here.plan(task, words=("--replace",)), "--gpus", "1", "--again"
        )
        return job, here.finish(job)

    assert ends(without)[1] == {"COMPLETED": 1}
    fake_torch(here, monkeypatch, sees=False)
    job, states = ends(trains)
    assert states == {"FAILED": 1}
    assert "torch sees no GPU" in words_of(here, job)
    assert not (here.folder / "trained").exists()
    job, states = ends("python3 jax_only.py")
    assert states == {"COMPLETED": 1}
    logs = (here.folder / ".weigh" / "local" / job).glob("*out*")
    printed = "".join(path.read_text() for path in logs)
    assert "torch sees no GPU" in printed
    assert "no task is known to import torch: they run" in printed
    fake_torch(here, monkeypatch, sees=True)
    assert ends(trains)[1] == {"COMPLETED": 1}


def test_images_and_imports_are_read_as_reviewed(tmp_path: Path) -> None:
    for name, text in {
        "train.py": "import json\nfrom torch import nn\n",
        "net/model.py": "import numpy as np; import torch\n",
        "run.sh": "#!/bin/bash\npython3 train.py\n",
        "other.py": "import run, other\n# import torch\ntorch = None\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def images(typed: str) -> str:
        image = f"docker://{typed}"
        return " ".join(image_as_run(image, is_pyxis=one) for one in (True, False))

    def needs_torch(line: str) -> str:
        plan: Any = SimpleNamespace(kinds=[SimpleNamespace(example=line)])
        # looked for only where a GPU is requested
        assert not imports_torch(plan, str(tmp_path), JobRequest(gpus=0))
        found = imports_torch(plan, str(tmp_path), JobRequest(gpus=1))
        return "yes" if found else "no"

    asked = {
        "image as Pyxis and Apptainer run it": images,
        "torch is imported by": needs_torch,
    }
    check_answers(Path(__file__).with_name("environments.texts"), asked)
