from pathlib import Path

import pytest
from transcript import named_rows

from weigh.errors import FormatError
from weigh.model.mask import HIDDEN, SecretMask, parse_mask

ROWS = named_rows(Path(__file__).with_name("mask_forms.texts"))["masked"]


@pytest.mark.parametrize(
    ("line", "masked"),
    ROWS,
)
def test_a_secret_in_a_line_is_masked(line: str, masked: str) -> None:
    masked = masked.replace("HIDDEN", HIDDEN)
    assert SecretMask().line(line) == masked
    assert SecretMask().line(masked) == masked


def test_the_words_of_a_command_are_masked_whole() -> None:
    words = ("x", "--password=a b", "--token", "c d", "PGPASSWORD=e f", "y=1")
    hidden = (f"--password={HIDDEN}", "--token", HIDDEN, f"PGPASSWORD={HIDDEN}", "y=1")
    assert SecretMask().words(words) == ("x", *hidden)
    assert SecretMask().words(("x", "--token", "--fast")) == ("x", "--token", "--fast")
    line = ("sh", "-c", "x --token abc | y")
    assert SecretMask().words(line) == ("sh", "-c", f"x --token {HIDDEN} | y")


def test_more_patterns_are_masked_and_none_where_that_is_set() -> None:
    mask = parse_mask("f", ["patient=(\\d+)", "sk-\\w+"])
    assert mask.line("x patient=12 sk-abc") == f"x patient={HIDDEN} {HIDDEN}"
    assert parse_mask("f", False).line("x --token abc") == "x --token abc"
    assert parse_mask("f", True) == SecretMask()


@pytest.mark.parametrize("value", ["yes", 1, ["("], [1]])
def test_a_mask_that_cannot_be_is_named(value: object) -> None:
    with pytest.raises(FormatError, match=r"^f"):
        parse_mask("f", value)


def test_a_parameter_is_masked_by_its_name() -> None:
    assert SecretMask().value("api_key", "abc") == HIDDEN
    assert SecretMask().value("lr", 0.1) == 0.1
