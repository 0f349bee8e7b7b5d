import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError, UsageError
from weigh.flow.sweep.stages import SweepStep, read_stages

TWO = """
[[stage]]
name = "prepare"
run = "python prepare.py > data.txt"

[[stage]]
name = "train"
run = ["python", "train.py", "a b"]
"""
STAGES = (
    SweepStep("prepare", "python prepare.py > data.txt"),
    SweepStep("train", ["python", "train.py", "a b"]),
)


def stages_of(text: str, start: str = "") -> tuple[SweepStep, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stages.toml"
        path.write_text(text)
        return read_stages(f"{path}{start}")


def test_steps_come_in_their_order() -> None:
    assert stages_of(TWO) == STAGES
    assert STAGES[1].line == "python train.py 'a b'"


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
    (stage,) = stages_of(f'[[stage]]\nname = "a"\nrun = [{text}]')
    out = subprocess.run(["bash", "-c", stage.line], check=True, capture_output=True)
    assert out.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `stage`"),
        ("stage = []", "length >= 1"),
        ("stage = 3", "Expected `array`, got `int`"),
        ("stage = [3]", r"Expected `object`, got `int` - at `\$.stage\[0\]`"),
        ("[[stage]\n", "Expected"),
        ("steps = []", "unknown field `steps`"),
        ('[[stage]]\nrun = "true"', "missing required field `name`"),
        ('[[stage]]\nname = " "\nrun = "true"', r"at `\$.stage\[0\].name`"),
        ('[[stage]]\nname = "a\\nb"\nrun = "true"', r"at `\$.stage\[0\].name`"),
        ('[[stage]]\nname = "a"', "missing required field `run`"),
        ('[[stage]]\nname = "a"\nrun = []', "length >= 1"),
        ('[[stage]]\nname = "a"\nrun = ""', "length >= 1"),
        ('[[stage]]\nname = "a"\nrun = [1]', "got `int`"),
        ('[[stage]]\nname = "a"\nrun = "a\\u0000"', "run"),
        ('[[stage]]\nname = "a"\nruns = "true"', "unknown field `runs`"),
        (2 * '[[stage]]\nname = "a"\nrun = "true"\n', "two steps have the name 'a'"),
    ],
)
def test_what_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        stages_of(text)


def test_steps_before_the_first_one_requested_are_left_out() -> None:
    assert stages_of(TWO, ":train") == STAGES[1:]
    assert stages_of(TWO) == STAGES


def test_a_step_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="prepare, train"):
        stages_of(TWO, ":trian")
