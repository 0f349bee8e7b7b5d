"""Wide letters (Chinese, Japanese, Korean) take two columns each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weigh.render.columns import fill_by_columns, wrap_by_columns
from weigh.render.printable import shortened_text, width_of
from weigh.render.request_lines import folded_lines

WIDE = "数据处理任务" * 12
WORDS = " ".join(["数据处理", "tag", "ﾃｷｽﾄ", "한국어"] * 20)


@pytest.mark.parametrize("width", [20, 79, 80])
def test_text_is_cut_and_folded_by_columns(width: int) -> None:
    assert width_of(shortened_text(WIDE, width)) <= width
    assert max(map(width_of, wrap_by_columns(WORDS, width))) <= width
    assert max(map(width_of, folded_lines(WORDS, width))) <= width
    assert fill_by_columns(WORDS, width).split() == WORDS.split()


@pytest.mark.parametrize(
    "words",
    [
        ("records",),
        ("records", "show", "last"),
        ("report", "last"),
        ("top",),
        ("sweep", "n=1,2", "--dry-run", "--", "echo", WIDE, "{n}"),
    ],
)
def test_no_line_is_wider_than_80_columns(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    def weigh(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "weigh", *words],
            cwd=tmp_path,
            env={**os.environ, "WEIGH_DIR": str(tmp_path / "store")},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout + done.stderr

    weigh("run", "--label", WIDE, "--", "true", WIDE)
    said = weigh(*words)
    assert max(map(width_of, said.splitlines())) <= 80, said
