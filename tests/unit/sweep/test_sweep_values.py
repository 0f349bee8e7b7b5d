import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.sweep.values import (
    ParameterAxis,
    parse_axis,
    parse_parameters,
    typed_value,
)


def texts(values: str) -> tuple[str, ...]:
    return parse_axis(f"x={values}").texts


def test_values_are_filled_in_as_typed_and_meant_as_numbers() -> None:
    assert parse_axis("lr=1e-2,0.10,adam,+3,007") == ParameterAxis(
        "lr",
        values=(0.01, 0.1, "adam", 3, 7),
        texts=("1e-2", "0.10", "adam", "+3", "007"),
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1..5", "1 2 3 4 5"),
        ("5..1", "5 4 3 2 1"),
        ("-1..1", "-1 0 1"),
        ("7..7", "7"),
        ("08..11", "08 09 10 11"),
        ("1..9:4", "1 5 9"),
        ("1..10:4", "1 5 9"),
        ("9..1:4", "9 5 1"),
        ("9..1:-4", "9 5 1"),
        ("0.1..0.5:0.1", "0.1 0.2 0.3 0.4 0.5"),
        ("0..1:0.25", "0 0.25 0.5 0.75 1"),
        ("1.0..2.0:0.5", "1.0 1.5 2.0"),
        ("-0.1..0.1:0.1", "-0.1 0.0 0.1"),
        ("-1..0:0.5", "-1 -0.5 0"),
        (".5..1.5:.5", "0.5 1.0 1.5"),
        ("1e-5..3e-5:1e-5", "1e-5 2e-5 3e-5"),
        ("1e3..2e3:5e2", "1e3 1.5e3 2e3"),
        ("1e-5..1e-1:log5", "1e-5 1e-4 1e-3 1e-2 1e-1"),
        ("0.001..0.1:log3", "0.001 0.01 0.1"),
        ("0.1..1:log3", "0.1 0.316228 1"),
        ("50..300:log3", "50 122 300"),
        ("300..50:log3", "300 122 50"),
        ("1..4:log10", "1 2 3 4"),
        ("8..8:log4", "8"),
        ("1,2,5..8", "1 2 5 6 7 8"),
        ("../a,../../b", "../a ../../b"),
        ("a..b", "a..b"),
        (" 1 , 2", "1 2"),
    ],
)
def test_ranges_are_written_out(written: str, expected: str) -> None:
    assert texts(written) == tuple(expected.split(" "))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("'a,b',c", ("a,b", "c")),
        ('"a,b"', ("a,b",)),
        ("'it''s'", ("it's",)),
        ("it's,so", ("it's", "so")),
        ("''", ("",)),
        ("'1..5'", ("1..5",)),
        ("' a ',b", (" a ", "b")),
        ("'a' , 'b'", ("a", "b")),
        ("a=b,c=d", ("a=b", "c=d")),
        ("naïve,日本", ("naïve", "日本")),
    ],
)
def test_quotes_keep_commas_and_spaces(written: str, expected: tuple[str]) -> None:
    assert texts(written) == expected


def test_a_quoted_number_is_text() -> None:
    assert parse_axis("x='1',1").values == ("1", 1)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e999", "1_000", "0x10", "٣", "9" * 19, "1" * 5000, "True"]
)
def test_what_json_or_a_reader_could_take_otherwise_stays_text(text: str) -> None:
    assert parse_axis(f"x={text}").values == (text,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed", "seed=1..5"),
        ("=1", "NAME=VALUES"),
        ("1a=1", "not a parameter's name"),
        ("a\nb=1..", "not a parameter's name"),
        ("x=", "empty value"),
        ("x=1,,2", "empty value"),
        ("x=1,", "empty value"),
        ("x='a", "a quote must end before the next comma (a ' inside"),
        ("x=1,'a'b", "\"'a'b\": a quote must end"),
        ("x=1..", "not a range"),
        ("x=..5", "not a range"),
        ("x=1..b", "not a range"),
        ("x=1..2..3", "not a range"),
        ("x=0.1..0.5", "0.1..0.5:0.1"),
        ("x=1..5:", "no step"),
        ("x=1..5:two", "no step"),
        ("x=1..5:0", "step of 0"),
        ("x=1..5:-1", "leads away from 5"),
        ("x=0..5:log3", "above 0"),
        ("x=-5..5:log3", "above 0"),
        ("x=1..5:log1", "2 values"),
        ("x=1..5:log", "no step"),
        ("x=1..1000000000000", "more than 1,000,000"),
        ("x=0..1:1e-300", "more than 1,000,000"),
        ("x=-1e999..1e999:1e-999", "more than 1,000,000"),
        ("x=1..1e308:log999999999", "more than 1,000,000"),
        ("x=1..1000000,1", "more than 1,000,000"),
        ("x='a\0'", "NUL"),
    ],
)
def test_what_is_no_axis_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_axis(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@given(
    st.decimals(-1000, 1000, places=3),
    st.integers(0, 50),
    st.decimals("0.001", 10, places=3),
)
def test_a_step_is_exact_in_decimals(first: Decimal, count: int, step: Decimal) -> None:
    got = texts(f"{first}..{first + count * step}:{step}")
    exact = [Fraction(first) + n * Fraction(step) for n in range(count + 1)]
    assert [Fraction(text) for text in got] == exact


@given(
    st.floats(1e-300, 1e300),
    st.floats(1e-300, 1e300),
    st.integers(2, 40),
)
def test_geometric_values_have_equal_factors(low: float, high: float, n: int) -> None:
    axis = parse_axis(f"x={low!r}..{high!r}:log{n}")
    assert axis.texts[0] == repr(low)
    assert axis.values[-1] == high
    if len(axis.values) == n:
        logs = [math.log(float(value)) for value in axis.values]
        step = (logs[-1] - logs[0]) / (n - 1)
        expected = [logs[0] + k * step for k in range(n)]
        assert logs == pytest.approx(expected, rel=1e-9, abs=5.1e-6)  # 6 digits


@given(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1))
def test_any_text_survives_in_quotes(words: list[str]) -> None:
    quoted = ",".join("'" + word.replace("'", "''") + "'" for word in words)
    assert texts(quoted) == tuple(words)


@given(st.text())
def test_every_text_is_an_axis_or_a_format_error(text: str) -> None:
    try:
        axis = parse_axis(text)
    except FormatError:
        return
    assert 0 < len(axis.values) == len(axis.texts)


@pytest.mark.parametrize("text", ["1_000", "0x10", "1e5", "nan", "9" * 20, "007"])
def test_a_parameter_of_a_run_has_the_type_that_a_sweep_gives_it(text: str) -> None:
    assert parse_parameters([f"n={text}"])["n"] == typed_value(text)
