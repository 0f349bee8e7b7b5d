"""The whole way as an ordinary user, by the command line alone."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from following import until
from run_captured import run_captured

from weigh.schedulers import KINDS

USER = os.environ.get("WEIGH_RIG_USER", "researcher")
SOURCES = Path(__file__).parents[3] / "src"
Call = Callable[..., Any]
# a script shows Slurm's way of it
IN_PLANS = [
    pytest.param(
        name,
        marks=[
            getattr(pytest.mark, name),
            *([pytest.mark.integrations] if name == "slurm" else []),
        ],
    )
    for name in KINDS
]


def python_for_all() -> tuple[str, str]:
    """Return a Python that any user may run, and the PYTHONPATH that makes it ours."""
    path = ":".join([str(SOURCES), str(Path(msgspec.__file__).parents[1])])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/python{version}"):
        tried = as_user(["env", f"PYTHONPATH={path}", candidate, "-c", "import weigh"])
        if tried.returncode == 0:
            return candidate, path
    pytest.skip(f"no Python that {USER} may run")


def as_user(
    command: list[str], env: dict[str, str] | None = None, cwd: str = "/"
) -> subprocess.CompletedProcess[str]:
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
    return subprocess.run(
        [*user, *command],
        env={"PATH": os.environ["PATH"], **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def home() -> Iterator[Path]:
    """Make a folder that the user owns; pytest's own are root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="weigh-user-"))
    shutil.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


def called_by_user(rig: dict[str, str], home: Path) -> tuple[Call, str]:
    """Return weigh as the user calls it in *home*, and the PYTHONPATH of its jobs."""
    python, path = python_for_all()
    env = {**rig, "PYTHONPATH": path, "HOME": str(home), "WEIGH_POLL": "0s"}

    def weigh(*argv: str, code: int = 0) -> str:
        ran = as_user([python, "-m", "weigh", *argv], env, str(home))
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    return weigh, path


@pytest.mark.slurm
def test_an_ordinary_user_submits_a_script_and_sees_no_job_of_others(
    slurm: dict[str, str], request: pytest.FixtureRequest
) -> None:
    home: Path = request.getfixturevalue("home")  # the rig makes its owner
    weigh, _ = called_by_user(slurm, home)

    directives = "#!/bin/bash\n#SBATCH --mem=100M --time=5\n"
    (home / "job.sh").write_text(f"{directives}id -un >who\n")
    weigh("submit", "job.sh")
    until(lambda: "1 done" in weigh("status", "job.sh"))
    assert (home / "who").read_text() == f"{USER}\n"

    as_root: dict[str, Any] = {"env": {**os.environ, **slurm}, "cwd": home}
    by_root = run_captured(
        ["sbatch", "--parsable", "-H", "job.sh"], check=True, **as_root
    ).stdout.strip()
    refused = weigh("cancel", by_root, code=2)
    assert f"job {by_root} is root's, not yours" in refused
    assert "1 waiting" in weigh("report", by_root)
    run_captured(["scancel", by_root], check=True, **as_root)


@pytest.mark.parametrize("name", IN_PLANS)
def test_an_ordinary_user_submits_follows_and_resumes(
    name: str, request: pytest.FixtureRequest
) -> None:
    rig = request.getfixturevalue(name)
    home: Path = request.getfixturevalue("home")
    weigh, path = called_by_user(rig, home)

    lines = "id -un >who; echo >>ran\necho >>ran; [ -e flag ] || ! touch flag\n"
    (home / "t.txt").write_text(lines)
    weigh("plan", "t.txt", "--memory", "100M", "--cpus", "1", "--time", "5m")
    setup = ["--setup", f"export PYTHONPATH={path}"]
    weigh("submit", "plan/t", "--on", name, *setup)
    assert "2 tasks: 1 done, 1 failed" in weigh("status", "last", "--wait", code=1)

    weigh("resume")

    assert "2 tasks: 2 done" in weigh("status", "last", "--wait")
    assert (home / "who").read_text() == f"{USER}\n"
    assert (home / "ran").read_text() == "\n" * 3  # only what failed ran again
    assert (home / "plan/t/job.sh").owner() == USER
