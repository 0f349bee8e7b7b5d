"""Carry out plain command lines of ``weigh run`` without click, to start sooner.

Importing click takes about a quarter of what weigh adds to a short command. A command
line is plain if it has only the options below, each written out, and if no setting has
the place of another option. The others, and those with a mistake, are left to click.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from weigh import config
from weigh.cli.output import guard_terminal, make_stderr_patient, settle_stdout
from weigh.cli.run_job import (
    label_trouble,
    report_on,
    run_notifier,
    typed_parameters,
)
from weigh.errors import FormatError, WeighError
from weigh.flow.run.record_sink import current_folder
from weigh.flow.run.run import RunOptions, run_command_measured
from weigh.measure.launcher import JobLauncher

_VALUED = {"-o": "output", "--output": "output", "--label": "label"}  # option -> field
_QUIET = ("-q", "--quiet")
# settings that change a plain run: click applies them
_OF_RUN = frozenset((*RunOptions.__struct_fields__, "headroom", "quiet"))


class PlainRun(msgspec.Struct):
    """A plain command line, with the names and values that click gives."""

    output: str | None = None
    label: str | None = None
    quiet: bool = False
    parameters: dict[str, int | float | str] = {}
    command: tuple[str, ...] = ()


def read_plain(argv: Sequence[str]) -> PlainRun | None:
    """Read ``run [OPTIONS] -- COMMAND``; return None to leave it to click."""
    words, found, parameters = iter(argv), PlainRun(), list[str]()
    if next(words, "") != "run":
        return None
    for word in words:
        if word == "--":
            break
        if word in _QUIET:
            found.quiet = True
            continue
        name, equals, value = word.partition("=")
        # "-o=FILE": click takes "=FILE" as the name; leave such cases to it
        is_again = name == "--label" and found.label is not None
        if is_again or (name not in _VALUED and name != "--param"):
            return None
        if equals and name == "-o":
            return None
        # a missing value reads as "--", which leaves the line to click
        value = value if equals else next(words, "--")
        if name == "--param":
            parameters.append(value)
        else:
            setattr(found, _VALUED[name], value)
        # "-x" as a value is more likely a forgotten one: click's message explains it
        if value.startswith("-"):
            return None
    try:
        found.parameters = typed_parameters(parameters)
    except FormatError:
        return None
    found.command = tuple(words)
    is_wrong = found.label is not None and label_trouble(found.label)
    return None if is_wrong or not found.command else found


def run_plain(argv: Sequence[str], launchers: list[JobLauncher]) -> int | None:
    """Run *argv* and return the exit code; None if nothing was done: it is not plain.

    A trouble with stdout is no trouble here: the job's exit code passes.
    """
    # click answers a completion itself
    plain = None if "_WEIGH_COMPLETE" in os.environ else read_plain(argv)
    if plain is None:
        return None
    try:
        settings = config.load_config(current_folder() or os.sep, os.environ)
    # click reads them again, and reports what is wrong
    except WeighError:
        return None
    if _OF_RUN & settings.settings.keys():
        return None
    make_stderr_patient()
    guard_terminal()
    try:
        code = _measure_plain_run(plain, settings, launchers)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported in one line
        from weigh.cli.main import exit_code_of  # noqa: PLC0415 - rarely

        if isinstance(error, KeyboardInterrupt) and sys.stderr is not None:
            sys.stderr.write("\n")  # as click does
        code = exit_code_of(error, argv)
    settle_stdout()
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.flush()
    return code


def _measure_plain_run(
    plain: PlainRun, settings: config.ConfigValues, launchers: list[JobLauncher]
) -> int:
    options = RunOptions(
        label=plain.label,
        parameters=plain.parameters,
        output=plain.output,
        mask=settings.mask,
    )
    watched = run_command_measured(
        list(plain.command),
        options,
        launchers=launchers,
        notify=run_notifier(quiet=plain.quiet),
    )
    return report_on(watched, settings, quiet=plain.quiet, headroom=None)
