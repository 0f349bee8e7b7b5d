from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.progress.figures import parse_time_left, stated_time_left
from weigh.progress.parser import CountParser, StepCount, parse_number


def counts(text: str, *patterns: str) -> list[StepCount]:
    return list(CountParser(patterns).counts(text.encode()))


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


@given(st.binary(max_size=300))
def test_no_line_is_too_odd(line: bytes) -> None:
    for count in CountParser(["(?P<percent>.)"]).counts(line):
        assert 0 <= count.done < float("inf")
