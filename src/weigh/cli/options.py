"""What the verbs share: options of one meaning, types of values, completion."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource

from weigh import config
from weigh.errors import FormatError, WeighError
from weigh.flow.run.record_sink import current_folder
from weigh.lazy_modules import lazy_module
from weigh.schedulers import KINDS
from weigh.units import MINUTE, Bytes, Seconds, parse_duration, parse_size

if TYPE_CHECKING:
    from click import shell_completion

    from weigh import request
    from weigh.cli import help_groups
    from weigh.flow import completion
    from weigh.render import printable, request_lines
else:  # each is imported when it is first used
    shell_completion = lazy_module("click.shell_completion")
    completion = lazy_module("weigh.flow.completion")
    help_groups = lazy_module("weigh.cli.help_groups")
    request = lazy_module("weigh.request")
    printable = lazy_module("weigh.render.printable")
    request_lines = lazy_module("weigh.render.request_lines")

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Type = click.ParamType[float | str]
else:
    _Type = click.ParamType  # click takes no type arguments before version 8.2


class ParsedQuantity(_Type):
    """A value that *read* parses; with ``as_text`` it is checked and stays as typed."""

    def __init__(
        self,
        name: str,
        read: Callable[[str], float],
        *,
        as_text: bool = False,
    ) -> None:
        self.name = name
        self._read = read
        self._as_text = as_text

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float | str:
        """Return the quantity, or *value* itself.

        Raises:
            click.BadParameter: *value* is no such quantity, or lacks a unit.
        """
        is_setting = isinstance(value, float)  # str() would write 1e-05
        text = f"{value:f}" if is_setting else str(value)
        try:
            found = self._read(text)
        except FormatError as error:
            self.fail(str(error), param, ctx)
        return text if self._as_text else found


def _parse_share(text: str) -> float:
    return request.parse_headroom(text)


class BoundedCount(click.IntRange):
    """A whole number from *least* to *most*; the help names no range."""

    def __init__(self, least: int = 1, most: int | None = None) -> None:
        super().__init__(least, most)
        self._least, self._most = least, most

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the number.

        Raises:
            click.BadParameter: *value* is no whole number, or out of range.
        """
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self._least:
            self.fail(f"{number} is less than {self._least}", param, ctx)
        if self._most is not None and number > self._most:
            self.fail(f"{number} is more than {self._most:,}", param, ctx)
        return number

    # click would add the range to the help text, where it takes a line
    def _describe_range(self) -> str:
        return ""


def _size_above_zero(text: str) -> Bytes:
    size = parse_size(text)
    if not size:
        raise FormatError(f"{text} is no size above 0")
    return size


def _time_as_typed(text: str) -> Seconds:
    # schedulers take 10:99:99 for 11:40:39, and a person who types it is mistaken
    if any(part.isdecimal() and int(part) >= MINUTE for part in text.split(":")[1:]):
        raise FormatError(f"{text}: minutes and seconds go up to 59")
    return _above_zero(text, parse_duration(text))


def _above_zero(text: str, seconds: Seconds) -> Seconds:
    if seconds <= 0:
        raise FormatError(f"{text} is no time above 0")
    return seconds


SIZE = ParsedQuantity("size", _size_above_zero)  # bytes
DURATION = ParsedQuantity("time", _time_as_typed)  # seconds


def _time_above_zero(text: str) -> Seconds:
    return _above_zero(text, parse_duration(text, bare_unit=1))


# a bare number is seconds: only for options that are not named as a scheduler's
SECONDS = ParsedQuantity("time", partial(parse_duration, bare_unit=1))
SECONDS_ABOVE_0 = ParsedQuantity("time", _time_above_zero)
HEADROOM = ParsedQuantity("share", _parse_share)  # 0.2 is 20 %
# for flows that read the text themselves, as they do for Python programs
SIZE_TEXT = ParsedQuantity("size", _size_above_zero, as_text=True)
TIME_TEXT = ParsedQuantity("time", _time_as_typed, as_text=True)


def warn_on_stderr(line: str) -> None:
    """Print a line about the work next to the answer of a verb."""
    click.echo(printable.weigh_line(line), nl=False, err=True)


def notify(line: str) -> None:
    """Print a note to standard error, folded."""
    for part in request_lines.folded_lines(printable.weigh_line(line), printable.WIDTH):
        click.echo(part, err=True)


# Options of one meaning are spelled the same in every verb: this is the table.
SETTINGS: dict[str, object] = {"help_option_names": ["-h", "--help"]}
Decorator: TypeAlias = Callable[[Any], Any]


