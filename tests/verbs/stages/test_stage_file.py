import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError, UsageError
from weigh.sweep.stages import Stage, parse_stages, since

TWO = """
[[stage]]
name = "prepare"
run = "python prepare.py > data.txt"

[[stage]]
name = "train"
run = ["python", "train.py", "a b"]
"""
STAGES = (
    Stage("prepare", "python prepare.py > data.txt"),
    Stage("train", "python train.py 'a b'"),
)


def test_steps_come_in_their_order() -> None:
    assert parse_stages(TWO) == STAGES


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", codec="utf-8")),
        min_size=1,
        max_size=3,
    )
)
def test_words_reach_the_program_as_they_stand(words: list[str]) -> None:
    argv = ["printf", "%s\\0", *words]
    text = ", ".join('"' + "".join(f"\\U{ord(c):08x}" for c in w) + '"' for w in argv)
    (stage,) = parse_stages(f'[[stage]]\nname = "a"\nrun = [{text}]')
    out = subprocess.run(["bash", "-c", stage.line], check=True, capture_output=True)
    assert out.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no steps"),
        ("stage = 3", "no steps"),
        ("stage = [3]", "step 1 is not a table"),
        ("[[stage]\n", "not TOML"),
        ("steps = []", "no such key: steps"),
        ('[[stage]]\nrun = "true"', "step 1 has no name"),
        ('[[stage]]\nname = " "\nrun = "true"', "step 1 has no name"),
        ('[[stage]]\nname = "a\\nb"\nrun = "true"', "one line"),
        ('[[stage]]\nname = "a"', "step 'a' has nothing to run"),
        ('[[stage]]\nname = "a"\nrun = []', "step 'a' has nothing to run"),
        ('[[stage]]\nname = "a"\nrun = [1]', "step 'a' has nothing to run"),
        ('[[stage]]\nname = "a"\nrun = "a\\u0000"', "NUL"),
        ('[[stage]]\nname = "a"\nruns = "true"', "no such key: runs"),
        (2 * '[[stage]]\nname = "a"\nrun = "true"\n', "two steps have the name 'a'"),
    ],
)
def test_what_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse_stages(text)


def test_steps_before_the_first_one_requested_are_left_out() -> None:
    assert since(STAGES, "train") == STAGES[1:]
    assert since(STAGES, None) == STAGES


def test_a_step_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="prepare, train"):
        since(STAGES, "trian")
