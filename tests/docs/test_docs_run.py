"""What the pages show happens when it is done: see doc_walk."""

import sys
from pathlib import Path

import pytest
from doc_pages import BLOCKS, ROOT, WRITTEN, blocks
from doc_walk import NOT_RUN, left_out, walk
from run_captured import run_captured

RUN = {"console", "bash", "python"}
LANGUAGES = RUN | {"java", "toml", "text"}
# the last block of each page that needs a Slurm: what follows is walked without
LAST_ON_SLURM = {
    one.page: one for one in BLOCKS if "slurm" in one.words.get("needs", "").split()
}
# of frameworks that need not be here
LOOSE = """\
[mypy]
strict = True
[mypy-transformers.*,lightning.*,torch.*,hydra.*,optuna.*,mlflow.*,IPython.*]
ignore_missing_imports = True
"""


def runs(page: Path) -> bool:
    return any(one.language in RUN and NOT_RUN not in one.words for one in blocks(page))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name) for page in WRITTEN if runs(page)],
)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    walk(page, tmp_path)


@pytest.mark.slurm
@pytest.mark.parametrize("page", LAST_ON_SLURM, ids=lambda page: page.name)
@pytest.mark.alone
def test_what_a_page_shows_of_a_cluster_is_what_happens(
    page: Path, tmp_path: Path, slurm: dict[str, str]
) -> None:
    walk(page, tmp_path, slurm, LAST_ON_SLURM[page])


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


@pytest.mark.integrations
def test_python_on_the_pages_passes_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install '.[dev]'")
    files = []
    for number, block in enumerate(one for one in BLOCKS if one.language == "python"):
        given = block.words.get("given", "").split()
        names = "".join(f"{name}: Any\n" for name in given)
        head = f"from typing import Any\n{names}" if given else ""
        files.append(tmp_path / f"{block.page.stem}_{block.line}_{number}.py")
        files[-1].write_text(head + block.text)
    (tmp_path / "mypy.ini").write_text(LOOSE)
    options = ("--config-file", "mypy.ini", "--cache-dir", ROOT / ".mypy_cache/pages")
    words = ("-m", "mypy", *map(str, (*options, *files)))
    checked = run_captured([sys.executable, *words], cwd=tmp_path)
    assert files
    assert checked.returncode == 0, checked.stdout + checked.stderr
