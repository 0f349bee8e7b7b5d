"""What ``--stage-in``, ``--stage-out`` and the setting ``scratch`` say."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.model.staging import StagingPlan
from weigh.staging.script import parse_source, parse_staging, staged_script_lines

HOME = "/home/u"


def input_text(words: str) -> str:
    found = parse_source(words, f"{HOME}/project", home=HOME)
    return f"{found.path} in {found.place}"


def scratch_of(words: str) -> str | None:
    return parse_staging([], None, words, cwd=f"{HOME}/p", home=HOME).scratch


def places_of(words: str) -> list[str]:
    texts = [text.replace("NUL", "\0") for text in words.split(" ")]
    staging = parse_staging(texts, None, None, cwd="/")
    return [source.place for source in staging.sources]


def test_what_is_staged_is_read_as_it_was_reviewed() -> None:
    check_answers(
        Path(__file__).with_name("staged_words.texts"),
        {
            "an input has a path and a place": input_text,
            "inputs of one job": places_of,
            "a destination": lambda words: (
                parse_staging([], words, None, cwd=HOME).destination
            ),
            "a scratch": scratch_of,
        },
    )


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_no_name_makes_a_line_of_its_own(name: str) -> None:
    plain, odd = StagingPlan(destination="/x/y"), StagingPlan(destination=f"/x/{name}")
    written = staged_script_lines(odd, "true").splitlines()
    assert len(written) == len(staged_script_lines(plain, "true").splitlines())
