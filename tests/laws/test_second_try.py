"""ci/pytest.sh tries again, alone, what failed beside others, and hides nothing."""

import os
import sys
from pathlib import Path

import pytest
from run_captured import CapturedRun, run_captured

SCRIPT = Path(__file__).parents[2] / "ci" / "pytest.sh"
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = ("-p", "forked_workers")
LEFT = 9  # the exit code where tests passed and left processes
BUSY = """
import os
from pathlib import Path

import pytest

@pytest.mark.together("of some")
def test_once():
    assert "PYTEST_FORKED_WORKER" not in os.environ  # fails beside others

def test_good():
    pass
"""
WRONG = """
import pytest

@pytest.mark.together("of some")
@pytest.mark.parametrize("x", range({}))
def test_wrong(x):
    assert not x + 1
"""


LEAVES = """
import subprocess

def test_leaves():
    subprocess.run(["setsid", "-f", "sleep", "4711"], check=True)
"""


def run(folder: Path, text: str) -> CapturedRun:
    (folder / "test_it.py").write_text(text)
    # other plugins take longer to import than these tests to run
    own = {"PYTHONPATH": str(SUPPORT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env = os.environ | own
    env.pop("PYTEST_FORKED_WORKER", None)  # of these tests
    return run_captured(
        [SCRIPT, sys.executable, "-q", "-n", "1", *PLUGINS, "test_it.py"],
        cwd=folder,
        env=env,
    )


def test_what_passes_only_alone_is_named_and_fails_nothing(tmp_path: Path) -> None:
    """So does a process that ends by itself: it is waited for."""
    done = run(tmp_path, BUSY + LEAVES.replace("4711", "2"))
    assert (done.returncode, "sleep" in done.stderr) == (0, False)
    assert "    test_it.py::test_once\n" in done.stdout
    assert "passed alone only" in done.stdout


def test_what_fails_alone_too_fails_also_in_a_group(tmp_path: Path) -> None:
    done = run(tmp_path, BUSY.replace("test_good", "test_twice") + WRONG.format(1))
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.integrations
def test_many_failures_are_no_matter_of_chance(tmp_path: Path) -> None:
    done = run(tmp_path, WRONG.format(6))
    assert done.returncode == 1
    assert "6 tests failed, too many to try again alone" in done.stdout


def test_a_process_that_is_left_is_named_with_its_test_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_LEFTOVERS_PATIENCE", "0")
    done = run(tmp_path, LEAVES)
    assert done.returncode == LEFT
    (line,) = [one for one in done.stderr.splitlines() if "sleep 4711" in one]
    assert "(test_it.py::test_leaves (call))" in line
    assert not Path(f"/proc/{line.split()[0]}").exists()
