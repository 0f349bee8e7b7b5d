"""``weigh`` as these tests call it, with each scheduler in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from following import Weigh
from rigs import RIGS, acting_as


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
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("WEIGH_POLL", "0s")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Weigh(folder, capsys)


@pytest.fixture
def real(here: Weigh, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Weigh:
    """``weigh`` with a real Slurm."""
    return here.with_cluster("slurm", slurm, monkeypatch)


@pytest.fixture
def cell(
    here: Weigh, gridengine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Weigh:
    """``weigh`` with a real Grid Engine."""
    return here.with_cluster("gridengine", gridengine, monkeypatch)


@pytest.fixture(params=[*RIGS, "local"])
def weigh(
    request: pytest.FixtureRequest, here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Weigh]:
    """``weigh`` with each scheduler in turn."""
    env: dict[str, str] = request.getfixturevalue(request.param)
    here.with_cluster(request.param, env, monkeypatch)
    with acting_as(env.get("WEIGH_RIG_AS"), here.folder.parent):
        yield here