def read_by(read: Callable[[Any], object]) -> Callable[..., object]:
    """Return what click calls with a typed value: *read* may raise FormatError."""

    def convert(_: click.Context, option: click.Parameter, typed: Any) -> object:  # noqa: ANN401 - click's own
        try:
            return None if typed is None else read(typed)
        except FormatError as error:
            raise click.BadParameter(str(error), param=option) from error

    return convert


def of_settings(*names: str, **words: Any) -> Decorator:  # noqa: ANN401 - click's own
    """Return an option that no help lists: a setting of files, or of job scripts."""
    return click.option(*names, hidden=True, **words)


def as_json(text: str = "Print one JSON document.") -> Decorator:
    """Return the option ``--json``, described by *text*."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def dry_run(text: str) -> Decorator:
    """Return the option ``--dry-run``, described by *text*."""
    return click.option("--dry-run", is_flag=True, help=text)


def quiet(text: str) -> Decorator:
    """Return the option ``-q/--quiet``, described by *text*."""
    return click.option("-q", "--quiet", is_flag=True, help=text)


def queue(text: str, *, multiple: bool = False) -> Decorator:
    """Return the option ``-p/--queue``: of a scheduler."""
    return click.option("-p", "--queue", metavar="NAME", multiple=multiple, help=text)


def output(metavar: str, text: str, default: str | None = None) -> Decorator:
    """Return the option ``-o/--output``: where results are written."""
    return click.option("-o", "--output", metavar=metavar, default=default, help=text)


def limit(text: str, least: int = 1, most: int | None = None) -> Decorator:
    """Return the option ``-n/--limit``: how many are shown or tried."""
    kind = BoundedCount(least, most)
    return click.option("-n", "--limit", type=kind, metavar="N", help=text)


def jobs_at_once(most: int) -> Decorator:
    """Return the option ``-j/--jobs``: how many tasks run concurrently."""
    return click.option(
        "-j",
        "--jobs",
        type=BoundedCount(1, most),
        metavar="N",
        help="Number of concurrent tasks.  [default: one per available CPU or GPU]",
    )


def scheduler(text: str, name: str = "scheduler") -> Decorator:
    """Return the option ``--for``: a scheduler's name."""
    return click.option("--for", name, type=click.Choice(tuple(KINDS)), help=text)


def metric() -> Decorator:
    """Return the option ``--metric``: what the tasks print about what they learn."""
    return click.option(
        "--metric",
        metavar="NAME",
        help="Show a metric that the tasks print or write to a table, such as loss; "
        "NAME:min or NAME:max says which end is good, /REGEX/ how it is printed.",
    )


class FlagPair(click.Option):
    """A flag with a negation, of which the help lists the one that changes anything."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the name that is not the default, and the help text."""
        row = super().get_help_record(ctx)
        names = self.secondary_opts if self.default else self.opts
        return row and (", ".join(names), row[1])


_SETTINGS = "weigh.settings"
_HELP = frozenset(("-h", "--help", "--help-all"))


# their help is in groups: see help_groups
VERBS_WITH_GROUPS = frozenset({"submit", "exec", "plan"})


