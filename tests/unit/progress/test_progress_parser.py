"""How output is cut into lines, and what one line counts."""

from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.progress.figures import parse_time_left, stated_time_left
from weigh.progress.parser import CountParser, StepCount, parse_number, shown_pieces
from weigh.progress.reader import LONGEST, LineSplitter, OutputLine


def counts(text: str, *patterns: str) -> list[StepCount]:
    return list(CountParser(patterns).counts(text))


def written(found: list[StepCount]) -> str:
    return ", ".join(
        f"{count.source}: {count.rank.name.lower()} {count.done:.10g} of {count.total}"
        + " (heading)" * count.is_heading
        for count in found
    )


def test_counts_numbers_and_times_are_read_as_reviewed() -> None:
    """Of a line that counts nothing there is no answer."""
    check_answers(
        Path(__file__).with_name("counts.texts"),
        {
            "what a line counts, the outer one first": lambda line: written(
                counts(line)
            ),
            "a number, of whose two kinds of marks the last is the decimal one": (
                parse_number
            ),
            "seconds of a time left, in any form": parse_time_left,
            "the time left that a line states, and its place": (
                lambda line: stated_time_left(line) or ""
            ),
            "seconds of a time left under a heading in minutes": partial(
                parse_time_left, unit="min"
            ),
            "a pattern of the user's own, in 'at x 3 of 4 nan 101'": (
                lambda pattern: written(counts("at x 3 of 4 nan 101", pattern)[:1])
            ),
        },
        # versions of Python state differently why
        {r"(not a regular expression: .*) \(.*": r"\1"},
    )


@given(st.text(max_size=300))
def test_no_line_is_too_odd(line: str) -> None:
    for count in CountParser(["(?P<percent>.)"]).counts(line):
        assert 0 <= count.done < float("inf")


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
    line = "\x1b[2K\x1b[1A\x1b[32mgreen\x1b[0m 1/2\x1b[5Gthere\x1b]0;title\x07!"
    assert list(shown_pieces(line)) == [("green 1/2", 0), ("there!", 0)]
