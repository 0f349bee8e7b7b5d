"""The mark ``weigh(max_memory=...)``: pytest runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest, weigh

@pytest.fixture
def large():
    return bytearray(b"x") * (100 << 20)

@pytest.mark.weigh(max_memory="50MiB")
def test_small():
    bytearray(b"x") * (10 << 20)

@pytest.mark.weigh(max_memory="50MiB")
def test_fixtures_do_not_count(large):
    pass

@pytest.mark.weigh(max_memory="50MiB")
def test_large():
    bytearray(b"x") * (90 << 20)

@pytest.mark.weigh(max_memory="50MiB")
def test_after_a_large_one():
    bytearray(b"x") * (10 << 20)

@pytest.mark.weigh(max_memory="50MiB")
def test_own_failure():
    assert 1 == 2

def test_not_marked():
    bytearray(b"x") * (90 << 20)
"""


def pytest_on(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "weigh.hooks.pytest", "-rA", "-q"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="exact peaks need /proc")
def test_a_test_above_its_limit_fails_and_no_other(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, TESTS)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 2, done.stdout
    assert "test_large - Failed: the test took " in failed[0]
    assert "test_own_failure - assert 1 == 2" in failed[1]
    assert "4 passed" in done.stdout


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('max_memory="200"', "max_memory: "),
        ('"200MiB"', 'write the mark as @pytest.mark.weigh(max_memory="200MiB")'),
        ("max_memory=200", "write the mark as"),
        ('max_mem="200MiB"', "write the mark as"),
        ("", "write the mark as"),
    ],
)
def test_an_invalid_mark_is_named_before_any_test(
    tmp_path: Path, mark: str, words: str
) -> None:
    text = f"import pytest\n@pytest.mark.weigh({mark})\ndef test_it():\n    pass\n"
    done = pytest_on(tmp_path, text)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert f"test_it.py::test_it: {words}" in done.stderr
