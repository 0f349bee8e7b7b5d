"""What is generated from the code is what the code would generate now."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip(
    "click_man", reason="click-man is not installed: pip install '.[dev]'"
)

# click-man asks click for what click 9 will not have
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    """Load one of the programs in tools/, which are no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_reference_man_pages_and_completion_are_not_stale() -> None:
    stale = [
        path
        for path, text in tool("reference").files()
        if not (ROOT / path).exists() or (ROOT / path).read_text("utf-8") != text
    ]

    assert stale == [], "make docs writes them again"


def test_no_man_page_is_left_of_a_verb_that_is_gone() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("share/man/*/*")}

    assert there <= {path for path, _ in tool("reference").files()}
