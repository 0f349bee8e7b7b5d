from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from transcript import check_answers

from weigh.runner.divergence import (
    DivergenceWatch,
    LostNumber,
    lost_at_end,
    lost_number,
)


def test_what_was_lost_is_found_as_it_was_reviewed() -> None:
    def unescaped(text: str) -> str:
        return text.encode().decode("unicode_escape")

    def word(line: str) -> str | None:
        lost = watched(unescaped(line))
        return None if lost is None else lost.word

    path = Path(__file__).with_name("divergence.texts")
    check_answers(
        path,
        {
            "a line": word,
            "the end of an output": lambda text: lost_at_end(unescaped(text).encode()),
        },
    )


def watched(text: str, pieces: int = 1, patience: int = 1) -> LostNumber | None:
    watch, size = DivergenceWatch(patience), -(-len(text) // pieces) or 1
    for at in range(0, len(text), size):
        lost = watch.feed(text[at : at + size].encode())
        if lost is not None:
            return lost
    return watch.feed(b"\n")


@given(st.text(alphabet=st.characters(exclude_categories=("L", "Cs"))))
def test_a_line_without_letters_never_alarms(text: str) -> None:
    assert watched(text) is None


@given(st.floats(), st.sampled_from(("loss: {}", "loss={}", "reward -> {}")))
def test_python_s_own_way_to_write_numbers_is_read(number: float, line: str) -> None:
    is_finite = number - number == 0
    assert (lost_number(line.format(number)) is None) == is_finite


@given(st.binary())
def test_bytes_of_any_kind_are_read(text: bytes) -> None:
    watch = DivergenceWatch()
    watch.feed(text)
    watch.feed(b"\n")


RECORDED = Path(__file__).parents[2] / "support/data"


def test_no_recorded_output_is_taken_for_a_divergence() -> None:
    files = [path for path in RECORDED.rglob("*") if path.is_file()]
    alarms = {
        path.name: lost
        for path in files
        if (lost := watched(path.read_bytes().decode("latin-1"))) is not None
    }
    assert len(files) > 20
    assert alarms == {}


def test_worked_examples_of_outputs() -> None:
    path = Path(__file__).with_name("divergence.session")
    check_session(path, {"watched": watched})
