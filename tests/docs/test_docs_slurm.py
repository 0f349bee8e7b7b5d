"""The blocks that need a Slurm happen as shown on a real one (ci/slurm-up.sh)."""

from pathlib import Path

import pytest
from doc_pages import blocks
from doc_walk import walk
from test_docs_run import WRITTEN

# the last block of each page that needs one: what follows is walked without
LAST = {
    page: one
    for page in WRITTEN
    for one in blocks(page)
    if "slurm" in one.words.get("needs", "").split()
}


@pytest.mark.slurm
@pytest.mark.parametrize("page", LAST, ids=lambda page: page.name)
@pytest.mark.alone
def test_what_a_page_shows_of_a_cluster_is_what_happens(
    page: Path, tmp_path: Path, slurm: dict[str, str]
) -> None:
    walk(page, tmp_path, slurm, LAST[page])
