"""Secrets as they stand in people's commands: each form is hidden, twice the same.

The tokens are made up; how real ones begin is public.
"""

import re
import shlex
import time
from pathlib import Path

import pytest
from transcript import named_rows, named_texts

from weigh.errors import FormatError
from weigh.model.mask import HIDDEN, SecretMask, parse_mask

WORD, TOKEN = "Hunter2xyz", "0123456789abcdefABCDEF0123456789abcd"
TEXTS = Path(__file__).with_name("mask_forms.texts")
LINES = named_texts(TEXTS)


def test_a_secret_is_hidden_in_a_line_and_in_the_words_of_a_command() -> None:
    for form in LINES["secrets"].splitlines():
        line = form.replace("WORD", WORD)
        # but for the names of options and variables
        line = re.sub(r"(?<!SESSION_)(?<!PRIVATE-)TOKEN", TOKEN, line)

        masked, words = SecretMask().line(line), SecretMask().words(shlex.split(line))

        for text in (masked, *words):
            assert WORD not in text, form
            assert TOKEN not in text, form
        assert SecretMask().line(masked) == masked
        assert len(words) == len(shlex.split(line))


def test_a_password_that_echo_pipes_is_hidden() -> None:
    line = f"echo {WORD} | docker login --password-stdin"
    assert WORD not in SecretMask().line(line)


@pytest.mark.parametrize("line", LINES["harmless"].splitlines())
def test_what_only_looks_like_a_secret_stays(line: str) -> None:
    assert SecretMask().line(line) == line
    assert SecretMask().words(shlex.split(line)) == tuple(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "echo " + "a" * 20_000,
        "curl " * 4_000,
        "x --password " + "a'b'" * 5_000 + "'",
        'x {"password": ' * 1_500,
        "wandb login " + "--a " * 5_000,
        "http://" * 3_000,
    ],
    ids=["echo", "curl", "quotes", "json", "options", "urls"],
)
def test_a_long_line_is_read_in_time(line: str) -> None:
    began = time.process_time()
    SecretMask().line(line)
    assert time.process_time() - began < 10  # exponential ones never end


@pytest.mark.parametrize(("line", "masked"), named_rows(TEXTS)["masked"])
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
