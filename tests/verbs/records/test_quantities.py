"""Sizes and times follow one rule in every verb."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from weigh.cli.main import run_cli, weigh

# their help states that a bare number is seconds
IN_SECONDS = {"exec --timeout", "exec --end-stuck", "exec --grace", "check --timeout"}
MAY_BE_EMPTY = {"submit --heal", "submit --interactive", "run --progress"}
EXAMPLES = {"SIZE": ("4", "4G"), "TIME": ("60", "60m")}


def all_options() -> Iterator[tuple[str, click.Command, click.Option]]:
    context = click.Context(weigh)
    for verb in weigh.list_commands(context):
        command = weigh.get_command(context, verb)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                yield f"{verb} {option.opts[-1]}", command, option


QUANTITIES = [one for one in all_options() if one[2].metavar in EXAMPLES]
TEXTS = [one for one in all_options() if one[2].type is click.STRING]


@pytest.mark.parametrize(
    ("name", "command", "option"), QUANTITIES, ids=lambda one: str(one)[:40]
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


@pytest.mark.parametrize("name", sorted({name for name, *_ in TEXTS} - MAY_BE_EMPTY))
def test_an_empty_value_is_a_mistake(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As of ``--queue "$QUEUE"`` where the variable is not set."""
    verb, option = name.split()
    code = run_cli([verb, f"{option}=", "--", str(tmp_path)], [])
    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (125 if verb == "run" else 2, "", 1)
    assert option in err


def test_the_verbs_have_many_such_options() -> None:
    assert len(QUANTITIES) > 15
    assert len(TEXTS) > 20
