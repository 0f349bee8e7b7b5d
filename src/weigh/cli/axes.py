"""Command lines such as ``weigh sweep lr=0.1,0.01 -- python3 run.py {lr}``."""

import click

from weigh.cli.options import PlainHelp

_COMMAND = "weigh.command"


class AxesThenCommand(PlainHelp):
    """A command that takes NAME=VALUES words, and behind ``--`` the user's argv."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put what is behind the first ``--`` aside, word for word."""
        # the first "--": further ones belong to the command
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = tuple(args[at + 1 :])
        try:
            rest = super().parse_args(ctx, args[:at])
        except (click.NoSuchOption, click.BadParameter):
            if at == len(args) and not self.takes_names(ctx):
                _refuse_command_without_dashes(ctx, args)
            raise
        if not self.takes_names(ctx):
            _refuse_other_words(ctx, args[:at], has_command=at < len(args))
        return rest

    def takes_names(self, ctx: click.Context) -> bool:
        """Return whether a parameter may stand without values; never, by default."""
        return False


def command_of_context(context: click.Context) -> tuple[str, ...]:
    """Return the user's argv; empty where there was none behind ``--``."""
    command: tuple[str, ...] = context.meta[_COMMAND]
    return command


def _refuse_other_words(
    ctx: click.Context, arguments: list[str], *, has_command: bool
) -> None:
    """Show where ``--`` goes, at the first word that is no NAME=VALUES."""
    before = ""
    for word in ctx.params.get("axes") or ():
        # "lr=0.1 0.01": blanks where commas belong
        if "=" not in word and before and (has_command and word[:1].isdecimal()):
            message = f"values have commas between them: {before},{word}"
            raise click.UsageError(message, ctx)
        # the command is known, so this is a value, or a name with nothing behind it
        if "=" not in word and (has_command or "," in word or ".." in word):
            raise click.UsageError(_without_name(word), ctx)
        if "=" not in word:
            raise click.UsageError(
                _with_dashes(ctx, arguments, arguments.index(word)), ctx
            )
        before = word


def _refuse_command_without_dashes(ctx: click.Context, arguments: list[str]) -> None:
    """Show where ``--`` goes, if a word directly follows the NAME=VALUES."""
    at = next(
        (i for i, word in enumerate(arguments) if "=" not in word), len(arguments)
    )
    # an option may be weigh's, so only a plain word is taken for the command
    if 0 < at < len(arguments) and arguments[at][:1] != "-":
        raise click.UsageError(_with_dashes(ctx, arguments, at), ctx)


def _with_dashes(ctx: click.Context, arguments: list[str], at: int) -> str:
    line = " ".join([ctx.command_path, *arguments[:at], "--", *arguments[at:]])
    return f"put -- before the command: {line}"


def _without_name(word: str) -> str:
    """Return what a word lacks: values, or a name if it looks like values."""
    if "," in word or ".." in word or word[:1].isdecimal():
        return f"{word} has no parameter name (write NAME={word})"
    return f"{word} has no values (write {word}=V1,V2)"
