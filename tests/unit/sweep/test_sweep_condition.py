from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.sweep.grid import parse_condition

NAMES = ("lr", "seed", "name", "opt.beta")
ROW: dict[str, Any] = {"lr": 0.01, "seed": 1, "name": "adam", "opt.beta": 0.9}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("lr < 1e-2 or seed == 1", True),
        ("lr < 1e-2 and seed == 1", False),
        ("not lr < 1e-2", True),
        ("1e-3 < lr <= 1e-2", True),
        ("1e-3 < lr < 1e-2 < seed", False),
        ("seed in (1, 2)", True),
        ("seed not in [2, 3]", True),
        ("name == 'adam' and lr != 1", True),
        ('"ad" in name', True),
        ("seed > -1", True),
        ("opt.beta > 0.5", True),
        (" (lr < 1)\n", True),
        ("name == 'sgd' or lr > 1 or seed == 2", False),
        ("not " * 240 + "lr < 1", True),
        ("lr < " + "9" * 900, True),
        # a comparison never made is never wrong
        ("name == 'adam' or name < 1", True),
    ],
)
def test_conditions_read_as_they_are_written(text: str, holds: bool) -> None:  # noqa: FBT001
    assert parse_condition(text, NAMES)(ROW) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "invalid syntax"),
        ("lr <", "invalid syntax"),
        ("lr => 1", "write ==, <= or >="),
        ("lr ≤ 1", "invalid character '≤'"),
        ("lr = 1", "write ==, <= or >="),
        ("lr", "'lr' is not true or false (write it like lr < 1e-2"),
        ("seed == 1 or 2", "'2' is not true or false"),
        ("not seed", "'seed' is not true or false"),
        ("rl < 1", "rl is not a parameter (there are: lr, seed, name, opt.beta"),
        ("name == adam", "adam is not a parameter"),
        ("lr is 1", "write =="),
        ("open('x') == 1", "cannot stand in a condition"),
        ("lr.real == 1", "lr.real is not a parameter"),
        ("().__class__ == 1", "is not a parameter"),
        ("name[0] == 'a'", "cannot stand in a condition"),
        ("9 ** 9 ** 9 ** 9 > 1", "cannot stand in a condition"),
        ("lr + 1 > 1", "'lr + 1' cannot stand in a condition"),
        ("(seed := 2) == 2", "cannot stand in a condition"),
        ("lr == None", "cannot stand in a condition"),
        ("lr == 1j", "cannot stand in a condition"),
        ("lr < 1; lr > 2", "invalid syntax"),
        ("lr < 1" + " or lr < 1" * 200, "longer than 1000"),
        ("(" * 400 + "lr < 1" + ")" * 400, "too many nested"),
        ("lr <\0 1", "null bytes"),
        ("name == '\udcff'", "no text"),
        # what makes no sense for a row names its parameters
        ("name < 1", "text and numbers do not mix: lr=0.01"),
        ("1 in name", "do not mix"),
        ("seed in 1", "do not mix"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_condition(text, NAMES)(ROW)
    assert words in str(refused.value)
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
