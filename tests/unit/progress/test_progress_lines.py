from weigh.progress.parser import shown_pieces
from weigh.progress.reader import LONGEST, LineSplitter, OutputLine


def texts(lines: list[OutputLine]) -> list[bytes]:
    return [line.text for line in lines]


def test_newlines_returns_and_backspaces_end_a_line() -> None:
    found = texts(LineSplitter().feed(b"a\nb\rc\b\b\bd\r\ne", 0))
    assert found == [b"a", b"b", b"c", b"d"]


def test_the_time_of_a_line_is_that_of_its_text_not_of_its_end() -> None:
    lines = LineSplitter()
    lines.feed(b"50%", 1)
    assert lines.feed(b"\r51%", 9) == [(b"50%", 1)]


def test_of_a_flood_the_begin_and_the_end_are_read_in_whole_lines() -> None:
    flood = b"".join(b"%07d\n" % n for n in range(10_000))
    for cut in (0, 3):
        lines = LineSplitter()
        seen = texts(lines.feed(flood[cut:], 0)) + texts(lines.feed(b"x\n", 1))
        assert seen[0] == b"0000000"[cut:]
        assert seen[-2:] == [b"0009999", b"x"]
        assert {len(text) for text in seen[1:-1]} == {7}
        assert sum(map(len, seen)) <= 2 * LONGEST


def test_a_gap_may_last_longer_than_what_is_looked_at() -> None:
    lines = LineSplitter()
    lines.feed(b"x" * 20_000, 0)
    assert lines.feed(b"", 1) == []
    assert lines.feed(b"tail\nnew\n", 2) == [(b"new", 2)]


def test_what_was_set_aside_is_given_when_requested() -> None:
    lines = LineSplitter()
    lines.feed(b"x" * LONGEST + b"\nlate\n", 0)
    assert texts(lines.catch_up()) == [b"x" * LONGEST, b"late"]
    assert lines.catch_up() == []


def test_colours_are_gone_and_other_moves_cut() -> None:
    line = b"\x1b[2K\x1b[1A\x1b[32mgreen\x1b[0m 1/2\x1b[5Gthere\x1b]0;title\x07!"
    assert list(shown_pieces(line)) == [("green 1/2", 0), ("there!", 0)]
