"""What the pages show happens when it is done: see doc_walk."""

from pathlib import Path

import pytest
from doc_pages import GENERATED, PAGES, WALKS, blocks
from doc_walk import NOT_RUN, left_out, walk
from run_captured import run_captured

RUN = {"console", "bash", "python"}
LANGUAGES = RUN | {"java", "toml", "text"}
WRITTEN = [
    page for page in PAGES if page not in WALKS and GENERATED not in page.parents
]
BLOCKS = [one for page in WRITTEN for one in blocks(page)]


def runs(page: Path) -> bool:
    return any(one.language in RUN and NOT_RUN not in one.words for one in blocks(page))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name) for page in WRITTEN if runs(page)],
)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    walk(page, tmp_path)


# not skipped after its walk: what a user's part skips, root walks again
@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_no_block_of_a_page_is_left_out_for_what_is_missing(page: Path) -> None:
    if needed := left_out(page, {"PATH": "/usr/bin:/bin"}):
        pytest.skip(", ".join(needed))


def test_a_block_states_what_it_is_and_why_it_is_not_run() -> None:
    for one in BLOCKS:
        assert one.fenced, f"{one}: ```console, ```bash, ```python, ```text"
        assert one.language in LANGUAGES, one
        shown = one.language == "text" and not {"shown by", "file"} & {*one.words}
        if shown or NOT_RUN in one.words:
            assert one.words.get(NOT_RUN), f"{one}: say why: <!-- not run: why -->"


def test_bash_understands_what_stands_for_it() -> None:
    for one in BLOCKS:
        if one.language == "bash":
            read = run_captured(["bash", "-n"], input=one.text)
            assert (read.returncode, read.stderr) == (0, ""), one


def test_output_is_at_most_80_columns_wide() -> None:
    wide = [
        f"{block}: {line}"
        for block in BLOCKS
        if block.language == "console"
        for line in block.text.splitlines()
        if len(line) > 80 and not line.startswith("$ ")
    ]

    assert wide == []
