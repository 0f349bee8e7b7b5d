"""The table of the schedulers that weigh was tested on."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
JUNIT = """\
<testsuites><testsuite>
<testcase name="one"/>
<testcase name="two[a|b]"><skipped message="no GPU"/></testcase>
<testcase name="three"><failure message="assert 1 == 2&#10;more"/></testcase>
<testcase name="four"><error message=""/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tools/matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "matrix", module)
    spec.loader.exec_module(module)
    return module


def test_rows_are_written_as_tested_and_others_stay(
    matrix: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "schedulers.md"
    page.write_text(f"before\n\n{matrix.BEGIN}{matrix.END}\nafter\n")
    monkeypatch.setattr(matrix, "PAGE", page)
    (tmp_path / "seen.xml").write_text(JUNIT)
    first, second = matrix.VERSIONS[:2]

    matrix.write({matrix.title(second): matrix.missing(second, "cannot get it")})
    result = matrix.read(first, "Debian", tmp_path / "seen.xml")
    for _ in range(2):
        matrix.write({matrix.title(first): result})

    assert not result.passed
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    rows = [line.split("|")[1:7] for line in text.splitlines() if line[:2] == "| "]
    first_row = [one.strip() for one in rows[1]]
    assert first_row == ["Slurm 20.11", "Debian", "4", "1", "1", "2"]
    assert rows[2][0].strip() == "Slurm 22.05"
    assert "- Slurm 22.05, not available: cannot get it\n" in text
    assert text.count("- Slurm 20.11, 1 skipped: no GPU\n") == 1
    assert "- Slurm 20.11, failed: `three`: assert 1 == 2\n" in text


def test_the_page_has_a_row_for_every_version(matrix: ModuleType) -> None:
    page = (ROOT / "docs/schedulers.md").read_text()

    for version in matrix.VERSIONS:
        assert f"\n| {matrix.title(version)} | " in page
