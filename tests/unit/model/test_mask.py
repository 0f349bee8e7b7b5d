import pytest

from weigh.errors import FormatError
from weigh.model.mask import HIDDEN, SecretMask, parse_mask


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("a --password=hunter2 b", f"a --password={HIDDEN} b"),
        ("a --password 'hun ter2' b", f"a --password {HIDDEN} b"),
        ("a --hf-token hf_abc", f"a --hf-token {HIDDEN}"),
        ("a --api_key=abc;b", f"a --api_key={HIDDEN};b"),
        ("WANDB_API_KEY=abc python x.py", f"WANDB_API_KEY={HIDDEN} python x.py"),
        ("export DB_PASSWORD='a b'", f"export DB_PASSWORD={HIDDEN}"),
        ("x wandb.api_key=abc lr=1", f"x wandb.api_key={HIDDEN} lr=1"),
        ("psql postgres://me:pw@host/db", f"psql postgres://me:{HIDDEN}@host/db"),
        (
            "curl -H 'Authorization: Bearer abc'",
            f"curl -H 'Authorization: Bearer {HIDDEN}'",
        ),
        ("curl -H 'X-Api-Key: abc'", f"curl -H 'X-Api-Key: {HIDDEN}'"),
        ('a --token "q\\"r" b', f"a --token {HIDDEN} b"),
    ],
)
def test_a_secret_in_a_line_is_masked(line: str, masked: str) -> None:
    assert SecretMask().line(line) == masked
    assert SecretMask().line(masked) == masked


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --max-tokens 512 --tokenizer bert",
        "python train.py --pad_token x --eos-token '</s>' pad_token_id=0",
        "sort --key 2 --sort_key=name",
        'login --token $HF_TOKEN --password="$PW"',
        "wget https://host:8080/a@b",
        "git clone https://host/repo",
        "x -psecret",
        "x --password",
        "cat password.txt | tool --token-file t",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert SecretMask().line(line) == line


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
