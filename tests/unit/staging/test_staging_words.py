"""What ``--stage-in``, ``--stage-out`` and the setting ``scratch`` say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import named_rows

from weigh.errors import UsageError
from weigh.model.staging import StagedInput, StagingPlan
from weigh.staging.script import parse_source, parse_staging, staged_script_lines

INPUTS = named_rows(Path(__file__).with_name("staged_inputs.texts"))["inputs"]


def _source(text: str) -> StagedInput:
    return parse_source(text, "/home/u/project", home="/home/u")


@pytest.mark.parametrize(
    ("text", "path", "place"),
    INPUTS,
)
def test_an_input_has_a_path_and_a_place(text: str, path: str, place: str) -> None:
    assert _source(text) == StagedInput(path, place)


@pytest.mark.parametrize(
    "text", ["/", "a:", ":b", "a:/abs", "a:..", "a:../b", "a:x/../../b", "host:/data"]
)
def test_a_place_outside_the_working_folder_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--stage-in"):
        _source(text)


@pytest.mark.parametrize(
    "texts",
    [("a", "b:a"), ("a", "x/a"), ("a:d", "b:d/e"), ("a:d/e", "b:d"), ("a:.", "b:.")],
)
def test_two_inputs_in_one_place_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="would both be in"):
        parse_staging(texts, None, None, cwd="/")


@pytest.mark.parametrize(("one", "other"), [("a:d", "b:dd"), ("a:.", "b:x")])
def test_inputs_side_by_side_are_taken(one: str, other: str) -> None:
    assert len(parse_staging([one, other], None, None, cwd="/").sources) == 2


@pytest.mark.parametrize("text", ["", "a\0b"])
def test_a_name_that_no_file_has_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="empty or contains a NUL"):
        parse_staging([text], None, None, cwd="/")


def test_a_destination_is_made_absolute() -> None:
    staging = parse_staging([], "results/%a/", None, cwd="/home/u")
    assert staging.destination == "/home/u/results/%a"


@pytest.mark.parametrize(
    ("text", "scratch"),
    [
        ("/disk/scratch/$USER", "/disk/scratch/$USER"),
        ("$TMPDIR/x", "$TMPDIR/x"),
        ("${TMPDIR}", "${TMPDIR}"),
        ("~/scratch/", "/home/u/scratch"),
    ],
)
def test_a_scratch_is_absolute_or_begins_with_a_variable(
    text: str, scratch: str
) -> None:
    staging = parse_staging([], None, text, cwd="/home/u/p", home="/home/u")
    assert staging.scratch == scratch


def test_a_relative_scratch_is_refused() -> None:
    with pytest.raises(UsageError, match="absolute"):
        parse_staging([], None, "scratch", cwd="/home/u", home="/home/u")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_no_name_makes_a_line_of_its_own(name: str) -> None:
    plain, odd = StagingPlan(destination="/x/y"), StagingPlan(destination=f"/x/{name}")
    written = staged_script_lines(odd, "true").splitlines()
    assert len(written) == len(staged_script_lines(plain, "true").splitlines())
