from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from some_requests import REQUESTS

from weigh.model.record import Request
from weigh.render.request_lines import FORMS, request_form_lines, request_note_lines


def test_worked_examples_of_lines() -> None:
    check_session(Path(__file__).with_name("lines.session"), {})


@given(REQUESTS, st.sampled_from(FORMS))
def test_every_form_writes_every_request(request: Request, form: str) -> None:
    lines = request_form_lines(request, form)

    assert lines or request.time_limit is None
    assert all("\n" not in line for line in lines)


@given(st.lists(st.text(alphabet="abc déf", max_size=200), max_size=3))
def test_notes_fold_at_80_columns_and_lose_no_word(notes: list[str]) -> None:
    lines = request_note_lines(notes, indent="   ")

    words = " ".join(notes).split()
    assert " ".join(lines).split() == words
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
