"""Wide letters (Chinese, Japanese, Korean) take two columns each."""

from pathlib import Path

import pytest
from called_weigh import called_apart, called_here, work_alone_in

from weigh.render.columns import (
    TableColumn,
    table_lines,
    wrap_by_columns,
)
from weigh.render.printable import shortened_text, width_of
from weigh.render.request_lines import folded_lines

WIDE = "数据处理任务" * 12
WORDS = " ".join(["数据处理", "tag", "ﾃｷｽﾄ", "한국어"] * 20)


@pytest.mark.parametrize("width", [20, 79, 80])
def test_text_is_cut_and_folded_by_columns(width: int) -> None:
    assert width_of(shortened_text(WIDE, width)) <= width
    assert max(map(width_of, wrap_by_columns(WORDS, width))) <= width
    assert max(map(width_of, folded_lines(WORDS, width))) <= width
    assert " ".join(folded_lines(WORDS, width)).split() == WORDS.split()


def test_a_table_of_columns_that_cannot_shrink_is_cut() -> None:
    columns = (TableColumn(WIDE, lambda _: "a"), TableColumn("b", str))
    rows = [*table_lines([WORDS], columns, 80)]
    assert [width_of(row) <= 80 for row in rows] == [True, True]


def test_no_line_is_wider_than_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # a run waits for all children of its process, some of which are this one's
    run = ("run", "--label", WIDE, "--", "/bin/true", WIDE)
    called_apart(tmp_path, *run, WEIGH_DIR=str(tmp_path / ".weigh"))
    work_alone_in(tmp_path, monkeypatch)
    weigh = called_here(capfd)
    for words in (
        ("records",),
        ("records", "show", "last"),
        ("report", "last"),
        ("top",),
        ("sweep", "n=1,2", "--dry-run", "--", "echo", WIDE, "{n}"),
    ):
        code, out, err = weigh(*words)
        assert (code, err) == (0, "")
        assert max(map(width_of, out.splitlines())) <= 80, out
