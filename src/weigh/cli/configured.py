"""A verb whose options have their defaults in settings files and variables."""

import os
from collections.abc import Mapping
from typing import Any

import click

from weigh import config
from weigh.errors import FormatError
from weigh.flow.run.keeping import current_folder

_WARNINGS = "weigh.config.warnings"
_HELP = {"-h", "--help"}


class ExecCommand(click.Command):
    """Reads ``[exec]``; a variable beats it, and a flag beats both."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> click.Context:
        """Parse the words, with what the files say in the place of defaults.

        Raises:
            FormatError: a file does not parse, or an option cannot be as it says.
        """
        if extra.get("resilient_parsing") or _HELP.intersection(args):
            return super().make_context(info_name, args, parent, **extra)
        settings = config.load(current_folder() or os.sep, os.environ)
        chosen = {
            **_usual(settings),
            **{name: one.value for name, one in settings.exec.items()},
        }
        try:
            context = super().make_context(
                info_name, args, parent, default_map=chosen, **extra
            )
        except click.BadParameter as error:
            raise _named(error, settings.exec) or error from error
        context.meta[_WARNINGS] = settings.warnings
        return context


def _usual(settings: config.Config) -> dict[str, config.Value]:
    """Give the settings that mean the same to several verbs."""
    names = ("quiet", "wait_orphans", "interval", "stalled_after")
    found = {name: settings.value(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _named(
    error: click.BadParameter, settings: Mapping[str, config.Setting]
) -> FormatError | None:
    """Say which file an option came from; None where it was another one's."""
    name = None if error.param is None else error.param.name
    if name is None or name not in settings or error.ctx is None:
        return None
    if not is_from_file(error.ctx, name):
        return None
    return FormatError(f"{settings[name].origin}: exec.{name}: {error.message}")


def is_from_file(context: click.Context, name: str) -> bool:
    """Tell whether an option is as a settings file has it."""
    source = context.get_parameter_source(name)
    return source is click.core.ParameterSource.DEFAULT_MAP


def is_typed(context: click.Context, name: str) -> bool:
    """Tell whether an option was given on the command line."""
    source = context.get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def warnings_of(context: click.Context) -> tuple[str, ...]:
    """Give what the files say that nobody understands."""
    warnings: tuple[str, ...] = context.meta.get(_WARNINGS, ())
    return warnings
