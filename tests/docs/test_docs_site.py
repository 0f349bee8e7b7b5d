"""The pages build as a site, with every link and anchor in place."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT
from run_captured import run_captured


@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None,
    reason="zensical is not installed: pip install '.[dev]'",
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    built = run_captured(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=tmp_path
    )
    said = built.stdout + built.stderr

    assert built.returncode == 0, said
    assert "No issues found" in said
    assert (tmp_path / "site" / "index.html").is_file()


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = (ROOT / "docs").rglob("*.md")

    assert [
        str(page.relative_to(ROOT / "docs"))
        for page in pages
        if f": {page.relative_to(ROOT / 'docs')}\n" not in listed
    ] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files_that_are_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)

    assert [
        target
        for target in targets
        if not target.startswith("https://") and not (ROOT / target).exists()
    ] == []
