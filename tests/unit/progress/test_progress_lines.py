from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weigh.progress.parser import ShownText, shown_pieces
from weigh.progress.reader import LONGEST, LineSplitter, OutputLine


def texts(lines: list[OutputLine]) -> list[bytes]:
    return [line.text for line in lines]


def test_newlines_returns_and_backspaces_end_a_line() -> None:
    assert texts(LineSplitter().feed(b"a\nb\rc\b\b\bd\r\ne", 0)) == [
        b"a",
        b"b",
        b"c",
        b"d",
    ]


def test_a_line_without_an_end_waits() -> None:
    lines = LineSplitter()
    assert lines.feed(b"step 1 of 40", 0) == []
    assert lines.unended() == (b"step 1 of 40", 0)
    assert lines.feed(b"00\n", 1) == [(b"step 1 of 4000", 1)]


def test_the_time_of_a_line_is_that_of_its_text_not_of_its_end() -> None:
    lines = LineSplitter()
    lines.feed(b"50%", 1)
    assert lines.feed(b"\r51%", 9) == [(b"50%", 1)]


def test_of_a_flood_the_begin_and_the_end_are_looked_at() -> None:
    lines, flood = LineSplitter(), b"".join(b"%07d\n" % n for n in range(10_000))
    seen = texts(lines.feed(flood, 0)) + texts(lines.feed(b"x\n", 1))
    assert seen[0] == b"0000000"
    assert seen[-2:] == [b"0009999", b"x"]
    assert sum(map(len, seen)) <= 2 * LONGEST


def test_no_line_is_patched_together_over_a_gap() -> None:
    lines, flood = LineSplitter(), b"".join(b"%07d\n" % n for n in range(10_000))
    seen = texts(lines.feed(flood[3:], 0)) + texts(lines.feed(b"x\n", 1))
    assert {len(text) for text in seen[1:-1]} == {7}


def test_a_gap_may_last_longer_than_what_is_looked_at() -> None:
    lines = LineSplitter()
    lines.feed(b"x" * 20_000, 0)
    assert lines.feed(b"", 1) == []
    assert lines.feed(b"tail\nnew\n", 2) == [(b"new", 2)]


def test_only_the_end_of_an_endless_line_is_kept() -> None:
    lines = LineSplitter()
    for tick in range(20):
        lines.feed(b"y" * LONGEST, tick)
    assert len(lines.unended().text) == LONGEST


def test_what_was_set_aside_is_given_when_requested() -> None:
    lines = LineSplitter()
    lines.feed(b"x" * LONGEST + b"\nlate\n", 0)
    assert texts(lines.catch_up()) == [b"x" * LONGEST, b"late"]
    assert lines.catch_up() == []


@given(
    st.lists(
        st.sampled_from([b"ab", b"\r", b"\n", b"\x1b[A", b"q" * 1500]), max_size=30
    ),
    st.lists(st.integers(0, 9000), max_size=8),
)
def test_where_the_bytes_are_cut_makes_no_difference(
    pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(pieces)
    whole, cut, at = LineSplitter(), LineSplitter(), [0, *sorted(cuts), len(data)]
    seen = whole.feed(data, 0) + whole.feed(b"z\n", 1)
    parts = [data[a:b] for a, b in pairwise(at)]
    got = [line for part in parts for line in cut.feed(part, 0)]
    assert got + cut.feed(b"z\n", 1) == seen


def test_colours_are_gone_and_other_moves_cut() -> None:
    line = b"\x1b[2K\x1b[1A\x1b[32mgreen\x1b[0m 1/2\x1b[5Gthere\x1b]0;title\x07!"
    assert list(shown_pieces(line)) == [
        ShownText("green 1/2", 0),
        ShownText("there!", 0),
    ]


def test_moves_up_after_a_bar_report_its_line_on_the_display() -> None:
    assert list(shown_pieces(b"inner 5/10\x1b[A\x1b[A")) == [ShownText("inner 5/10", 2)]


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    assert list(shown_pieces(b"\xff 1/2")) == [
        ShownText("\N{REPLACEMENT CHARACTER} 1/2", 0)
    ]
