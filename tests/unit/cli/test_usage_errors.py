"""Each mistake on a command line is one line in one style, whatever the verb."""

import click
import pytest
from called_weigh import CalledWeigh

from weigh.cli.main import VERBS
from weigh.cli.main import weigh as weigh_group

_CLICKS_OWN = ("No such option", "Option '", "Missing", "Got unexpected", "Did you")


def _options(verb: str, *, is_flag: bool) -> list[str]:
    command = weigh_group.get_command(click.Context(weigh_group), verb)
    assert command is not None
    return [
        option.opts[-1]
        for option in command.params
        if isinstance(option, click.Option)
        and not option.hidden
        and option.is_flag == is_flag
        and option.flag_value != ""  # its value may be missing
        and "--heal" not in option.opts
    ]


def _assert_usage(answer: tuple[int, str, str], verb: str, text: str) -> None:
    code, out, err = answer
    assert (code, out) == (125 if verb == "run" else 2, "")
    assert err.startswith(f"weigh: {text}")
    assert err.count("\n") == 1
    assert not any(words in err for words in _CLICKS_OWN)


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_option_is_named_with_the_nearest(
    verb: str, weigh: CalledWeigh
) -> None:
    names = [
        name for is_flag in (True, False) for name in _options(verb, is_flag=is_flag)
    ]
    for name in filter(lambda one: one.startswith("--"), names):
        typed = f"{name}{name[-1]}x"
        _assert_usage(
            weigh(verb, typed), verb, f"no such option: {typed} (did you mean"
        )

    _assert_usage(weigh(verb, "--xyzzy"), verb, "no such option: --xyzzy")


@pytest.mark.parametrize("verb", VERBS)
def test_a_value_is_missing_or_too_much(verb: str, weigh: CalledWeigh) -> None:
    # --interactive has a value that may be left out: then it becomes the shell
    for name in [
        one for one in _options(verb, is_flag=False) if one != "--interactive"
    ]:
        answer = weigh(verb, name)
        if "put -- before" not in answer[2] and "no command" not in answer[2]:
            _assert_usage(answer, verb, f"{name} needs a value")
    for name in (*_options(verb, is_flag=True), "--help"):
        if verb != "run":  # where the command is missed first
            _assert_usage(weigh(verb, f"{name}=3"), verb, f"{name} takes no value")


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[31mb", "a\udcffb"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_error_is_one_line_whatever_its_name_holds(
    verb: str, name: str, weigh: CalledWeigh
) -> None:
    for word in (name, f"--{name}"):
        code, _, err = weigh(verb, word)
        if code > 1:  # doctor has an answer
            assert err[:-1].isprintable()
            assert repr(name)[1:-1] in err or "a\ufffdb" in err


@pytest.mark.parametrize("verb", ["cluster", "doctor", "plan", "report", "top"])
def test_too_many_words_are_named_with_the_usage(verb: str, weigh: CalledWeigh) -> None:
    code, _, err = weigh(verb, "a", "b", "c")

    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("weigh: too many words: ")
    assert f"(weigh {verb} [OPTIONS]" in err
