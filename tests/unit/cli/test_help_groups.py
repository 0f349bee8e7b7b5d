"""Help texts in groups: every option is in one, and the first ones are among them."""

import click
import pytest

from weigh.cli.help_groups import FIRST_OPTIONS, OPTION_GROUPS, options_by_name
from weigh.cli.main import run_cli, weigh

TOP = click.Context(weigh, info_name="weigh", obj=[])
MOST_ON_ONE_PAGE = 13


def options_of(verb: str) -> set[str]:
    command = weigh.get_command(TOP, verb)
    assert command is not None
    context = click.Context(command, info_name=verb, parent=TOP)
    return {*options_by_name(command, context)} - {"help", "help-all"}


@pytest.mark.parametrize("verb", OPTION_GROUPS)
def test_each_option_of_a_verb_is_in_one_group(verb: str) -> None:
    listed = " ".join(OPTION_GROUPS[verb].values()).split()

    assert sorted(listed) == sorted(options_of(verb))
    assert {*FIRST_OPTIONS[verb].split()} <= {*listed}


def test_each_verb_with_many_options_has_groups() -> None:
    many = {
        verb
        for verb in weigh.list_commands(TOP)
        if len(options_of(verb)) > MOST_ON_ONE_PAGE
    }
    assert many == {*OPTION_GROUPS} == {*FIRST_OPTIONS}


@pytest.mark.parametrize("verb", OPTION_GROUPS)
def test_help_lists_ten_options_and_help_all_every_one_once(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli([verb, "--help"], []) == 0
    short = capsys.readouterr().out
    assert run_cli([verb, "--help-all"], []) == 0
    whole = capsys.readouterr().out

    assert short.count("\n  -") <= 12
    assert "--help-all" in short
    for name in options_of(verb):
        shown = [form for form in (f"--{name} ", f"--no-{name} ") if form in whole]
        assert len(shown) == 1, name


@pytest.mark.parametrize("verb", FIRST_OPTIONS)
def test_the_options_used_first_say_their_defaults(verb: str) -> None:
    command = weigh.get_command(TOP, verb)
    assert command is not None
    known = options_by_name(command, click.Context(command, info_name=verb, parent=TOP))

    for option in map(known.__getitem__, FIRST_OPTIONS[verb].split()):
        help_text = option.help or ""
        says = "[default: " in help_text or "repeatable" in help_text
        assert option.is_flag or says, option.name


def test_a_verb_with_few_options_takes_help_all_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["report", "--help-all"], []) == 0
    whole = capsys.readouterr().out
    assert run_cli(["report", "--help"], []) == 0
    assert whole == capsys.readouterr().out
