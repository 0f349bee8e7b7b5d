import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import UsageError
from weigh.sweep.tasks import field_names, fill_fields, match_fields


@pytest.mark.parametrize(
    ("argv", "filled"),
    [
        ("run --lr={a} out/{a}-{b}.txt", "run --lr=1e-3 out/1e-3-{a}.txt"),
        # a value is not looked into for more fields, and doubled braces keep a name
        ("{b} {{a}}={a}", "{a} {a}=1e-3"),
    ],
)
def test_a_field_is_filled_wherever_it_stands(argv: str, filled: str) -> None:
    assert fill_fields(argv.split(), {"a": "1e-3", "b": "{a}"}) == tuple(filled.split())


@pytest.mark.parametrize(
    "word",
    ['{"a": 1}', "{}", "{ a }", "${a}", "{a,b}", "{{x}}", "{{}}", "{a", "a}", "{#}"],
)
def test_braces_of_others_are_left_alone(word: str) -> None:
    assert fill_fields((word,), {"a": "1"}) == (word,)
    assert field_names((word,)) == ()


def test_fields_are_named_once_in_order() -> None:
    assert field_names(("{b}{a}", "{b}", "{{x}}", "{opt.lr}")) == ("b", "a", "opt.lr")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("{batchsize}", "{lr}"), r"did you mean \{batch_size\}\?"),
        (("{lr}", "${batch_size}"), r"batch_size is not used .* \{batch_size\}"),
    ],
)
def test_a_field_and_a_parameter_need_each_other(
    argv: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        match_fields(argv, ["batch_size", "lr"])


@given(st.lists(st.text()), st.dictionaries(st.text(), st.text()))
def test_words_without_fields_of_ours_never_change(
    argv: list[str], texts: dict[str, str]
) -> None:
    unused = {name: text for name, text in texts.items() if name not in "".join(argv)}
    assert fill_fields(argv, unused) == tuple(argv)
