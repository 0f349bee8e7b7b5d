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
def matrix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tools/matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "matrix", module)
    spec.loader.exec_module(module)
    page = tmp_path / "schedulers.md"
    page.write_text(f"before\n\n{module.BEGIN}{module.END}\nafter\n")
    monkeypatch.setattr(module, "PAGE", page)
    return module


def rows(matrix: ModuleType) -> list[list[str]]:
    lines = [line for line in matrix.PAGE.read_text().splitlines() if line[:2] == "| "]
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in lines[1:]
    ]


def test_an_error_is_counted_as_a_failure(matrix: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "seen.xml").write_text(JUNIT)

    result = matrix.read(matrix.VERSIONS[0], "Debian", tmp_path / "seen.xml")
    matrix.write({"Slurm 20.11": result})

    assert not result.passed
    assert rows(matrix)[0][:6] == ["Slurm 20.11", "Debian", "4", "1", "1", "2"]
    assert "- Slurm 20.11, 1 skipped: no GPU\n" in matrix.PAGE.read_text()
    assert "- Slurm 20.11, failed: `three`: assert 1 == 2\n" in matrix.PAGE.read_text()


def test_rows_of_versions_that_were_not_run_stay(matrix: ModuleType) -> None:
    first, second = matrix.VERSIONS[:2]
    absent = matrix.missing(second, "cannot get it")
    matrix.write({matrix.title(second): absent})
    matrix.write({matrix.title(first): matrix.missing(first, "gone")})
    matrix.write({matrix.title(first): matrix.missing(first, "gone again")})

    assert [row[0] for row in rows(matrix)] == ["Slurm 20.11", "Slurm 22.05"]
    text = matrix.PAGE.read_text()
    assert "- Slurm 22.05, not available: cannot get it\n" in text
    assert text.count("gone") == 1
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_the_page_has_a_row_for_every_version(matrix: ModuleType) -> None:
    page = (ROOT / "docs/schedulers.md").read_text()

    for version in matrix.VERSIONS:
        assert f"\n| {matrix.title(version)} | " in page
