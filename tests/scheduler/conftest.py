"""Real schedulers for the tests: brought up once a session where that can be done."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from following import Weigh

CI = Path(__file__).parents[2] / "ci"
USUALLY_IMPOSSIBLE = 3  # the exit code of a rig that lacks root or packages


def bring_up(name: str) -> Iterator[dict[str, str]]:
    """Start a rig, or take one that is up; give the environment that it needs."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"a real {name} needs root on Debian")
    started = subprocess.run(
        [CI / f"{name}-up.sh"], capture_output=True, text=True, timeout=300, check=False
    )
    if started.returncode == USUALLY_IMPOSSIBLE:
        pytest.skip(f"no real {name}: {started.stderr.strip()}")
    try:
        assert started.returncode == 0, started.stderr
        lines = [line.removeprefix("export ") for line in started.stdout.splitlines()]
        yield dict(line.split("=", 1) for line in lines)
    finally:
        subprocess.run([CI / f"{name}-down.sh"], timeout=60, check=False)


@pytest.fixture(scope="session")
def slurm() -> Iterator[dict[str, str]]:
    yield from bring_up("slurm")


@pytest.fixture(scope="session")
def gridengine() -> Iterator[dict[str, str]]:
    yield from bring_up("gridengine")


@pytest.fixture(scope="session")
def local() -> dict[str, str]:
    return {}


@pytest.fixture
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Weigh:
    """``weigh`` in a folder of its own, which asks a scheduler whenever it is asked."""
    for name in list(os.environ):
        if name.startswith(("WEIGH_", "SLURM_")) and not name.startswith("WEIGH_RIG"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("WEIGH_POLL", "0s")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Weigh(folder, capsys)


@pytest.fixture(
    params=[
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("gridengine", marks=pytest.mark.gridengine),
        "local",
    ]
)
def weigh(
    request: pytest.FixtureRequest, here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> Weigh:
    """``weigh`` with each scheduler in turn."""
    here.scheduler = request.param
    for key, value in request.getfixturevalue(here.scheduler).items():
        monkeypatch.setenv(key, value)
    return here