def _show_all_help(context: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
    if is_given:
        context.meta[help_groups.HELP_ALL] = True
        _show_help(context, _, is_given)


def _show_help(context: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
    if is_given and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)
        context.exit()


class PlainHelp(click.Command):
    """A command whose ``--help`` searches no translation on disk, and is in groups.

    It refuses an option with an empty value.
    """

    may_be_empty = frozenset[str]()
    """Options of which an empty value has a meaning."""
    _help: click.Option | None = None
    _help_all: click.Option | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; refuse ``--queue "$QUEUE"`` where the variable is not set.

        A value left out before ``--`` would be that word.

        Raises:
            BadOptionUsage: the value of an option is empty.
        """
        rest = super().parse_args(ctx, args)
        for option in self.params:
            if not isinstance(option, click.Option) or option.flag_value == "":
                continue
            name = str(option.name)
            is_typed = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            value = ctx.params.get(name)
            values = value if isinstance(value, tuple) else (value,)
            is_empty = any(one in ("", "--") for one in values)
            if is_typed and is_empty and name not in self.may_be_empty:
                raise click.BadOptionUsage(option.opts[-1], "it needs a value", ctx)
        return rest

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option, always the same."""
        if self._help is None:
            self._help = click.Option(
                self.get_help_option_names(ctx),
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_help,
                help="Show this message and exit.",
            )
        return self._help

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; of a verb with many also ``--help-all``."""
        params = super().get_params(ctx)
        if self.name not in VERBS_WITH_GROUPS:
            return params
        if self._help_all is None:
            self._help_all = click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all_help,
                help="Show every option, by topic.",
            )
        return [*params, self._help_all]

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options, of a verb with many those that are used first."""
        if self.name in VERBS_WITH_GROUPS:
            help_groups.write_option_groups(self, ctx, formatter)
        else:
            super().format_options(ctx, formatter)


class SettingsCommand(PlainHelp):
    """A verb whose options have the settings as defaults: a flag overrides a setting.

    The settings of the files and of ``WEIGH_*`` are click's ``default_map``.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> click.Context:
        """Parse *args*, with the settings as defaults.

        Raises:
            FormatError: a settings file cannot be parsed, or has an invalid value.
        """
        # what stands behind "--" is the command's, also its --help
        own = args[: args.index("--")] if "--" in args else args
        # a help text or a completion works with broken settings files, too
        if extra.get("resilient_parsing") or _HELP.intersection(own):
            return super().make_context(info_name, args, parent, **extra)
        settings = config.load_config(current_folder() or os.sep, os.environ)
        values = {name: one.value for name, one in self.defaults(settings).items()}
        try:
            context = super().make_context(
                info_name, args, parent, default_map=values, **extra
            )
        except click.BadParameter as error:
            raise self.named(error, settings) or error from error
        context.meta[_SETTINGS] = settings
        return context

    def defaults(
        self, settings: config.ConfigValues
    ) -> dict[str, config.ConfigSetting]:
        """Return the settings that are options of this verb, by parameter name."""
        names = {option.name for option in self.params}
        return {key: one for key, one in settings.settings.items() if key in names}

    def named(
        self, error: click.BadParameter, settings: config.ConfigValues
    ) -> FormatError | None:
        """Return *error* with the file that has the value; None if it was typed."""
        name = None if error.param is None else error.param.name
        if name is None or error.ctx is None or not is_from_file(error.ctx, name):
            return None
        origin = self.defaults(settings)[name].origin
        # a variable's name has no slash
        is_file = os.sep in origin
        where = f"{origin}: {self.key(name, settings)}" if is_file else origin
        return FormatError(f"{where}: {error.message}")

    def key(self, name: str, settings: config.ConfigValues) -> str:
        """Return how the setting of a parameter's *name* is written in a file."""
        return name


def settings_of(context: click.Context) -> config.ConfigValues:
    """Return the settings that a verb was called with."""
    settings: config.ConfigValues = context.meta.get(_SETTINGS) or config.ConfigValues()
    return settings


def is_typed(context: click.Context, name: str) -> bool:
    """Return whether an option was given on the command line."""
    source = context.get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def is_from_file(context: click.Context, name: str) -> bool:
    """Return whether a settings file or variable provides an option's value."""
    source = context.get_parameter_source(name)
    return source is click.core.ParameterSource.DEFAULT_MAP


def flag_of(context: click.Context, name: str) -> str:
    """Return how the option of a parameter's *name* is spelled."""
    return next(one.opts[-1] for one in context.command.params if one.name == name)


_MOST = 50  # words that are offered for <TAB>


def files(_: click.Context, __: click.Parameter, begun: str) -> "list[CompletionItem]":
    """Let the shell complete file names."""
    return [shell_completion.CompletionItem(begun, type="file")]


def jobs(_: click.Context, __: click.Parameter, begun: str) -> "list[CompletionItem]":
    """Return the jobs that were submitted from here."""
    return _offered_completions(completion.job_names(os.getcwd(), os.environ), begun)


def offer_record_names(
    _: click.Context, __: click.Parameter, begun: str
) -> "list[CompletionItem]":
    """Return the labels and ids of the newest records."""
    return _offered_completions(completion.record_names(os.getcwd(), os.environ), begun)


def _offered_completions(
    found: Iterator[tuple[str, str]], begun: str
) -> "list[CompletionItem]":
    """Return the first of *found*, (word, description), that start with *begun*."""
    fitting = ((word, what) for word, what in found if word.startswith(begun))
    try:
        # lazily: a store may have thousands of records
        first = dict(islice(fitting, _MOST))
    except (WeighError, OSError):
        return []  # a failing <TAB> completes nothing, and prints no error
    return [
        shell_completion.CompletionItem(word, help=what) for word, what in first.items()
    ]
