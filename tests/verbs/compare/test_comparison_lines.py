import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_to_compare import repeated, run, usage
from terminal_columns import columns_of

from weigh.flow.records.compare import ComparedRecords, compare_record_groups
from weigh.model.record import Record
from weigh.render.comparison_lines import (
    FigureChange,
    comparison_text,
    figure_change_text,
)


def screen(*records: Record) -> list[str]:
    groups = [ComparedRecords(record.label or "?", (record,)) for record in records]
    return comparison_text(compare_record_groups(groups)).splitlines()


def test_repeats_show_their_spread_and_how_sure_the_change_is() -> None:
    lines = screen(repeated("a", [8.6, 8.7, 8.5]), repeated("b", [5.9, 6.0, 5.95]))
    (line,) = (line for line in lines if line.endswith("quicker"))
    assert line.split(maxsplit=1)[1] == (
        "5.95 s   5.90 to 6.00 s, 3 runs    31 ± 2 % quicker"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (FigureChange(0.6885, -2.7), "31 % quicker"),
        (FigureChange(1.45, 2.0), "45 % slower"),
        (FigureChange(1.012, 0.1), "1.2 % slower"),
        (FigureChange(1.0, 0.0), "the same"),
        (
            FigureChange(1.3, 1.0, 0.9, 1.7, distinguishable=False),
            "not distinguishable",
        ),
        (FigureChange(None, 3.0), ""),
        (FigureChange(1234.5, 3.0), "1.23e+03 x as much"),
    ],
)
def test_a_change_of_time_in_words(change: FigureChange, words: str) -> None:
    assert figure_change_text("wall_time", "seconds", change) == words


def test_utilisation_changes_by_points() -> None:
    assert (
        figure_change_text("gpu_utilization", "per cent", FigureChange(2.0, 42.0))
        == "+42 points"
    )


def test_wide_characters_of_a_parameter_count_as_two_columns() -> None:
    one, other = (run(name, parameters={"corpus": "結果" * 8 + name}) for name in "ab")
    for line in screen(one, other):
        assert columns_of(line) <= 80


@given(
    st.lists(
        st.builds(
            lambda name, time, memory, words, value: run(
                name,
                usage(time, memory),
                id=f"{name}{time}",
                command=tuple(words),
                parameters={name: value},
            ),
            st.text(min_size=1, max_size=60),
            st.floats(1e-6, 1e8),
            st.integers(0, 1 << 50),
            st.lists(st.text(max_size=60), min_size=1, max_size=6),
            st.text(max_size=90) | st.integers(),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_no_line_is_wider_than_a_terminal_nor_steers_it(records: list[Record]) -> None:
    for line in screen(*records):
        assert columns_of(line) <= 80
        assert line.isprintable()
