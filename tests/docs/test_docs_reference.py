"""What is generated from the code is what the code would generate now."""

import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT

pytest.importorskip("click_man", reason="click-man is missing: pip install '.[dev]'")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder with all that tools/reference.py writes."""
    folder = tmp_path_factory.mktemp("generated")
    tool = str(ROOT / "tools" / "reference.py")
    subprocess.run([sys.executable, tool, folder], check=True, timeout=60)
    return folder


def names(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def test_the_reference_man_pages_and_completion_are_not_stale(generated: Path) -> None:
    stale = [
        name
        for name in names(generated)
        if not (ROOT / name).exists()
        or (ROOT / name).read_bytes() != (generated / name).read_bytes()
    ]

    assert stale == [], "make docs writes them again"


def test_no_man_page_is_left_of_a_verb_that_is_gone(generated: Path) -> None:
    there = {f"share/{name}" for name in names(ROOT / "share")}

    assert there <= set(names(generated))


@pytest.mark.parametrize("name", ["reference.py", "zipapp.py"])
def test_a_tool_that_is_asked_for_help_writes_nothing(
    tmp_path: Path, name: str
) -> None:
    command = [sys.executable, str(ROOT / "tools" / name), "--help"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert f"tools/{name} F" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
