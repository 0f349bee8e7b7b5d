"""What holds for every test; real schedulers, once a session where that can be done."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from weigh.schedulers import KINDS

CI = Path(__file__).parents[1] / "ci"
USUALLY_IMPOSSIBLE = 3  # the exit code of a rig that lacks root or packages

# a busy machine is no fault of the code's: examples may take their time
settings.register_profile("weigh", deadline=None)
settings.load_profile("weigh")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of each scheduler of the table."""
    for name, kind in KINDS.items():
        line = f"{name}: needs a real {kind.title}"
        config.addinivalue_line("markers", line)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of one real scheduler in one process, so that each starts once."""
    for item in items:
        used = {*getattr(item, "fixturenames", ())}
        callspec = getattr(item, "callspec", None)
        if callspec is not None:
            used |= {
                value for value in callspec.params.values() if isinstance(value, str)
            }
        for rig in KINDS:
            if rig in used or item.get_closest_marker(rig):
                item.add_marker(pytest.mark.xdist_group(rig))


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


def rig_fixture(name: str) -> object:
    """Return the fixture that brings up a real scheduler, named as in the table."""

    @pytest.fixture(scope="session", name=name)
    def rig() -> Iterator[dict[str, str]]:
        yield from bring_up(name)

    return rig


globals().update({f"rig_{name}": rig_fixture(name) for name in KINDS})
