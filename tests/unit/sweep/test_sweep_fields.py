from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.sweep.tasks import fill_fields


def test_worked_examples_of_fields() -> None:
    check_session(Path(__file__).with_name("fields.session"), {})


@given(st.lists(st.text()), st.dictionaries(st.text(), st.text()))
def test_words_without_fields_of_ours_never_change(
    argv: list[str], texts: dict[str, str]
) -> None:
    unused = {name: text for name, text in texts.items() if name not in "".join(argv)}
    assert fill_fields(argv, unused) == tuple(argv)
