"""The walks of CONTRIBUTING.md name files and functions that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = [
    file
    for file in re.findall(r"`((?:src|tests|ci)/[\w/]+\.\w+)`", TEXT)
    if "NAME" not in file
]
STEP = re.compile(r"`(src/weigh/[\w/]+\.py)`,\s+`(\w+)`")


@pytest.mark.parametrize(("file", "name"), STEP.findall(TEXT))
def test_a_step_of_the_walk_names_a_function_of_its_file(file: str, name: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")

    assert re.search(rf"^ *(?:def|class) {name}\b", source, re.MULTILINE)


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_named_is_there(file: str) -> None:
    assert (ROOT / file).exists()
