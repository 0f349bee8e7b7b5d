"""Lines that bash runs as they are meant: no rule has anything against them."""

from pathlib import Path

import pytest
from some_scripts import CWD, sbatch
from transcript import named_texts

from weigh.schedulers.shell import read_body

NAMES = ("sort", "sort -u", "tee", "grep", "b", "3", "list.txt", "sub", "x", "cat")
MISSING = {f"{CWD}/{name}": "missing" for name in NAMES}
BODIES = named_texts(Path(__file__).with_name("good_bash.texts"))


REQUEST = ("--mem=1G", "--time=10", "--array=1-4%2", "--output=o_%a.log")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_nothing_is_found_in_good_bash(body: str) -> None:
    assert not sbatch(*REQUEST, body=body, paths=MISSING)


@pytest.mark.parametrize(
    "text", ["if true; then", "a $(", "x=(", "done", "a ) b", "'", "f() { a", "$(" * 90]
)
def test_unclear_shell_has_no_findings(text: str) -> None:
    assert not read_body(f"a > b\n{text}\n").commands
