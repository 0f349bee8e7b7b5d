import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.errors import FormatError
from weigh.sweep.values import (
    parse_axis,
    parse_parameters,
    typed_value,
)


def texts(values: str) -> tuple[str, ...]:
    return parse_axis(f"x={values}").texts


def test_axes_are_read_or_refused_with_the_way_out() -> None:
    check_answers(
        Path(__file__).with_name("axes.texts"),
        {
            "the values of a parameter, as they are typed into a command": (
                lambda text: "  ".join(parse_axis(text).texts)
            ),
            "and what they are to weigh: what JSON or a reader could take otherwise "
            "stays text": lambda text: parse_axis(text).values,
        },
    )


def test_an_integer_of_any_length_stays_text() -> None:
    assert parse_axis(f"x={'1' * 5000}").values == ("1" * 5000,)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a\nb=1..", "not a parameter's name"), ("x='a\0'", "NUL")],
)
def test_what_no_command_can_hold_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words) as refused:
        parse_axis(text)
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


@pytest.mark.parametrize("text", ["1_000", "0x10", "1e5", "nan", "9" * 20, "007"])
def test_a_parameter_of_a_run_has_the_type_that_a_sweep_gives_it(text: str) -> None:
    assert parse_parameters([f"n={text}"])["n"] == typed_value(text)
