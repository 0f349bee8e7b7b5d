import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import UsageError
from weigh.sweep.tasks import field_names, fill_fields, match_fields


def test_a_field_is_filled_wherever_it_stands_in_a_word() -> None:
    argv = ("run.py", "--lr={lr}", "out/{lr}-{seed}.txt")
    filled = fill_fields(argv, {"lr": "1e-3", "seed": "1"})
    assert filled == ("run.py", "--lr=1e-3", "out/1e-3-1.txt")


def test_a_value_is_not_looked_into_for_more_fields() -> None:
    assert fill_fields(("{a}",), {"a": "{b}", "b": "no"}) == ("{b}",)


@pytest.mark.parametrize(
    "word",
    ['{"a": 1}', "{}", "{ a }", "${a}", "{a,b}", "{{x}}", "{{}}", "{a", "a}", "{#}"],
)
def test_braces_of_others_are_left_alone(word: str) -> None:
    assert fill_fields((word,), {"a": "1"}) == (word,)
    assert field_names((word,)) == ()


def test_doubled_braces_keep_a_parameter_s_name() -> None:
    assert fill_fields(("{{lr}}={lr}",), {"lr": "1"}) == ("{lr}=1",)
    assert field_names(("{{lr}}",)) == ()


def test_fields_are_named_once_in_order() -> None:
    assert field_names(("{b}{a}", "{b}", "{opt.lr}")) == ("b", "a", "opt.lr")


def test_a_field_without_values_offers_the_nearest_parameter() -> None:
    with pytest.raises(UsageError, match=r"did you mean \{batch_size\}\?"):
        match_fields(("{batchsize}",), ["batch_size"])


def test_a_parameter_without_a_field_is_refused() -> None:
    with pytest.raises(UsageError, match=r"seed is not used .* \{seed\}"):
        match_fields(("{lr}", "${seed}"), ["lr", "seed"])


@given(st.lists(st.text()), st.dictionaries(st.text(), st.text()))
def test_words_without_fields_of_ours_never_change(
    argv: list[str], texts: dict[str, str]
) -> None:
    unused = {name: text for name, text in texts.items() if name not in "".join(argv)}
    assert fill_fields(argv, unused) == tuple(argv)
