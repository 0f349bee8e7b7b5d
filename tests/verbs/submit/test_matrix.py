"""The table of the schedulers that weigh was tested on."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_has_a_row_for_every_version() -> None:
    matrix = runpy.run_path(str(ROOT / "tools/matrix.py"))
    page = (ROOT / "docs/schedulers.md").read_text()

    assert matrix["VERSIONS"]
    for version in matrix["VERSIONS"]:
        assert f"\n| {matrix['title'](version)} | " in page
