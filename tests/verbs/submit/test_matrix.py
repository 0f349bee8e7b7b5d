"""The table of the schedulers that weigh was tested on."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tools/matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "matrix", module)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_a_row_for_every_version(matrix: ModuleType) -> None:
    page = (ROOT / "docs/schedulers.md").read_text()

    for version in matrix.VERSIONS:
        assert f"\n| {matrix.title(version)} | " in page
