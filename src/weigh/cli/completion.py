"""``weigh completion``: print what makes a shell complete weigh's commands."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from weigh.cli import options

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(context_settings=options.SETTINGS)
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(shell: str) -> int:
    """Print the script by which a SHELL completes weigh's commands with <TAB>.

    It completes commands, options, files, submitted jobs and the newest records.

    \b
    echo 'source <(weigh completion bash)' >>~/.bashrc
    echo 'source <(weigh completion zsh)' >>~/.zshrc      # below compinit
    weigh completion fish >~/.config/fish/completions/weigh.fish
    """  # noqa: D301 - click reads \b as: keep these lines
    click.echo(completion_script(shell))
    return 0


def completion_script(shell: str) -> str:
    """Return the script that asks weigh what may come next."""
    shell_class = SHELLS[shell]
    # the command is not used by the template, so an empty one stands for all of weigh
    completer = shell_class(click.Command("weigh"), {}, "weigh", "_WEIGH_COMPLETE")
    # not its source(), which starts bash to ask for its version
    return (shell_class.source_template % completer.source_vars()).strip()
