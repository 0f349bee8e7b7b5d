from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.errors import FormatError
from weigh.sweep.grid import parse_condition

NAMES = ("lr", "seed", "name", "opt.beta")
ROW: dict[str, Any] = {"lr": 0.01, "seed": 1, "name": "adam", "opt.beta": 0.9}


def test_conditions_are_read_or_refused_as_they_were_reviewed() -> None:
    question = "a condition on lr=0.01, seed=1, name=adam, opt.beta=0.9"
    path = Path(__file__).with_name("conditions.texts")
    check_answers(path, {question: lambda text: parse_condition(text, NAMES)(ROW)})


@pytest.mark.parametrize(
    "text", [" (lr < 1)\n", "not " * 240 + "lr < 1", "lr < " + "9" * 900]
)
def test_conditions_may_be_long(text: str) -> None:
    assert parse_condition(text, NAMES)(ROW)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr => 1", "write ==, <= or >="),
        ("lr < 1" + " or lr < 1" * 200, "longer than 1000"),
        ("(" * 400 + "lr < 1" + ")" * 400, "too many nested"),
        ("lr <\0 1", "null bytes"),
        ("name == '\udcff'", "no text"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words) as refused:
        parse_condition(text, NAMES)(ROW)
    assert "\n" not in str(refused.value)


OPERANDS = st.integers(-5, 5).map(str) | st.sampled_from(["lr", "seed"])
CONDITIONS = st.recursive(
    st.builds(
        "{} {} {}".format, OPERANDS, st.sampled_from(["<", "<=", "==", "!="]), OPERANDS
    ),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | inner.map("(not {})".format)
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_python_itself_agrees(text: str) -> None:
    expected = eval(text, {"lr": 0.01, "seed": 1})
    assert parse_condition(text, NAMES)(ROW) == expected
