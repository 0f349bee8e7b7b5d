"""Sizes and times follow one rule in every verb."""

from collections.abc import Iterator

import click
import pytest

from weigh.cli.main import weigh

# their help states that a bare number is seconds
IN_SECONDS = {"exec --timeout", "exec --end-stuck", "exec --grace", "check --timeout"}
EXAMPLES = {"SIZE": ("4", "4G"), "TIME": ("60", "60m")}


def quantities() -> Iterator[tuple[str, click.Command, click.Option]]:
    context = click.Context(weigh)
    for verb in weigh.list_commands(context):
        command = weigh.get_command(context, verb)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and option.metavar in EXAMPLES:
                yield f"{verb} {option.opts[0]}", command, option


@pytest.mark.parametrize(
    ("name", "command", "option"), list(quantities()), ids=lambda one: str(one)[:40]
)
def test_an_option_for_a_size_or_time_takes_a_unit_and_no_bare_number(
    name: str, command: click.Command, option: click.Option
) -> None:
    bare, with_unit = EXAMPLES[option.metavar or ""]
    context = click.Context(command)

    option.process_value(context, [with_unit] if option.multiple else with_unit)

    if name in IN_SECONDS:
        assert "a bare number is seconds" in (option.help or "")
        return
    with pytest.raises(click.BadParameter, match=f"{bare} has no unit"):
        option.process_value(context, [bare] if option.multiple else bare)


def test_the_verbs_have_many_such_options() -> None:
    assert len(list(quantities())) > 15
